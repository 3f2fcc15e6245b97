"""Cluster of brokers for tests."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from tidelog.testing.cluster_view import Group, OpenTransaction
from tidelog.testing.fault_controls import FaultControls
from tidelog.testing.host import ClusterError, Host, ThreadHost
from tidelog.testing.on_request import OnRequest
from tidelog.testing.request_parts import RecordedRequest, api_named
from tidelog.testing.request_script import RequestFilter
from tidelog.testing.topic_view import TopicView

__all__ = ["Cluster", "ClusterError"]


class Cluster(FaultControls):
    """`with Cluster(brokers=3) as kafka:` or `async with`; clients connect to `kafka.bootstrap_servers`.

    Brokers have the ids 1 to `brokers`. Methods block; the cluster itself runs in its own thread, or in its own
    process.
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        directory: "str | Path | None" = None,
        settings: Mapping[str, object] | None = None,
        process: bool = False,
    ) -> None:
        """`directory`: records are in files below it, which stay; else they are in memory.

        `settings`: broker settings with Kafka's names, such as {"num.partitions": 3}.
        `process`: brokers run in one background process, where busy threads of the test do not slow them down.
        """
        if brokers < 1:
            raise ValueError(f"a cluster has at least one broker, not {brokers}")
        super().__init__(brokers)
        self._directory = None if directory is None else Path(directory)
        self._settings = {name: _text(value) for name, value in (settings or {}).items()}
        self._is_process = process
        self._host: Host | None = None
        self._addresses: list[str] = []

    # ---- life

    def open(self) -> "Cluster":
        """Start all brokers; on return they accept requests."""
        if self._host is not None:
            raise ClusterError("the cluster runs already")
        self._check_directory()
        self._host = self._new_host()
        try:
            self._host.open()
            self._addresses = self._call("machines.addresses")
        except BaseException:
            self.close()
            raise
        return self

    def _new_host(self) -> Host:
        if not self._is_process:
            return ThreadHost(self.brokers, self._directory, self._settings)
        from tidelog.testing.process_host import ProcessHost

        return ProcessHost(self.brokers, self._directory, self._settings)

    def close(self) -> None:
        """Stop all brokers. A closed cluster may be opened again, and is then empty."""
        host, self._host = self._host, None
        if host is not None:
            host.close()

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

    def reset(self) -> None:
        """Empty the cluster: all brokers run, without records, on the same addresses. Clients are disconnected."""
        self._call("reset")

    # ---- use

    @property
    def bootstrap_servers(self) -> str:
        """Addresses of all brokers, as clients expect them: `127.0.0.1:40001,127.0.0.1:40002`."""
        self._require_open()
        return ",".join(self._addresses)

    @property
    def clock(self) -> "ClusterClock":
        """Time of the brokers."""
        return ClusterClock(self)

    # ---- requests

    def on(
        self,
        api: str,
        *,
        topic: str | None = None,
        partition: int | None = None,
        group: str | None = None,
        transactional_id: str | None = None,
        client_id: str | None = None,
        broker: int | None = None,
        from_brokers: bool = False,
    ) -> OnRequest:
        """Requests of clients (or of brokers) with this name in Kafka's protocol that are about all of this.

        kafka.on("Produce", topic="t").fail("NOT_ENOUGH_REPLICAS", times=2)
        """
        wanted = RequestFilter(
            api_named(api).name, topic, partition, group, transactional_id, client_id, broker, from_brokers
        )
        return OnRequest(self._call, wanted)

    def requests(self, api: str | None = None, *, from_brokers: bool = False) -> list[RecordedRequest]:
        """Requests that arrived since the start or the last reset, the last 10,000 of them, in their order."""
        name = None if api is None else api_named(api).name
        found: list[RecordedRequest] = self._call("script.requests", name, from_brokers=from_brokers)
        return found

    # ---- contents

    def topic(self, name: str) -> TopicView:
        """Records of a topic."""
        return TopicView(self._call, name)

    def topics(self) -> list[str]:
        """Names of all topics, without internal ones."""
        found: list[str] = self._call("view.topics")
        return found

    def groups(self) -> dict[str, Group]:
        """Consumer groups by id."""
        found: dict[str, Group] = self._call("view.groups")
        return found

    def transactions(self) -> list[OpenTransaction]:
        """Transactions that are neither committed nor aborted."""
        found: list[OpenTransaction] = self._call("view.transactions")
        return found

    # ---- internals

    def _require_open(self) -> Host:
        if self._host is None:
            raise ClusterError("the cluster does not run: use it in `with Cluster() as kafka:`, or call open() first")
        return self._host

    def _call(self, name: str, *arguments: Any, **named: Any) -> Any:
        host = self._require_open()
        result = host.call(name, *arguments, **named)
        if host.has_mistakes:
            raise ClusterError("; ".join(host.call("take_mistakes")))
        return result

    def _check_directory(self) -> None:
        """Never mix with, or delete, what somebody else has written."""
        if self._directory is not None:
            self._directory.mkdir(parents=True, exist_ok=True)
            if any(self._directory.iterdir()):
                raise ClusterError(f"{self._directory} is not empty; a test cluster needs a directory of its own")


class ClusterClock:
    """Time of the brokers of a cluster. It runs like real time, and can be moved forward."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def advance(self, *, seconds: float = 0, minutes: float = 0, hours: float = 0, days: float = 0) -> None:
        """Let this much time pass for the brokers at once: retention, session and transaction time-outs happen now.

        Clients know nothing of it: to brokers they were silent for so long.
        """
        total_s = seconds + 60 * minutes + 3600 * hours + 86400 * days
        if total_s <= 0:
            raise ValueError("time moves forward: advance(seconds=..., minutes=..., hours=..., days=...)")
        self._cluster._call("advance", total_s)

    @property
    def now_ms(self) -> int:
        """Milliseconds since 1970, as brokers stamp records."""
        now_ms: int = self._cluster._call("machines.clock.now_ms")
        return now_ms


def _text(value: object) -> str:
    """As in server.properties."""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
