"""Simulated cluster: broker processes with their own disk and host name, one network, one coordination store."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any

from tidelog.client.network.connection import ClientConnection
from tidelog.config.broker import RACK_AWARE_SELECTOR, BrokerSettings
from tidelog.runtime.memory_disk import CrashDamage, MemoryDisk
from tidelog.runtime.memory_network import CLIENT_HOST, MemoryNetwork
from tidelog.runtime.randomness import SeededRandomness
from tidelog.runtime.virtual_time import VirtualClock
from tidelog.runtime.workers import InlineWorkers, SimulatedWorkers
from tidelog.server.broker import Broker
from tidelog.server.seams import Seams
from tidelog.simulation.processes import Process, ProcessState, SimulationLoop
from tidelog.store.interface import Store
from tidelog.store.memory import MemoryStore, MemoryStoreState
from tidelog.types import BrokerId

PORT = 9092
LOG_DIRECTORIES = ("/logs", "/more-logs")
LATENCY_S = 0.0005
DEATH_IS_NOTICED_AFTER_S = 0.05
SESSION_TIMEOUT_MS = 6000


def host_of(broker_id: BrokerId) -> str:
    return f"broker-{broker_id}"


def rack_of(broker_id: BrokerId) -> str:
    return f"rack-{broker_id}"


@dataclass(slots=True)
class Machine:
    """Host of one broker: the disk, which survives its processes, and the current process, if any."""

    broker_id: BrokerId
    clock: VirtualClock
    disk: MemoryDisk
    workers: SimulatedWorkers | InlineWorkers
    process: Process | None = None
    broker: Broker | None = None
    sessions: list[int] = field(default_factory=list)
    starts: int = 0

    @property
    def is_running(self) -> bool:
        return self.broker is not None and self.process is not None and self.process.state is ProcessState.RUNNING


def _new_disk(clock: VirtualClock) -> MemoryDisk:
    """Empty disk with the mount points of the log directories."""
    disk = MemoryDisk(clock)
    for path in LOG_DIRECTORIES:
        disk.make_directory(path)
    disk.sync_everything()
    return disk


class SimulatedCluster:
    """Operations act from outside, as an operator or a fault does."""

    def __init__(self, brokers: int = 3, *, seed: int = 1, has_racks: bool = False, **settings: object) -> None:
        """`has_racks`: every broker is in its own rack, and consumers read from the replica in theirs (KIP-392)."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulationLoop)
        self.clock = VirtualClock(loop)
        self.network = MemoryNetwork()
        self.network.latency_s = LATENCY_S
        self.store_state = MemoryStoreState()
        self.settings = settings
        self._has_racks = has_racks
        self._seed = seed
        self._loop = loop
        self.machines = {broker_id: self._machine(broker_id) for broker_id in range(1, brokers + 1)}

    def _machine(self, broker_id: BrokerId) -> Machine:
        clock = VirtualClock(self._loop)
        return Machine(broker_id, clock, _new_disk(clock), InlineWorkers())

    def broker(self, broker_id: BrokerId) -> Broker:
        broker = self.machines[broker_id].broker
        assert broker is not None, f"broker {broker_id} does not run"
        return broker

    @property
    def running(self) -> list[Broker]:
        return [found.broker for found in self.machines.values() if found.broker is not None and found.is_running]

    # ---- start and stop

    async def start_all(self) -> None:
        await asyncio.gather(*(self.start(broker_id) for broker_id in self.machines))

    def start(self, broker_id: BrokerId, **settings: object) -> Coroutine[Any, Any, Broker]:
        """Start a broker. Its process exists on return, so that it can be killed before its first step."""
        machine = self.machines[broker_id]
        machine.starts += 1
        process = machine.process = Process(f"{host_of(broker_id)}.{machine.starts}")
        values = {
            "broker_id": broker_id,
            "log_dirs": LOG_DIRECTORIES[:1],
            "listeners": (f"PLAINTEXT://{host_of(broker_id)}:{PORT}",),
            "broker_session_timeout_ms": SESSION_TIMEOUT_MS,
            **self._rack_settings(broker_id),
            **self.settings,
            **settings,
        }
        broker_settings = BrokerSettings(**values)  # type: ignore[arg-type]
        return self._starting(machine, process, Broker.start(broker_settings, self._seams(machine)))

    def _rack_settings(self, broker_id: BrokerId) -> dict[str, object]:
        if not self._has_racks:
            return {}
        return {"broker_rack": rack_of(broker_id), "replica_selector_class": RACK_AWARE_SELECTOR}

    def client_rack(self, number: int) -> str:
        """The rack of a client with this number; empty if there are no racks."""
        return rack_of(1 + number % len(self.machines)) if self._has_racks else ""

    async def _starting(self, machine: Machine, process: Process, work: Coroutine[Any, Any, Broker]) -> Broker:
        broker = await process.run(work)
        if machine.process is process:  # it was not killed since
            machine.broker = broker
        return broker

    def _seams(self, machine: Machine) -> Seams:
        async def open_store() -> Store:
            store = MemoryStore(self.store_state, session_timeout_ms=SESSION_TIMEOUT_MS)
            machine.sessions.append(store.session_id)
            return store

        return Seams(
            clock=machine.clock,
            disk=machine.disk,
            network=self.network.at(host_of(machine.broker_id)),
            randomness=SeededRandomness(self._seed * 1000 + machine.broker_id * 10 + machine.starts),
            workers=machine.workers,
            open_store=open_store,
        )

    def stop(self, broker_id: BrokerId) -> Coroutine[Any, Any, None]:
        """A clean stop, as on SIGTERM, of the process that runs at the call: it can be killed before its first step."""
        machine = self.machines[broker_id]
        assert machine.process is not None
        return self._stopping(machine, machine.process, self.broker(broker_id).stop())

    async def _stopping(self, machine: Machine, process: Process, work: Coroutine[Any, Any, None]) -> None:
        await process.run(work)
        if machine.process is process:  # it was not killed since
            machine.process = machine.broker = None

    async def stop_all(self) -> None:
        for machine in self.machines.values():
            if machine.is_running:
                await self.stop(machine.broker_id)

    # ---- faults

    def kill(self, broker_id: BrokerId, *, noticed_after_s: float = DEATH_IS_NOTICED_AFTER_S) -> None:
        """kill -9: the page cache survives."""
        machine = self.machines[broker_id]
        assert machine.process is not None
        machine.process.kill()
        machine.process = machine.broker = None
        self.network.power_off(host_of(broker_id))
        machine.disk.locked_paths.clear()
        self._for_live_session(machine, lambda session: self.store_state.crash(session, noticed_after_s))

    def cut_power(self, broker_id: BrokerId, *, noticed_after_s: float = DEATH_IS_NOTICED_AFTER_S) -> None:
        """Power loss: data that was not synced is lost."""
        if self.machines[broker_id].process is not None:
            self.kill(broker_id, noticed_after_s=noticed_after_s)
        self.machines[broker_id].disk.crash()

    def cut_power_badly(self, broker_id: BrokerId, randomness: SeededRandomness, damage: CrashDamage) -> None:
        """Power loss: data that was not synced is lost, torn or corrupted."""
        if self.machines[broker_id].process is not None:
            self.kill(broker_id)
        self.machines[broker_id].disk.crash_badly(randomness, damage)

    def wipe(self, broker_id: BrokerId) -> None:
        """Replace the disk of a stopped machine by an empty one."""
        machine = self.machines[broker_id]
        assert machine.broker is None
        observers = machine.disk.on_changed
        machine.disk = _new_disk(machine.clock)
        machine.disk.on_changed = observers

    def freeze(self, broker_id: BrokerId) -> None:
        """SIGSTOP"""
        machine = self.machines[broker_id]
        assert machine.process is not None
        machine.process.stop()
        self.cut_off_from_store(broker_id)

    def thaw(self, broker_id: BrokerId) -> None:
        """SIGCONT"""
        machine = self.machines[broker_id]
        assert machine.process is not None
        machine.process.resume()
        self.reconnect_to_store(broker_id)

    def cut_off_from_store(self, broker_id: BrokerId) -> None:
        self._for_live_session(self.machines[broker_id], self.store_state.cut_off)

    def reconnect_to_store(self, broker_id: BrokerId) -> None:
        self.store_state.reconnect(self.machines[broker_id].sessions[-1])

    def _for_live_session(self, machine: Machine, do: Callable[[int], None]) -> None:
        if machine.sessions and machine.sessions[-1] in self.store_state.sessions:
            do(machine.sessions[-1])

    def cut(self, one: BrokerId, others: Iterable[BrokerId]) -> None:
        """Cut the links between this broker and the others."""
        for other in others:
            self.network.cut(host_of(one), host_of(other))

    def cut_off_from_peers(self, broker_id: BrokerId) -> None:
        self.cut(broker_id, self.machines.keys() - {broker_id})

    def cut_off_from_clients(self, broker_id: BrokerId) -> None:
        self.network.cut(host_of(broker_id), CLIENT_HOST)

    def mend(self) -> None:
        self.network.mend_all()

    # ---- connections

    async def connect(self, broker_id: BrokerId, client_id: str = "test") -> ClientConnection:
        return await ClientConnection.open(self.network, host_of(broker_id), PORT, client_id)
