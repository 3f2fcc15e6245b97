"""Brokers of a test cluster on one event loop: production classes over real sockets, and what survives a kill."""

import asyncio
import logging
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
from tidelog.runtime.randomness import SystemRandomness
from tidelog.runtime.socket_network import SocketNetwork
from tidelog.runtime.turns import Turns
from tidelog.runtime.workers import InlineWorkers, ThreadWorkers
from tidelog.server.broker import Broker
from tidelog.server.seams import WORKER_THREADS, Seams
from tidelog.store.interface import Store
from tidelog.store.memory import MemoryStore, MemoryStoreState
from tidelog.testing.disks import SlowableWorkers, TestDisk, new_disk, release_locks
from tidelog.testing.killable_brokers import BrokerProcess, ProcessLoop
from tidelog.testing.links import MachineNetwork, Wiring
from tidelog.testing.moved_clock import MovedClock
from tidelog.testing.request_script import RequestScript
from tidelog.testing.scripted_broker import ScriptedBroker
from tidelog.types import BrokerId

LOOPBACK = "127.0.0.1"
MEMORY_DIRECTORY = "/broker"
MUTUAL_METADATA_TIMEOUT_S = 10.0
"""Time for all running brokers to see each other in their metadata."""
MAX_REPLICAS = 3

logger = logging.getLogger(__name__)


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
    disk: TestDisk
    process: BrokerProcess | None = None
    broker: Broker | None = None
    network: MachineNetwork | None = None
    workers: SlowableWorkers | None = None
    seams: Seams | None = None
    has_ended: asyncio.Event = field(default_factory=asyncio.Event)
    sessions: list[int] = field(default_factory=list)
    disk_delay_s: float = 0.0
    is_paused: bool = False

    def set_disk_delay(self, delay_s: float) -> None:
        """Delay the disk of this broker, and of those that start later on this host."""
        self.disk_delay_s = delay_s
        if self.network is not None and self.workers is not None:
            self.network.disk_delay_s = self.workers.delay_s = delay_s


class Machines:
    """All brokers of a cluster. Methods run on the cluster's event loop."""

    def __init__(self, brokers: int, directory: Path | None, settings: Mapping[str, str]) -> None:
        self._settings = {**fast_settings(brokers), **settings}
        self.store_state = MemoryStoreState()
        self._killed: list[BrokerProcess] = []
        self.machines: dict[BrokerId, Machine] = {}
        self._watches: set[asyncio.Task[None]] = set()
        self.clock = MovedClock()
        self.script = RequestScript()
        self.wiring = Wiring(self.script)
        for broker_id in range(1, brokers + 1):
            place = None if directory is None else directory / f"broker-{broker_id}"
            port = ReservedPort()
            self.machines[broker_id] = Machine(broker_id, port, place, new_disk(place, self.clock))
            self.wiring.broker_of_port[port.number] = broker_id

    @property
    def addresses(self) -> list[str]:
        return [f"{LOOPBACK}:{machine.port.number}" for machine in self.machines.values()]

    def ids(self) -> list[BrokerId]:
        return list(self.machines)

    def running(self) -> list[BrokerId]:
        return [machine.broker_id for machine in self.machines.values() if machine.broker is not None]

    def is_up_to_date(self, broker_id: BrokerId) -> bool:
        """Running, and not replaced by the others because its session has ended."""
        machine = self.machines[broker_id]
        is_known = bool(machine.sessions) and machine.sessions[-1] in self.store_state.sessions
        return machine.broker is not None and not machine.is_paused and is_known

    # ---- starting

    async def open(self) -> None:
        """Start all brokers on empty disks."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, ProcessLoop)
        self.clock.attach(loop)
        self.store_state = MemoryStoreState()
        await _put_in_use(self.store_state)
        await self.start(self.ids())

    async def start(self, broker_ids: Iterable[BrokerId]) -> None:
        """Start brokers together, and wait until all running brokers know each other."""
        starts = [self._start(self.machines[broker_id]) for broker_id in broker_ids]
        for outcome in await asyncio.gather(*starts, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome
        running = [machine.broker for machine in self.machines.values() if machine.broker is not None]
        expected = {broker.broker_id for broker in running}
        for broker in running:
            await broker.cluster.wait_until(lambda image: expected <= image.brokers.keys(), MUTUAL_METADATA_TIMEOUT_S)

    async def _start(self, machine: Machine) -> None:
        settings = self._broker_settings(machine)
        seams = self._seams_of(machine, settings)
        process = machine.process = BrokerProcess()
        try:
            machine.broker = await process.start(ScriptedBroker.start(settings, seams))
        except BaseException:
            machine.process = None
            raise
        machine.has_ended = asyncio.Event()
        watch = asyncio.get_running_loop().create_task(self._watch(machine, machine.broker, machine.has_ended))
        self._watches.add(watch)
        watch.add_done_callback(self._watches.discard)

    async def _watch(self, machine: Machine, broker: Broker, has_ended: asyncio.Event) -> None:
        """A broker with a fatal error, such as a lost disk, ends as its process would."""
        reason = await broker.run_until(has_ended)
        if reason is not None and machine.broker is broker:
            logger.error("broker failed broker_id=%d reason=%s", machine.broker_id, reason)
            self.kill(machine.broker_id)

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
            store = MemoryStore(self.store_state)
            machine.sessions.append(store.session_id)
            return store

        turns = Turns(self.clock.monotonic)
        sockets = SocketNetwork(settings.socket_request_max_bytes, turns=turns)
        machine.network = MachineNetwork(sockets, machine.broker_id, self.wiring, self.clock)
        # Nothing blocks in memory, and a thread would only add its hand-over.
        in_memory = machine.directory is None
        machine.workers = SlowableWorkers(
            InlineWorkers() if in_memory else ThreadWorkers("tidelog-testing", WORKER_THREADS)
        )
        machine.set_disk_delay(machine.disk_delay_s)
        machine.seams = Seams(
            clock=self.clock,
            disk=machine.disk,
            network=machine.network,
            randomness=SystemRandomness(),
            workers=machine.workers,
            open_store=open_store,
            turns=turns,
        )
        return machine.seams

    # ---- stopping

    async def stop(self, broker_id: BrokerId) -> None:
        """Controlled shutdown, as on SIGTERM."""
        machine = self.machines[broker_id]
        assert machine.broker is not None
        assert machine.process is not None
        machine.has_ended.set()
        await machine.process.start(machine.broker.stop())
        machine.process = machine.broker = None

    def kill(self, broker_id: BrokerId) -> None:
        """kill -9: what was written is there after the next start, also if it was not synced."""
        machine = self.machines[broker_id]
        assert machine.process is not None
        assert machine.network is not None
        assert machine.seams is not None
        machine.has_ended.set()
        machine.process.kill()
        self._killed.append(machine.process)
        machine.process = machine.broker = None
        machine.is_paused = False
        self.wiring.resume(broker_id)
        machine.network.power_off()
        machine.seams.close()
        release_locks(machine.disk)
        if machine.sessions and machine.sessions[-1] in self.store_state.sessions:
            self.store_state.crash(machine.sessions[-1])

    def replace_disk(self, machine: Machine) -> None:
        """Give a host without a running broker an empty disk."""
        if machine.directory is not None:
            shutil.rmtree(machine.directory, ignore_errors=True)
        machine.disk = new_disk(machine.directory, self.clock)

    async def reset(self) -> None:
        """New brokers on empty disks with the same ids and ports, and an empty store."""
        await self._discard_all()
        for machine in self.machines.values():
            self.replace_disk(machine)
            machine.sessions.clear()
            machine.disk_delay_s = 0.0
        self.script.clear()
        self.wiring.heal()
        self.clock.reset()
        await self.open()

    async def close(self) -> None:
        """Records in memory go away with the cluster; files are left in good order."""
        for machine in self.machines.values():
            if machine.broker is not None and machine.directory is not None and not machine.is_paused:
                await self.stop(machine.broker_id)
        await self._discard_all()

    def release_ports(self) -> None:
        for machine in self.machines.values():
            machine.port.close()

    async def _discard_all(self) -> None:
        for machine in self.machines.values():
            if machine.process is not None:
                self.kill(machine.broker_id)
        killed, self._killed = self._killed, []
        for process in killed:
            await process.discard()
        if self._watches:
            await asyncio.wait(self._watches)


async def _put_in_use(state: MemoryStoreState) -> None:
    """Mark in the store that there are no logs to take over: otherwise brokers would wait for all inventories."""
    store = MemoryStore(state)
    await prepare_store(store)
    await find_cluster_id(store, SystemRandomness(), None)
    found = await read_store_state(store)
    await store.set(znodes.CLUSTER_ID, znodes.encode_cluster(found.node._replace(takeover=TakeoverState.DONE)))
    await store.close()


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
