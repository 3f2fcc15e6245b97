"""Fault injection for simulated clusters: applies the events of a fault schedule, and repairs what they broke."""

import asyncio
import errno
from collections.abc import Callable

from tidelog.cluster import znodes
from tidelog.runtime.memory_disk import NEEDS_DESCRIPTOR, PLENTY_BYTES
from tidelog.runtime.memory_network import CLIENT_HOST
from tidelog.runtime.randomness import SeededRandomness
from tidelog.runtime.workers import SimulatedWorkers
from tidelog.simulation.cluster import (
    DEATH_IS_NOTICED_AFTER_S,
    LOG_DIRECTORIES,
    SESSION_TIMEOUT_MS,
    SimulatedCluster,
    host_of,
)
from tidelog.simulation.failovers import Failovers
from tidelog.simulation.fault_schedule import CONTROLLER, LEADER, FaultEvent
from tidelog.simulation.inspection import registered_epoch, stored_partitions
from tidelog.simulation.latency import Latencies
from tidelog.simulation.lost_disks import LostDisks
from tidelog.simulation.lost_store import LostStore
from tidelog.simulation.processes import Process, ProcessState
from tidelog.simulation.supervisor import BrokerState, Supervisor
from tidelog.simulation.swarm import LARGEST_SKEW_MS, SwarmConfig
from tidelog.simulation.untimely_losses import UntimelyLosses
from tidelog.store.interface import NO_OWNER, Delete
from tidelog.store.memory import StepFaultKind
from tidelog.types import NO_BROKER, BrokerId

NOTICED_AFTER_S = (DEATH_IS_NOTICED_AFTER_S, DEATH_IS_NOTICED_AFTER_S, 1.0, SESSION_TIMEOUT_MS / 1000)
SLOW_LINK_S = 2.0
SLOW_STORE_S = 1.0
LONGEST_STALL_S = 0.5
LONGEST_ANSWER_S = 0.3
SLOW_DISK_S = 3.0
LARGEST_JUMP_MS = 600_000
STEPS_AHEAD = 6
FULL_DISK_ROOM_BYTES = 2000
FAILING_OPERATIONS = ("append", "sync", "truncate", "rename", "write_file_atomically", "open", "read")


class FaultInjector:
    """An event that cannot be applied now is passed over, so that a schedule is valid whatever is left out of it."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        supervisor: Supervisor,
        config: SwarmConfig,
        latencies: Latencies,
        tell: Callable[[str], None],
    ) -> None:
        self._cluster = cluster
        self._supervisor = supervisor
        self._states = supervisor.states
        self._config = config
        self._latencies = latencies
        self._tell = tell
        self._randomness = SeededRandomness(config.seed * 7919 + 2)
        self._lost_disks = LostDisks(cluster, config, lambda: supervisor.well)
        self._lost_store = LostStore(cluster, lambda: bool(self._lost_disks.lost))
        self._untimely = UntimelyLosses(
            cluster, supervisor, self._lost_disks.may_lose, self._wipe_now, self._cut_power_now, tell
        )
        self._answer_delays_s: dict[BrokerId, float] = {}
        cluster.store_state.answer_delay_s = self._answer_delay_s
        self._failovers = Failovers(cluster, supervisor, tell, lambda: self._is_over, self._answer_delays_s)
        self._apply: dict[str, Callable[[FaultEvent], None]] = {
            "kill": self._kill,
            "kill_all": self._kill_all,
            "stop": self._stop,
            "freeze": self._freeze,
            "kill_while_starting": self._kill_while_starting,
            "cut_link": self._cut_link,
            "one_way_cut": self._cut_one_way,
            "isolate": self._isolate,
            "isolate_and_kill": self._isolate_and_kill,
            "cut_clients": self._cut_clients,
            "slow_link": self._slow_link,
            "reset_link": self._reset_link,
            "cut_store": self._cut_store,
            "end_session": self._end_session,
            "store_step": self._break_store_step,
            "slow_store": self._slow_store,
            "power_cut": self._lose_disk,
            "lost_disk": self._lose_disk,
            "disk_error": self._fail_disk,
            "disk_full": self._fill_disk,
            "no_descriptors": self._take_descriptors,
            "slow_disk": self._slow_disk,
            "clock_jump": self._jump_clock,
            "depose_controller": self._depose_controller,
            "lost_store": self._lose_store,
            "turns": self._take_turns,
            "unheard_failovers": self._fail_over_unheard,
            "late_joining": self._join_late,
            "late_rejoining": self._rejoin_late,
            "short_stop": self._stop_short,
            "late_election": self._lose_disk_in_time,
            "last_standing": self._lose_disk_in_time,
        }
        self._repairs: dict[int, Callable[[], None]] = {}
        self._is_over = False
        self.applied: list[int] = []

    def apply(self, event: FaultEvent) -> None:
        self._apply[event.kind](event)

    def repair_all(self) -> None:
        """End all faults now; brokers that are down start."""
        self._tell("all faults end")
        self._is_over = True
        repairs, self._repairs = self._repairs, {}
        for repair in repairs.values():
            repair()
        self._cluster.mend()
        self._cluster.store_state.forget_step_faults()
        self._supervisor.bring_all_up()

    # ---- whom it strikes

    def _who(self, event: FaultEvent) -> BrokerId:
        match event.who:
            case found if found == LEADER:
                found = next((each.state.leader for _, each in stored_partitions(self._cluster.store_state)), NO_BROKER)
            case found if found == CONTROLLER:
                node = self._cluster.store_state.find(znodes.CONTROLLER)
                found = NO_BROKER if node is None else znodes.decode_controller(node.data)
        return found if found in self._states else event.other

    def _happened(self, event: FaultEvent, what: str) -> None:
        self.applied.append(event.number)
        self._tell(f"[{event.number}] {what}")

    def _repair_later(self, event: FaultEvent, repair: Callable[[], None]) -> None:
        self._repairs[event.number] = repair
        self._supervisor.spawn(self._repairing(event))

    async def _repairing(self, event: FaultEvent) -> None:
        await asyncio.sleep(event.for_s)
        repair = self._repairs.pop(event.number, None)
        if repair is not None:
            repair()

    # ---- processes

    def _kill(self, event: FaultEvent) -> None:
        broker_id = self._who(event)
        if self._states[broker_id] is not BrokerState.DOWN:
            self._happened(event, f"kill -9 broker {broker_id}, for {event.for_s} s")
            self._kill_for(broker_id, event.for_s, _noticed_after_s(event))

    def _kill_for(self, broker_id: BrokerId, for_s: float, noticed_after_s: float = DEATH_IS_NOTICED_AFTER_S) -> None:
        self._supervisor.kill(broker_id, noticed_after_s)
        self._supervisor.start_after(broker_id, for_s)

    def _kill_all(self, event: FaultEvent) -> None:
        self._happened(event, f"kill -9 all brokers, the first starts after {event.for_s} s")
        for number, (broker_id, state) in enumerate(self._states.items()):
            if state is not BrokerState.DOWN:
                self._kill_for(broker_id, event.for_s * (1 + (number + event.detail) % 3), _noticed_after_s(event))

    def _stop(self, event: FaultEvent) -> None:
        broker_id = self._who(event)
        if broker_id in self._supervisor.well:
            self._happened(event, f"stop broker {broker_id}, for {event.for_s} s")
            self._supervisor.stop(broker_id, event.for_s)

    def _freeze(self, event: FaultEvent) -> None:
        broker_id = self._who(event)
        if broker_id in self._supervisor.well:
            self._happened(event, f"SIGSTOP broker {broker_id}, for {event.for_s} s")
            process = self._cluster.machines[broker_id].process
            self._cluster.freeze(broker_id)
            self._repair_later(event, lambda: self._thaw(broker_id, process))

    def _thaw(self, broker_id: BrokerId, process: Process | None) -> None:
        if process is not None and process.state is ProcessState.STOPPED:
            self._tell(f"SIGCONT broker {broker_id}")
            self._cluster.thaw(broker_id)

    def _kill_while_starting(self, event: FaultEvent) -> None:
        broker_id, after_s = self._who(event), event.detail % 100 / 1000
        if self._states[broker_id] is not BrokerState.STOPPING:
            self._happened(event, f"kill -9 broker {broker_id}, and again {after_s} s after it begins to start")
            self._kill_for(broker_id, 0.0)
            self._supervisor.spawn(self._starting_in_vain(broker_id, after_s, event))

    async def _starting_in_vain(self, broker_id: BrokerId, after_s: float, event: FaultEvent) -> None:
        await asyncio.sleep(after_s)
        if self._states[broker_id] is BrokerState.STARTING:
            self._kill_for(broker_id, event.for_s, _noticed_after_s(event))

    # ---- links

    def _cut_link(self, event: FaultEvent) -> None:
        one, other = host_of(self._who(event)), host_of(event.other)
        if one != other:
            self._happened(event, f"cut the link between {one} and {other}, for {event.for_s} s")
            self._cluster.network.cut(one, other)
            self._mend_later(event, one, other)

    def _mend_later(self, event: FaultEvent, one: str, *others: str) -> None:
        def mend() -> None:
            for other in others:
                self._cluster.network.mend(one, other)

        self._repair_later(event, mend)

    def _cut_one_way(self, event: FaultEvent) -> None:
        one, other = host_of(self._who(event)), host_of(event.other)
        if event.detail % 2:
            one, other = other, one
        if one != other:
            self._happened(event, f"nothing that {one} sends reaches {other}, for {event.for_s} s")
            self._cluster.network.cut_one_way(one, other)
            self._mend_later(event, one, other)

    def _isolate(self, event: FaultEvent) -> None:
        broker_id = self._who(event)
        self._happened(event, f"cut broker {broker_id} off from its peers, for {event.for_s} s")
        self._cluster.cut_off_from_peers(broker_id)
        others = [host_of(other) for other in self._states if other != broker_id]
        self._mend_later(event, host_of(broker_id), *others)

    def _isolate_and_kill(self, event: FaultEvent) -> None:
        """What it takes meanwhile nobody else has."""
        broker_id = self._who(event)
        if broker_id in self._supervisor.well:
            self._isolate(event)
            self._supervisor.spawn(self._killing_later(broker_id, event))

    async def _killing_later(self, broker_id: BrokerId, event: FaultEvent) -> None:
        await asyncio.sleep(event.detail % 1000 / 1000)
        if broker_id in self._supervisor.well and not self._is_over:
            self._tell(f"kill -9 broker {broker_id}, for {event.for_s} s")
            self._kill_for(broker_id, event.for_s)

    def _cut_clients(self, event: FaultEvent) -> None:
        broker_id = self._who(event)
        self._happened(event, f"cut broker {broker_id} off from clients, for {event.for_s} s")
        self._cluster.cut_off_from_clients(broker_id)
        self._mend_later(event, host_of(broker_id), CLIENT_HOST)

    def _slow_link(self, event: FaultEvent) -> None:
        one = host_of(self._who(event))
        other = CLIENT_HOST if event.detail % 4 == 0 else host_of(event.other)
        if one != other:
            delay_s = SLOW_LINK_S * (event.detail % 100) / 100
            self._happened(event, f"what {one} sends to {other} takes {delay_s} s longer, for {event.for_s} s")
            self._cluster.network.slow_down(one, other, delay_s)
            self._mend_later(event, one, other)

    def _reset_link(self, event: FaultEvent) -> None:
        one = host_of(self._who(event))
        other = CLIENT_HOST if event.detail % 2 else host_of(event.other)
        if one != other:
            self._happened(event, f"connections between {one} and {other} break")
            self._cluster.network.reset(one, other)

    # ---- the coordination store

    def _session_of(self, broker_id: BrokerId) -> int | None:
        sessions, store = self._cluster.machines[broker_id].sessions, self._cluster.store_state
        if not sessions or sessions[-1] not in store.sessions or store.is_cut_off(sessions[-1]):
            return None
        return sessions[-1]

    def _cut_store(self, event: FaultEvent) -> None:
        broker_id = self._who(event)
        session, store = self._session_of(broker_id), self._cluster.store_state
        if session is not None:
            self._happened(event, f"cut broker {broker_id} off from the store, for {event.for_s} s")
            store.cut_off(session)
            self._repair_later(event, lambda: self._reconnect(broker_id, session))

    def _reconnect(self, broker_id: BrokerId, session: int) -> None:
        process = self._cluster.machines[broker_id].process
        if process is not None and process.state is ProcessState.RUNNING:  # a frozen one comes back when it goes on
            self._cluster.store_state.reconnect(session)

    def _end_session(self, event: FaultEvent) -> None:
        broker_id = self._who(event)
        session = self._session_of(broker_id)
        if session is not None:
            self._happened(event, f"the store ends the session of broker {broker_id}")
            self._cluster.store_state.expire(session)

    def _break_store_step(self, event: FaultEvent) -> None:
        broker_id = self._who(event)
        session = self._session_of(broker_id)
        if session is not None:
            kinds = list(StepFaultKind)
            kind, writes_before = kinds[event.detail % len(kinds)], event.detail // len(kinds) % STEPS_AHEAD
            told = kind.name.lower().replace("_", " ")
            self._happened(event, f"store: {told} at write {writes_before + 1} from now of broker {broker_id}")
            self._cluster.store_state.break_step(session, kind, writes_before, event.for_s)

    def _slow_store(self, event: FaultEvent) -> None:
        delay_s = SLOW_STORE_S * (event.detail % 100) / 100
        self._happened(event, f"the store takes {delay_s} s longer, for {event.for_s} s")
        self._latencies.store_delay_s = delay_s
        self._repair_later(event, self._store_is_fast)

    def _store_is_fast(self) -> None:
        self._latencies.store_delay_s = 0.0

    def _rejoin_late(self, event: FaultEvent) -> None:
        """A broker registers anew and learns of it late: others know of it before."""
        broker_id, delay_s = self._who(event), LONGEST_ANSWER_S * (1 + event.detail % 100) / 100
        session = self._session_of(broker_id)
        if session is not None:
            self._happened(event, f"the session of broker {broker_id} ends, answers take {delay_s} s until it is back")
            self._supervisor.spawn(self._answer_late_until_registered(broker_id, delay_s))
            self._cluster.store_state.expire(session)

    async def _answer_late_until_registered(self, broker_id: BrokerId, delay_s: float) -> None:
        self._answer_delays_s[broker_id] = delay_s
        while registered_epoch(self._cluster.store_state, broker_id) is None and not self._is_over:  # noqa: ASYNC110
            await asyncio.sleep(delay_s)
        self._answer_delays_s.pop(broker_id, None)

    def _answer_delay_s(self, session_id: int) -> float:
        for broker_id, delay_s in self._answer_delays_s.items():
            if session_id in self._cluster.machines[broker_id].sessions[-1:]:
                return delay_s
        return 0.0

    def _depose_controller(self, event: FaultEvent) -> None:
        """As an operator does who wants another one: the session goes on, and so does a write that is on its way."""
        store = self._cluster.store_state
        node = store.find(znodes.CONTROLLER)
        if node is not None:
            delay_s = LONGEST_STALL_S * (event.detail % 100) / 100
            self._happened(event, f"the controller is deposed while its next write takes {delay_s} s longer")
            store.stall_next_write(node.owner, delay_s, self._remove_controller)

    def _remove_controller(self) -> None:
        store = self._cluster.store_state
        if store.find(znodes.CONTROLLER) is not None:
            self._tell(f"{znodes.CONTROLLER} is deleted")
            store.perform([Delete(znodes.CONTROLLER)], NO_OWNER)

    def _lose_store(self, event: FaultEvent) -> None:
        if self._lost_store.may_happen():
            self._happened(event, "the store is lost, and an empty one is in its place")
            self._lost_store.happen()

    # ---- disks

    def _lose_disk(self, event: FaultEvent) -> None:
        """A power cut, or a new and empty disk: both lose data, so I4 allows only so many of them at a time."""
        broker_id = self._who(event)
        if not self._lost_disks.may_lose(broker_id):
            return
        if event.kind == "power_cut":
            self._happened(event, f"cut the power of broker {broker_id}, for {event.for_s} s")
            self._cut_power(broker_id, event.for_s)
        else:
            self._happened(event, f"broker {broker_id} loses its disk, for {event.for_s} s")
            self._wipe(broker_id, event.for_s)

    def _cut_power(self, broker_id: BrokerId, for_s: float = 0.0) -> None:
        self._lost_disks.lose(broker_id)
        self._cluster.cut_power_badly(broker_id, self._randomness, self._config.damage)
        self._supervisor.set_down(broker_id)
        self._supervisor.start_after(broker_id, for_s)

    def _wipe(self, broker_id: BrokerId, for_s: float = 0.0) -> None:
        self._lost_disks.lose(broker_id)
        self._supervisor.kill(broker_id)
        self._cluster.wipe(broker_id)
        self._supervisor.set_down(broker_id)
        self._supervisor.start_after(broker_id, for_s)

    def _lose_disk_in_time(self, event: FaultEvent) -> None:
        """At the moment when it hurts most."""
        cast = self._untimely.cast()
        if cast is None:
            return
        name, story = {
            "late_election": ("whoever is elected next, late", self._untimely.elect_late),
            "last_standing": ("the last of three replicas", self._untimely.lose_the_last),
        }[event.kind]
        self._happened(event, f"broker {cast.next_leader} is to lose its disk: {name}")
        self._supervisor.spawn(story(cast, event))

    def _wipe_now(self, broker_id: BrokerId) -> None:
        self._tell(f"broker {broker_id} loses its disk")
        self._wipe(broker_id)

    def _cut_power_now(self, broker_id: BrokerId) -> None:
        self._tell(f"cut the power of broker {broker_id}")
        self._cut_power(broker_id)

    def _directory_of(self, event: FaultEvent) -> str:
        return LOG_DIRECTORIES[event.detail % self._config.log_directories]

    def _fail_disk(self, event: FaultEvent) -> None:
        broker_id, directory = self._who(event), self._directory_of(event)
        operation = FAILING_OPERATIONS[event.detail // 10 % len(FAILING_OPERATIONS)]
        self._happened(event, f"{operation} fails on {directory} of broker {broker_id}, for {event.for_s} s")
        self._inject(event, broker_id, errno.EIO, directory, (operation,))

    def _inject(
        self, event: FaultEvent, broker_id: BrokerId, error_number: int, path: str, operations: tuple[str, ...]
    ) -> None:
        disk = self._cluster.machines[broker_id].disk
        fault = disk.inject(error_number, path, operations, calls_before=event.detail // 100 % 4)

        def end() -> None:
            disk.faults.remove(fault)
            self._supervisor.restart_if_offline(broker_id)

        self._repair_later(event, end)

    def _fill_disk(self, event: FaultEvent) -> None:
        broker_id = self._who(event)
        disk = self._cluster.machines[broker_id].disk
        disk.capacity_bytes = disk.used_bytes + event.detail % FULL_DISK_ROOM_BYTES
        self._happened(event, f"the disk of broker {broker_id} is full, for {event.for_s} s")

        def end() -> None:
            disk.capacity_bytes = PLENTY_BYTES
            self._supervisor.restart_if_offline(broker_id)

        self._repair_later(event, end)

    def _take_descriptors(self, event: FaultEvent) -> None:
        broker_id = self._who(event)
        self._happened(event, f"broker {broker_id} has no descriptors left, for {event.for_s} s")
        self._inject(event, broker_id, errno.EMFILE, "", NEEDS_DESCRIPTOR)

    def _stop_short(self, event: FaultEvent) -> None:
        """A clean stop while the log of one partition cannot be closed for want of descriptors."""
        broker_id = self._who(event)
        broker = self._cluster.machines[broker_id].broker
        if broker_id in self._supervisor.well and broker is not None:
            paths = sorted(partition.log.path for partition in broker.replicas)
            path = paths[event.detail % len(paths)] if paths else ""
            self._happened(event, f"stop broker {broker_id}, for {event.for_s} s, without descriptors for {path}")
            self._inject(event, broker_id, errno.EMFILE, path, NEEDS_DESCRIPTOR)
            self._supervisor.stop(broker_id, event.for_s)

    def _slow_disk(self, event: FaultEvent) -> None:
        broker_id = self._who(event)
        workers = self._cluster.machines[broker_id].workers
        if isinstance(workers, SimulatedWorkers):
            usual_s, workers.longest_delay_s = self._config.longest_worker_delay_s, SLOW_DISK_S
            self._happened(event, f"the disk of broker {broker_id} is slow, for {event.for_s} s")
            self._repair_later(event, lambda: setattr(workers, "longest_delay_s", usual_s))

    # ---- failovers in a row

    def _take_turns(self, event: FaultEvent) -> None:
        pair = self._failovers.pair(event)
        if pair is not None:
            self._happened(event, f"brokers {pair[0]} and {pair[1]} run in turn, and nobody else")
            self._failovers.begin(self._failovers.take_turns(pair, event))

    def _fail_over_unheard(self, event: FaultEvent) -> None:
        trio = self._failovers.trio()
        if trio is not None:
            self._happened(event, f"broker {trio.deaf} hears nothing from the controller while leaders change")
            self._failovers.begin(self._failovers.fail_over_unheard(trio, event))

    def _join_late(self, event: FaultEvent) -> None:
        trio = self._failovers.trio(with_controller=True)
        if trio is not None:
            self._happened(event, f"broker {trio.deaf} joins, and broker {trio.leader} learns of it late")
            self._failovers.begin(self._failovers.join_late(trio, event))

    # ---- clocks

    def _jump_clock(self, event: FaultEvent) -> None:
        broker_id = self._who(event)
        jump_ms = (event.detail * 2 - 10_000) * LARGEST_JUMP_MS // 10_000
        self._happened(event, f"the clock of broker {broker_id} jumps by {jump_ms} ms")
        clock = self._cluster.machines[broker_id].clock
        clock.offset_ms = max(-LARGEST_SKEW_MS, min(clock.offset_ms + jump_ms, LARGEST_SKEW_MS))


def _noticed_after_s(event: FaultEvent) -> float:
    return NOTICED_AFTER_S[event.detail % len(NOTICED_AFTER_S)]
