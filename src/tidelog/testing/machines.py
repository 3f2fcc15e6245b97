"""Brokers of a test cluster on one event loop: production classes over real sockets, and what survives a kill."""

import asyncio
import shutil
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tidelog.cluster import znodes
from tidelog.cluster.znodes import TakeoverState
from tidelog.config.broker import BrokerSettings
from tidelog.config.loading import load_broker_settings
from tidelog.controller.registration import find_cluster_id, prepare_store
from tidelog.controller.takeover import read_store_state
from tidelog.runtime.clock import SystemClock
from tidelog.runtime.memory_disk import MemoryDisk
from tidelog.runtime.randomness import SystemRandomness
from tidelog.runtime.socket_network import SocketNetwork
from tidelog.runtime.turns import Turns
from tidelog.runtime.workers import InlineWorkers, ThreadWorkers
from tidelog.server.broker import Broker
from tidelog.server.seams import WORKER_THREADS, Seams
from tidelog.store.interface import Store
from tidelog.store.memory import MemoryStore, MemoryStoreState
from tidelog.testing.machine_seams import MachineDisk, MachineNetwork
from tidelog.testing.processes import BrokerProcess
from tidelog.types import BrokerId

LOOPBACK = "127.0.0.1"
MEMORY_DIRECTORY = "/broker"
KNOWN_TO_ALL_S = 10.0
MAX_REPLICAS = 3


class ReservedPort:
    """A free port, bound for as long as the cluster exists: nobody gets it while its broker is away."""

    def __init__(self) -> None:
        self._socket = socket.socket()
        # With this option on both sockets the broker can listen on the port too.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind((LOOPBACK, 0))
        self.number: int = self._socket.getsockname()[1]

    def close(self) -> None:
        self._socket.close()


@dataclass(slots=True, eq=False)
class Machine:
    """Host of one broker: port and disk survive the broker."""

    broker_id: BrokerId
    port: ReservedPort
    directory: Path | None
    disk: MemoryDisk | MachineDisk
    process: BrokerProcess | None = None
    broker: Broker | None = None
    network: MachineNetwork | None = None
    seams: Seams | None = None
    sessions: list[int] = field(default_factory=list)


class Machines:
    """All brokers of a cluster. Methods run on the cluster's event loop."""

    def __init__(self, brokers: int, directory: Path | None, settings: Mapping[str, str]) -> None:
        self._settings = {**fast_settings(brokers), **settings}
        self._store_state = MemoryStoreState()
        self._killed: list[BrokerProcess] = []
        self._machines: dict[BrokerId, Machine] = {}
        for broker_id in range(1, brokers + 1):
            place = None if directory is None else directory / f"broker-{broker_id}"
            self._machines[broker_id] = Machine(broker_id, ReservedPort(), place, _new_disk(place))

    @property
    def addresses(self) -> list[str]:
        return [f"{LOOPBACK}:{machine.port.number}" for machine in self._machines.values()]

    def ids(self) -> list[BrokerId]:
        return list(self._machines)

    def running(self) -> list[BrokerId]:
        return [machine.broker_id for machine in self._machines.values() if machine.broker is not None]

    # Starting

    async def open(self) -> None:
        """Start all brokers on empty disks."""
        self._store_state = MemoryStoreState()
        await _put_in_use(self._store_state)
        await self.start(self.ids())

    async def start(self, broker_ids: Iterable[BrokerId]) -> None:
        """Start brokers together, and wait until all running brokers know each other."""
        starts = [self._start(self._machines[broker_id]) for broker_id in broker_ids]
        for outcome in await asyncio.gather(*starts, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome
        running = [machine.broker for machine in self._machines.values() if machine.broker is not None]
        expected = {broker.broker_id for broker in running}
        for broker in running:
            await broker.cluster.wait_until(lambda image: expected <= image.brokers.keys(), KNOWN_TO_ALL_S)

    async def _start(self, machine: Machine) -> None:
        settings = self._broker_settings(machine)
        seams = self._seams_of(machine, settings)
        process = machine.process = BrokerProcess()
        try:
            machine.broker = await process.start(Broker.start(settings, seams))
        except BaseException:
            machine.process = None
            raise

    def _broker_settings(self, machine: Machine) -> BrokerSettings:
        given = {
            **self._settings,
            "broker.id": str(machine.broker_id),
            "listeners": f"PLAINTEXT://{LOOPBACK}:{machine.port.number}",
            "log.dirs": str(machine.directory or MEMORY_DIRECTORY),
        }
        return load_broker_settings(None, [f"{name}={value}" for name, value in given.items()])

    def _seams_of(self, machine: Machine, settings: BrokerSettings) -> Seams:
        async def open_store() -> Store:
            store = MemoryStore(self._store_state)
            machine.sessions.append(store.session_id)
            return store

        clock = SystemClock()
        turns = Turns(clock.monotonic)
        machine.network = MachineNetwork(SocketNetwork(settings.socket_request_max_bytes, turns=turns))
        machine.seams = Seams(
            clock=clock,
            disk=machine.disk,
            network=machine.network,
            randomness=SystemRandomness(),
            # Nothing blocks in memory, and a thread would only add its hand-over.
            workers=InlineWorkers() if machine.directory is None else ThreadWorkers("tidelog-testing", WORKER_THREADS),
            open_store=open_store,
            turns=turns,
        )
        return machine.seams

    # Stopping

    async def stop(self, broker_id: BrokerId) -> None:
        """Controlled shutdown, as on SIGTERM."""
        machine = self._machines[broker_id]
        assert machine.broker is not None
        assert machine.process is not None
        await machine.process.start(machine.broker.stop())
        machine.process = machine.broker = None

    def kill(self, broker_id: BrokerId) -> None:
        """kill -9: what was written is there after the next start, also if it was not synced."""
        machine = self._machines[broker_id]
        assert machine.process is not None
        assert machine.network is not None
        assert machine.seams is not None
        machine.process.kill()
        self._killed.append(machine.process)
        machine.process = machine.broker = None
        machine.network.power_off()
        machine.seams.close()
        _release_locks(machine.disk)
        if machine.sessions and machine.sessions[-1] in self._store_state.sessions:
            self._store_state.crash(machine.sessions[-1])

    async def reset(self) -> None:
        """New brokers on empty disks with the same ids and ports, and an empty store."""
        await self._discard_all()
        for machine in self._machines.values():
            if machine.directory is not None:
                shutil.rmtree(machine.directory, ignore_errors=True)
            machine.disk = _new_disk(machine.directory)
            machine.sessions.clear()
        await self.open()

    async def close(self) -> None:
        """Records in memory go away with the cluster; files are left in good order."""
        for machine in self._machines.values():
            if machine.broker is not None and machine.directory is not None:
                await self.stop(machine.broker_id)
        await self._discard_all()

    def release_ports(self) -> None:
        for machine in self._machines.values():
            machine.port.close()

    async def _discard_all(self) -> None:
        for machine in self._machines.values():
            if machine.process is not None:
                self.kill(machine.broker_id)
        killed, self._killed = self._killed, []
        for process in killed:
            await process.discard()


async def _put_in_use(state: MemoryStoreState) -> None:
    """Say in the store that there are no logs to take over; brokers would look for some, and wait for each other."""
    store = MemoryStore(state)
    await prepare_store(store)
    await find_cluster_id(store, SystemRandomness(), None)
    found = await read_store_state(store)
    await store.set(znodes.CLUSTER_ID, znodes.encode_cluster(found.node._replace(takeover=TakeoverState.DONE)))
    await store.close()


def _new_disk(directory: Path | None) -> MemoryDisk | MachineDisk:
    return MachineDisk() if directory is not None else MemoryDisk(SystemClock())


def _release_locks(disk: MemoryDisk | MachineDisk) -> None:
    if isinstance(disk, MachineDisk):
        disk.release_locks()
    else:
        disk.locked_paths.clear()


def fast_settings(brokers: int) -> dict[str, str]:
    """Defaults of a test cluster: internal topics are small, and a group does not wait for more members."""
    replicas = str(min(brokers, MAX_REPLICAS))
    return {
        "default.replication.factor": replicas,
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": str(min(brokers, 2)),
    }
