"""Cluster of brokers for tests, in a background thread of this process."""

import asyncio
import threading
from collections.abc import Coroutine, Mapping
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from tidelog.testing.machines import Machines
from tidelog.testing.processes import ProcessLoop

T = TypeVar("T")

TIMEOUT_S = 60.0
"""No call waits longer. A cluster that needs more has failed."""


class ClusterError(Exception):
    """The cluster cannot do this. The message is one sentence."""


class Cluster:
    """`with Cluster(brokers=3) as kafka:` or `async with`; clients connect to `kafka.bootstrap_servers`.

    Brokers have the ids 1 to `brokers`. Methods block; the cluster itself runs in its own thread.
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        directory: "str | Path | None" = None,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        """`directory`: records are in files below it, which stay; else they are in memory.

        `settings`: broker settings with Kafka's names, such as {"num.partitions": 3}.
        """
        if brokers < 1:
            raise ValueError(f"a cluster has at least one broker, not {brokers}")
        self.brokers = brokers
        self._directory = None if directory is None else Path(directory)
        self._settings = {name: _text(value) for name, value in (settings or {}).items()}
        self._loop: ProcessLoop | None = None
        self._thread: threading.Thread | None = None
        self._machines: Machines | None = None

    # Life

    def open(self) -> "Cluster":
        """Start all brokers; on return they take requests."""
        if self._machines is not None:
            raise ClusterError("the cluster runs already")
        self._check_directory()
        self._machines = machines = Machines(self.brokers, self._directory, self._settings)
        self._loop = ProcessLoop()
        self._thread = threading.Thread(target=self._run_loop, args=[self._loop], name="tidelog-testing", daemon=True)
        self._thread.start()
        try:
            self._do(machines.open())
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """Stop all brokers and the thread. A closed cluster may be opened again, and is then empty."""
        machines, loop, thread = self._machines, self._loop, self._thread
        if machines is None or loop is None or thread is None:
            return
        try:
            self._do(machines.close())
        finally:
            self._machines = self._loop = self._thread = None
            loop.call_soon_threadsafe(loop.stop)
            thread.join(TIMEOUT_S)
            machines.release_ports()

    def __enter__(self) -> "Cluster":
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> "Cluster":
        return await asyncio.to_thread(self.open)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)

    # Use

    @property
    def bootstrap_servers(self) -> str:
        """Addresses of all brokers, as clients take them: `127.0.0.1:40001,127.0.0.1:40002`."""
        return ",".join(self._opened.addresses)

    @property
    def running(self) -> list[int]:
        """Ids of the brokers that run."""
        return self._opened.running()

    def reset(self) -> None:
        """Make the cluster as new, with all brokers, on the same addresses. Clients lose their connections."""
        self._do(self._opened.reset())

    def kill(self, broker_id: int) -> None:
        """End a broker as `kill -9` does. The others notice at once."""
        self._check(broker_id, is_running=True)
        self._do(_call(self._opened.kill, broker_id))

    def stop(self, broker_id: int) -> None:
        """End a broker in good order: its leaders move to other brokers first."""
        self._check(broker_id, is_running=True)
        self._do(self._opened.stop(broker_id))

    def start(self, broker_id: int) -> None:
        """Start a killed or stopped broker again, with its records, on its address."""
        self._check(broker_id, is_running=False)
        self._do(self._opened.start([broker_id]))

    def restart(self, broker_id: int) -> None:
        """Stop and start."""
        self.stop(broker_id)
        self.start(broker_id)

    # Internals

    @property
    def _opened(self) -> Machines:
        if self._machines is None:
            raise ClusterError("the cluster does not run: use it in `with Cluster() as kafka:`, or call open() first")
        return self._machines

    def _check(self, broker_id: int, *, is_running: bool) -> None:
        if broker_id not in self._opened.ids():
            raise ClusterError(f"there is no broker {broker_id!r}; the brokers are 1 to {self.brokers}")
        if (broker_id in self.running) != is_running:
            raise ClusterError(f"broker {broker_id} {'does not run' if is_running else 'runs already'}")

    def _check_directory(self) -> None:
        """Never mix with, or delete, what somebody else has written."""
        if self._directory is not None:
            self._directory.mkdir(parents=True, exist_ok=True)
            if any(self._directory.iterdir()):
                raise ClusterError(f"{self._directory} is not empty; a test cluster needs a directory of its own")

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        assert self._loop is not None
        if self._thread is threading.current_thread():
            work.close()
            raise ClusterError("a cluster cannot be called from its own thread")
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(TIMEOUT_S)
        except TimeoutError as error:
            raise ClusterError(f"the cluster did not do this within {TIMEOUT_S:.0f} s; its log says why") from error

    @staticmethod
    def _run_loop(loop: ProcessLoop) -> None:
        try:
            loop.run_forever()
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
        finally:
            loop.close()


async def _call(work: Any, *arguments: object) -> Any:
    return work(*arguments)


def _text(value: object) -> str:
    """As in server.properties."""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
