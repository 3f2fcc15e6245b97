"""The fault model: each fault does what it says, within what is promised, and is undone in the end."""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import Context
from dataclasses import replace

import pytest

from tests.simulation.scenario import (
    all_well_again,
    controller_of,
    create_topic,
    in_sync,
    produce,
    read_all,
    replica,
    stored,
    wait_for,
)
from tidelog.cluster import znodes
from tidelog.config.broker import BrokerSettings
from tidelog.runtime.randomness import SeededRandomness
from tidelog.runtime.workers import SimulatedWorkers
from tidelog.server.broker import Broker
from tidelog.server.membership import NOT_REGISTERED
from tidelog.server.seams import Seams
from tidelog.simulation.cluster import SimulatedCluster
from tidelog.simulation.disk_faults import SLOW_DISK_S
from tidelog.simulation.fault_schedule import FaultEvent
from tidelog.simulation.faults import FaultInjector
from tidelog.simulation.inspection import is_in_use, registered_epoch
from tidelog.simulation.invariants import Invariants, InvariantViolated
from tidelog.simulation.latency import Latencies
from tidelog.simulation.lost_disks import LostDisks
from tidelog.simulation.lost_store import QUIET_S
from tidelog.simulation.process_faults import MAX_JUMP_MS
from tidelog.simulation.processes import run_simulation
from tidelog.simulation.supervisor import BrokerState, Supervisor
from tidelog.simulation.swarm import FAULTS, MAX_SKEW_MS, draw_config
from tidelog.store.interface import Set

CONFIG = replace(draw_config(1), brokers=3, log_directories=1, min_in_sync_replicas=2, longest_worker_delay_s=0.001)


class Rig:
    """A cluster of three with a fault injector, on virtual time."""

    def __init__(self) -> None:
        self.cluster = SimulatedCluster(3)
        self.events: list[str] = []
        self.supervisor = Supervisor(self.cluster, self.events.append)
        latencies = Latencies(SeededRandomness(1), 0.0, 0.0)
        self.faults = FaultInjector(self.cluster, self.supervisor, CONFIG, latencies, self.events.append)
        self._events = 0

    def strike(self, kind: str, who: int = 1, *, other: int = 2, for_s: float = 1.0, detail: int = 0) -> bool:
        """Whether it could be applied."""
        self._events += 1
        self.faults.apply(FaultEvent(self._events, 0.0, kind, who, other, for_s, detail))
        return self._events in self.faults.applied

    async def start(self) -> None:
        await self.supervisor.start_all()
        await create_topic(self.cluster, [1, 2, 3], min_insync_replicas=2)
        await produce(self.cluster, b"a")

    async def start_with_a_free_leader(self) -> tuple[int, int, int]:
        """Controller, leader and the third broker."""
        await self.supervisor.start_all()
        controller = controller_of(self.cluster)
        leader, third = (each for each in (1, 2, 3) if each != controller)
        await create_topic(self.cluster, [leader, third, controller], min_insync_replicas=2)
        await produce(self.cluster, b"a")
        return controller, leader, third

    def lost_disks(self) -> LostDisks:
        return LostDisks(self.cluster, CONFIG, lambda: self.supervisor.healthy)


def on_rig(scenario: Callable[[Rig], Awaitable[None]]) -> None:
    async def main() -> None:
        await scenario(Rig())

    run_simulation(main())


async def _be_in_sync_again(rig: Rig, broker_id: int, earlier: int | None) -> None:
    await wait_for(lambda: registered_epoch(rig.cluster.store_state, broker_id) not in (None, earlier))
    await wait_for(lambda: in_sync(rig.cluster) == {1, 2, 3} and broker_id in rig.supervisor.healthy)
    await asyncio.sleep(1)


async def _turn(turns: int) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)


async def _be_down_and_start_after(rig: Rig, broker_id: int, for_s: float) -> None:
    await asyncio.sleep(for_s - 1)
    assert rig.supervisor.states[broker_id] is BrokerState.DOWN
    assert rig.cluster.machines[broker_id].process is None
    await wait_for(lambda: broker_id in rig.supervisor.healthy)
    assert rig.supervisor.failures == []


def test_a_broker_that_is_killed_in_the_moment_in_which_it_begins_to_start_does_not_run() -> None:
    async def scenario(rig: Rig) -> None:
        rig.supervisor.spawn(rig.supervisor._start(1))
        while rig.supervisor.states[1] is BrokerState.DOWN:  # noqa: ASYNC110
            await asyncio.sleep(0)
        rig.supervisor.kill(1)
        await asyncio.sleep(5)
        assert rig.cluster.machines[1].process is None
        assert registered_epoch(rig.cluster.store_state, 1) is None

    on_rig(scenario)


@pytest.mark.parametrize("turns", range(4))
def test_a_broker_that_is_killed_when_its_start_is_due_stays_down_as_long_as_the_kill_says(turns: int) -> None:
    async def scenario(rig: Rig) -> None:
        rig.supervisor.start_after(1, 0.0)
        await _turn(turns)
        rig.supervisor.kill(1)
        rig.supervisor.start_after(1, 5.0)
        await _be_down_and_start_after(rig, 1, 5.0)

    on_rig(scenario)


@pytest.mark.parametrize("turns", range(6))
def test_a_broker_that_is_killed_while_it_stops_stays_down_as_long_as_the_kill_says(turns: int) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.supervisor.start_all()
        rig.supervisor.stop(1, 0.0)
        await _turn(turns)
        rig.supervisor.kill(1)
        rig.supervisor.start_after(1, 5.0)
        await _be_down_and_start_after(rig, 1, 5.0)

    on_rig(scenario)


def test_a_broker_may_be_killed_in_the_moment_in_which_it_has_started() -> None:
    async def scenario(rig: Rig) -> None:
        def kill(event: str) -> None:
            if event == "broker 1 has started" and event not in rig.events:
                asyncio.get_running_loop().call_soon(rig.supervisor.kill, 1)
            rig.events.append(event)

        rig.supervisor = Supervisor(rig.cluster, kill)
        await rig.supervisor.start_all()
        rig.supervisor.start_after(1, 5.0)
        await _be_down_and_start_after(rig, 1, 5.0)

    on_rig(scenario)


def test_a_broker_that_is_killed_when_its_start_ends_is_not_on_its_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(rig: Rig) -> None:
        start = Broker.start

        async def start_and_be_killed(settings: BrokerSettings, seams: Seams) -> Broker:
            broker = await start(settings, seams)
            asyncio.get_running_loop().call_soon(rig.supervisor.kill, 1, context=Context())
            return broker

        with monkeypatch.context() as patched:
            patched.setattr(Broker, "start", start_and_be_killed)
            await rig.supervisor._start(1)
        assert rig.cluster.machines[1].broker is None
        rig.supervisor.start_after(1, 5.0)
        await _be_down_and_start_after(rig, 1, 5.0)

    on_rig(scenario)


# ---- lost disks


def test_one_disk_of_three_may_be_lost_and_no_other_until_its_broker_is_in_sync_again() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.start()
        earlier = registered_epoch(rig.cluster.store_state, 1)
        assert rig.strike("lost_disk", 1)
        assert not rig.strike("lost_disk", 2)
        assert not rig.strike("power_cut", 3)
        await _be_in_sync_again(rig, 1, earlier)
        assert rig.strike("lost_disk", 2)

    on_rig(scenario)


def test_who_lost_its_disk_may_lose_it_again() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.start()
        assert rig.strike("lost_disk", 1, for_s=0.1)
        await asyncio.sleep(0.05)
        assert rig.strike("lost_disk", 1)
        assert not rig.strike("lost_disk", 2)

    on_rig(scenario)


def test_a_broker_that_is_registered_but_not_in_sync_in_its_new_life_still_counts_as_lost() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.start()
        lost_disks = rig.lost_disks()
        lost_disks.lose(2)
        assert lost_disks.lost == {2}, "its state is of its earlier life"
        rig.supervisor.kill(2)
        rig.supervisor.start_after(2, 0.0)
        await wait_for(lambda: 2 in rig.supervisor.healthy)
        await wait_for(lambda: in_sync(rig.cluster) == {1, 2, 3})
        await asyncio.sleep(1)
        assert not lost_disks.lost

    on_rig(scenario)


def test_a_lost_disk_comes_back_empty_and_all_records_with_it() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.start()
        earlier = registered_epoch(rig.cluster.store_state, 2)
        assert rig.strike("lost_disk", 2, for_s=0.5)
        assert not rig.cluster.machines[2].disk.exists("/logs/orders-0")
        await _be_in_sync_again(rig, 2, earlier)
        assert rig.cluster.machines[2].disk.exists("/logs/orders-0")
        assert await read_all(rig.cluster) == [b"a"]

    on_rig(scenario)


# ---- clocks and slow disks


@pytest.mark.parametrize(("detail", "jump_ms"), [(0, -MAX_JUMP_MS), (5000, 0), (7500, MAX_JUMP_MS // 2)])
def test_a_clock_jumps_both_ways_and_time_that_passes_does_not(detail: int, jump_ms: int) -> None:
    async def scenario(rig: Rig) -> None:
        clock = rig.cluster.machines[2].clock
        wall_ms, monotonic_s = clock.now_ms(), clock.monotonic()
        assert rig.strike("clock_jump", 2, detail=detail)
        assert clock.now_ms() - wall_ms == jump_ms
        assert clock.monotonic() == monotonic_s
        assert rig.cluster.machines[1].clock.offset_ms == 0

    on_rig(scenario)


def test_clocks_do_not_drift_further_apart_than_records_may_be_ahead() -> None:
    async def scenario(rig: Rig) -> None:
        for _ in range(10):
            rig.strike("clock_jump", 1, detail=9999)
            rig.strike("clock_jump", 2, detail=0)
        assert rig.cluster.machines[1].clock.offset_ms == MAX_SKEW_MS
        assert rig.cluster.machines[2].clock.offset_ms == -MAX_SKEW_MS

    on_rig(scenario)


def test_a_slow_disk_makes_work_wait_and_is_as_fast_as_before_when_that_is_over() -> None:
    async def scenario(rig: Rig) -> None:
        workers = SimulatedWorkers(SeededRandomness(1), CONFIG.longest_worker_delay_s)
        rig.cluster.machines[1].workers = workers
        assert rig.strike("slow_disk", 1, for_s=30.0)
        began = rig.cluster.clock.monotonic()
        for _ in range(10):
            await workers.run(lambda: None)
        assert rig.cluster.clock.monotonic() - began > SLOW_DISK_S
        await asyncio.sleep(60)
        began = rig.cluster.clock.monotonic()
        await workers.run(lambda: None)
        assert rig.cluster.clock.monotonic() - began < SLOW_DISK_S / 10

    on_rig(scenario)


def test_a_disk_is_not_slow_where_nobody_waits_for_it() -> None:
    async def scenario(rig: Rig) -> None:
        assert not rig.strike("slow_disk", 1)

    on_rig(scenario)


# ---- the store


def test_a_lost_store_is_rebuilt_and_nothing_is_lost() -> None:
    async def scenario(rig: Rig) -> None:
        invariants = Invariants(rig.cluster)
        await rig.start()
        await asyncio.sleep(QUIET_S + 1)
        assert rig.strike("lost_store")
        assert rig.cluster.store_state.find(znodes.topic_path("orders")) is None
        await wait_for(lambda: is_in_use(rig.cluster.store_state))
        await wait_for(lambda: in_sync(rig.cluster) == {1, 2, 3})
        await all_well_again(rig.cluster)
        assert await read_all(rig.cluster) == [b"a"]
        invariants.check()

    on_rig(scenario)


def test_a_store_is_not_lost_while_brokers_may_not_have_noted_what_changed() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.start()
        assert not rig.strike("lost_store")

    on_rig(scenario)


def test_a_store_is_not_lost_together_with_a_disk() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.start()
        await asyncio.sleep(QUIET_S + 1)
        assert rig.strike("lost_disk", 1, for_s=20.0)
        assert not rig.strike("lost_store")

    on_rig(scenario)


def test_a_disk_is_not_lost_while_the_store_is_rebuilt() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.start()
        await asyncio.sleep(QUIET_S + 1)
        assert rig.strike("lost_store")
        assert not rig.strike("lost_disk", 1)
        await wait_for(lambda: is_in_use(rig.cluster.store_state))
        assert rig.strike("lost_disk", 1)

    on_rig(scenario)


def test_a_store_that_is_taken_into_use_without_a_topic_is_a_violation() -> None:
    async def scenario(rig: Rig) -> None:
        invariants = Invariants(rig.cluster)
        await rig.start()
        await asyncio.sleep(QUIET_S + 1)
        store = rig.cluster.store_state
        node = store.find(znodes.CLUSTER_ID)
        assert node is not None
        for each in (1, 2, 3):
            rig.supervisor.kill(each)
        assert rig.strike("lost_store")
        store.nodes[znodes.CLUSTER_ID] = replace(node, version=0)
        store.perform([Set(znodes.CLUSTER_ID, node.data)], 0)
        with pytest.raises(InvariantViolated, match="R44 the store is in use without topic orders"):
            invariants.check()

    on_rig(scenario)


def test_a_broker_learns_late_of_its_new_registration() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.start()
        membership = rig.cluster.broker(2)._membership
        epoch = membership.broker_epoch
        assert rig.strike("late_rejoining", 2, detail=99)
        await wait_for(lambda: registered_epoch(rig.cluster.store_state, 2) not in (None, epoch), step_s=0.01)
        assert membership.broker_epoch == NOT_REGISTERED
        await wait_for(lambda: membership.broker_epoch != NOT_REGISTERED)
        await all_well_again(rig.cluster)

    on_rig(scenario)


def test_a_controller_is_deposed_when_it_writes_next() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.start()
        await asyncio.sleep(1)
        before = controller_of(rig.cluster)
        epoch = rig.cluster.store_state.find(znodes.CONTROLLER_EPOCH)
        assert rig.strike("depose_controller", detail=50)
        assert controller_of(rig.cluster) == before
        rig.supervisor.kill(1 if before != 1 else 2)
        await asyncio.sleep(2)
        assert rig.cluster.store_state.find(znodes.CONTROLLER_EPOCH) != epoch
        assert stored(rig.cluster).leader != -1

    on_rig(scenario)


# ---- failovers in a row


def test_two_brokers_run_in_turn_and_in_the_end_all_run() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.start()
        assert rig.strike("turns")
        assert not rig.strike("turns"), "one row at a time"
        runs: list[set[int]] = []
        for _ in range(400):
            await asyncio.sleep(0.1)
            if not runs or runs[-1] != rig.supervisor.healthy:
                runs.append(set(rig.supervisor.healthy))
        assert [run for run in runs if run][:4] == [{1}, {2}, {1}, {2}]
        assert runs[-1] == {1, 2, 3}
        await all_well_again(rig.cluster)
        assert await read_all(rig.cluster) == [b"a"]

    on_rig(scenario)


def test_a_follower_joins_and_its_leader_learns_of_it_late() -> None:
    async def scenario(rig: Rig) -> None:
        controller, leader, joining = await rig.start_with_a_free_leader()
        assert rig.strike("late_joining")
        await wait_for(lambda: in_sync(rig.cluster) == {controller, leader})
        await wait_for(lambda: in_sync(rig.cluster) == {1, 2, 3}, step_s=0.001)
        assert joining not in replica(rig.cluster, leader).in_sync_replicas
        await wait_for(lambda: joining in replica(rig.cluster, leader).in_sync_replicas)
        await all_well_again(rig.cluster)

    on_rig(scenario)


# ---- at the wrong moment


def test_a_broker_that_is_elected_late_loses_its_disk_before_that_is_written() -> None:
    async def scenario(rig: Rig) -> None:
        _, leader, elected = await rig.start_with_a_free_leader()
        earlier = registered_epoch(rig.cluster.store_state, elected)
        assert rig.strike("late_election", detail=500)
        await wait_for(lambda: registered_epoch(rig.cluster.store_state, elected) not in (None, earlier))
        assert stored(rig.cluster).leader == leader, "it is not written yet"
        rig.faults.repair_all()
        await wait_for(lambda: rig.supervisor.is_all_healthy, 60)
        await all_well_again(rig.cluster, timeout_s=60)
        assert await read_all(rig.cluster) == [b"a"]

    on_rig(scenario)


def test_the_last_of_three_loses_its_disk_and_is_back_first() -> None:
    async def scenario(rig: Rig) -> None:
        _, _, last = await rig.start_with_a_free_leader()
        assert rig.strike("last_standing", detail=400)
        await wait_for(lambda: any(line == f"broker {last} loses its disk" for line in rig.events))
        assert not rig.supervisor.healthy
        rig.faults.repair_all()
        await wait_for(lambda: rig.supervisor.is_all_healthy, 60)
        await all_well_again(rig.cluster, timeout_s=60)
        assert await read_all(rig.cluster) == [b"a"]

    on_rig(scenario)


def test_a_broker_stops_without_descriptors_for_one_log_and_loses_nothing() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.start()
        assert rig.strike("short_stop", 2, for_s=0.5)
        await wait_for(lambda: 2 not in rig.supervisor.healthy)
        await wait_for(lambda: 2 in rig.supervisor.healthy)
        await all_well_again(rig.cluster)
        assert await read_all(rig.cluster) == [b"a"]

    on_rig(scenario)


def test_all_faults_are_undone_in_the_end() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.start()
        for kind in sorted(FAULTS):
            rig.strike(kind, for_s=60.0, detail=77)
        await asyncio.sleep(2)
        rig.faults.repair_all()
        await wait_for(lambda: rig.supervisor.is_all_healthy, 60)
        await all_well_again(rig.cluster, timeout_s=60)
        assert await read_all(rig.cluster) == [b"a"]

    on_rig(scenario)
