"""Supervisor of simulated brokers: kills, stops and starts processes, and restarts those that end."""

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context
from enum import Enum, auto
from typing import Any, TypeVar

from tidelog.server.broker import Broker, CannotStart
from tidelog.simulation.cluster import DEATH_IS_NOTICED_AFTER_S, SimulatedCluster
from tidelog.simulation.processes import Process
from tidelog.types import BrokerId

T = TypeVar("T")

START_AGAIN_S = 1.0
"""Delay before a restart after a broker failed to start or ended by itself."""
MAX_STOP_S = 30.0
"""Time after which a broker that does not stop is killed."""


class BrokerState(Enum):
    UP = auto()
    DOWN = auto()
    STARTING = auto()
    STOPPING = auto()


class Supervisor:
    """Plans at most one start per broker; a planned start happens only if the broker is down at that time.

    A state changes when its change is decided, not at the first step of the task that carries it out: a fault may come
    between the two. A kill ends the start or stop under way, and who kills plans the next start.
    """

    def __init__(self, cluster: SimulatedCluster, log_event: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._log_event = log_event
        self.states = dict.fromkeys(cluster.machines, BrokerState.DOWN)
        self._planned: dict[BrokerId, asyncio.TimerHandle] = {}
        self._gone: dict[BrokerId, asyncio.Future[None]] = {}
        """Completed when the process that is starting or stopping is killed."""
        self._tasks: dict[asyncio.Task[None], None] = {}
        self.failures: list[str] = []

    @property
    def healthy(self) -> set[BrokerId]:
        """Running brokers."""
        return {
            broker_id
            for broker_id, state in self.states.items()
            if state is BrokerState.UP and self._cluster.machines[broker_id].is_running
        }

    def has_offline_directory(self, broker_id: BrokerId) -> bool:
        broker = self._cluster.machines[broker_id].broker
        logs = None if broker is None else broker._logs
        return logs is not None and any(not directory.is_online for directory in logs.directories)

    @property
    def is_all_healthy(self) -> bool:
        return len(self.healthy) == len(self.states) and not any(map(self.has_offline_directory, self.states))

    async def start_all(self) -> None:
        await asyncio.gather(*(self._start(broker_id) for broker_id in self.states))

    def recover_all(self) -> None:
        """Start brokers that are down and restart those with an offline log directory."""
        for broker_id, state in self.states.items():
            if state is BrokerState.DOWN:
                self.start_after(broker_id, 0.0)
            elif state is BrokerState.UP:
                self.restart_if_offline(broker_id)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._on_done)

    def _on_done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and task.exception() is not None:
            self.failures.append(f"a broker could not start or stop: {task.exception()!r}")

    # ---- starting

    def start_after(self, broker_id: BrokerId, after_s: float) -> None:
        """Plan a start, which replaces an earlier plan."""
        if broker_id in self._planned:
            self._planned[broker_id].cancel()
        self._planned[broker_id] = asyncio.get_running_loop().call_later(
            after_s, self._start_now, broker_id, context=Context()
        )

    def _start_now(self, broker_id: BrokerId) -> None:
        del self._planned[broker_id]
        if self.states[broker_id] is BrokerState.DOWN:
            self.spawn(self._start(broker_id))

    def _start(self, broker_id: BrokerId) -> Coroutine[Any, Any, None]:
        """Start a broker, which can be killed from now on."""
        self.states[broker_id] = BrokerState.STARTING
        gone = self._gone[broker_id] = asyncio.get_running_loop().create_future()
        return self._starting(broker_id, self._cluster.start(broker_id), gone)

    async def _starting(
        self, broker_id: BrokerId, work: Coroutine[Any, Any, Broker], gone: "asyncio.Future[None]"
    ) -> None:
        try:
            broker = await _unless_killed(gone, work)
        except CannotStart as error:
            self._log_event(f"broker {broker_id} could not start: {error}")
            self.kill(broker_id)
            self.start_after(broker_id, START_AGAIN_S)
            return
        if broker is not None:
            self.states[broker_id] = BrokerState.UP
            self._log_event(f"broker {broker_id} has started")
            process = self._cluster.machines[broker_id].process
            assert process is not None
            self.spawn(self._watch(broker_id, broker, process))

    async def _watch(self, broker_id: BrokerId, broker: Broker, process: Process) -> None:
        """Restart a broker that ends by itself, as its command does after a fatal error."""
        reason = await process.run(broker.run_until(asyncio.Event()))
        if self.states[broker_id] is BrokerState.UP and self._cluster.machines[broker_id].process is process:
            self._log_event(f"broker {broker_id} ends: {reason}")
            if reason is not None and reason.startswith("background work failed"):
                self.failures.append(f"broker {broker_id} failed: {reason}")
            await self._stop(broker_id, START_AGAIN_S)

    # ---- stopping

    def kill(self, broker_id: BrokerId, noticed_after_s: float = DEATH_IS_NOTICED_AFTER_S) -> None:
        if self._cluster.machines[broker_id].process is not None:
            self._cluster.kill(broker_id, noticed_after_s=noticed_after_s)
        self.set_down(broker_id)

    def set_down(self, broker_id: BrokerId) -> None:
        self.states[broker_id] = BrokerState.DOWN
        gone = self._gone.pop(broker_id, None)
        if gone is not None and not gone.done():
            gone.set_result(None)

    def stop(self, broker_id: BrokerId, for_s: float) -> None:
        """A clean stop, as on SIGTERM, and a start after `for_s`."""
        self.spawn(self._stop(broker_id, for_s))

    def restart_if_offline(self, broker_id: BrokerId) -> None:
        if self.has_offline_directory(broker_id) and broker_id in self.healthy:
            self._log_event(f"restart broker {broker_id}, which has a log directory offline")
            self.stop(broker_id, 0.0)

    def _stop(self, broker_id: BrokerId, for_s: float) -> Coroutine[Any, Any, None]:
        """Stop the broker that runs now, which can be killed from now on."""
        self.states[broker_id] = BrokerState.STOPPING
        gone = self._gone[broker_id] = asyncio.get_running_loop().create_future()
        return self._stopping(broker_id, self._cluster.stop(broker_id), gone, for_s)

    async def _stopping(
        self, broker_id: BrokerId, work: Coroutine[Any, Any, None], gone: "asyncio.Future[None]", for_s: float
    ) -> None:
        stopping = asyncio.ensure_future(_unless_killed(gone, work))
        await asyncio.wait([stopping], timeout=MAX_STOP_S)
        if gone.done():
            return  # it was killed
        if stopping.done():
            self._log_event(f"broker {broker_id} has stopped")
            self.set_down(broker_id)
            stopping.result()
        else:
            self._log_event(f"broker {broker_id} did not stop in {MAX_STOP_S} s and is killed")
            self.kill(broker_id)
        self.start_after(broker_id, for_s)


async def _unless_killed(gone: "asyncio.Future[None]", work: Coroutine[Any, Any, T]) -> T | None:
    """Result of the coroutine, or None if its process is killed in the meantime."""
    doing = asyncio.ensure_future(work)
    either: list[asyncio.Future[Any]] = [doing, gone]
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    return doing.result() if not gone.done() else None
