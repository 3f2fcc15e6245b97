"""Replicas that move (R37): under load, and whatever dies meanwhile nothing is lost and no old log is left."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

import pytest

from tests.simulation.scenario import (
    TOPIC,
    ask,
    assert_replicas_identical,
    controller_of,
    create_topic,
    hosts,
    in_sync,
    produce,
    read_all,
    simulate,
    stored,
    wait_for,
)
from tidelog.client.network.connection import ConnectionLost
from tidelog.cluster import znodes
from tidelog.cluster.image import PartitionRegistration
from tidelog.errors import NO_ERROR, InvalidReplicaAssignment, NoReassignmentInProgress, NotController
from tidelog.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from tidelog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from tidelog.runtime.memory_disk import PLENTY_BYTES
from tidelog.simulation.chaos import run_seed
from tidelog.simulation.cluster import SimulatedCluster
from tidelog.simulation.swarm import REASSIGNMENTS, draw_config
from tidelog.store.memory import MemoryStore, StepFaultKind

OLD, NEW = (1, 2, 3), (4, 5, 6)


async def alter(cluster: SimulatedCluster, target: Sequence[int] | None) -> int:
    """The code that the first broker answers which knows a controller."""
    partition = ReassignablePartition(partition_index=0, replicas=target)
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=TOPIC, partitions=[partition])], timeout_ms=2000
    )
    while True:
        with suppress(ConnectionLost):
            response = await ask(cluster, cluster.running[-1].broker_id, request, AlterPartitionReassignmentsResponse)
            if response.error_code == NO_ERROR:
                return response.responses[0].partitions[0].error_code
            assert response.error_code in (NotController.code, 7), response
        await asyncio.sleep(0.2)


def assignment(cluster: SimulatedCluster) -> PartitionRegistration:
    node = cluster.store_state.nodes[znodes.topic_path(TOPIC)]
    (partition,) = znodes.decode_topic(TOPIC, node.data, node.version, [None], {}).partitions
    return partition


def is_at(cluster: SimulatedCluster, *replicas: int) -> bool:
    """The reassignment is complete, and the logs that are not needed any more are deleted."""
    found = assignment(cluster)
    return (found.replicas, found.is_being_reassigned, found.removed_replicas) == (replicas, False, ())


async def settled_at(cluster: SimulatedCluster, *replicas: int) -> None:
    await wait_for(lambda: is_at(cluster, *replicas), 60.0)
    await wait_for(lambda: in_sync(cluster) == set(replicas), 60.0)
    assert set(hosts(cluster)) == set(replicas), "the others have deleted it"
    for broker in cluster.running:
        has_log = broker.replicas.log_of(next(iter(hosts(cluster).values())).topic_partition) is not None
        assert has_log == (broker.broker_id in replicas)


class Load:
    """One writer, who waits for each acknowledgement."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster = cluster
        self.acknowledged: list[bytes] = []
        self._task = asyncio.get_running_loop().create_task(self._write())

    async def _write(self) -> None:
        for number in range(1_000_000):
            value = b"%d" % number
            while True:
                with suppress(ConnectionLost, AssertionError):
                    await produce(self.cluster, value, timeout_s=1.0)
                    break
            self.acknowledged.append(value)
            await asyncio.sleep(0.01)

    async def check_nothing_is_lost(self) -> None:
        written = len(self.acknowledged)
        await wait_for(lambda: len(self.acknowledged) > written, 60.0)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await asyncio.sleep(2)
        found = iter(await read_all(self.cluster))
        lost = [value for value in self.acknowledged if value not in found]  # in this order, repetitions between them
        assert not lost, f"{len(lost)} of {len(self.acknowledged)} lost"
        assert_replicas_identical(self.cluster)


def with_load(
    scenario: Callable[[SimulatedCluster, Load], Awaitable[None]], brokers: int = 7, controller: int = 7
) -> None:
    async def main(cluster: SimulatedCluster) -> None:
        await create_topic(cluster, OLD, min_insync_replicas=2)
        load = Load(cluster)
        await asyncio.sleep(0.5)
        await scenario(cluster, load)
        await load.check_nothing_is_lost()

    simulate(main, brokers, controller=controller, replica_lag_time_max_ms=2000)


async def start_all(cluster: SimulatedCluster) -> None:
    for machine in cluster.machines.values():
        if machine.broker is None:
            await cluster.start(machine.broker_id)


def test_all_replicas_move_under_load() -> None:
    async def scenario(cluster: SimulatedCluster, load: Load) -> None:
        assert await alter(cluster, NEW) == NO_ERROR
        await settled_at(cluster, *NEW)
        assert stored(cluster).leader in NEW
        assert cluster.broker(4).replicas.traffic.reassignment_bytes_in > 0
        assert cluster.broker(1).replicas.traffic.reassignment_bytes_out > 0
        assert cluster.broker(1).replicas.traffic.reassignment_bytes_in == 0
        assert await alter(cluster, (1, 5)) == NO_ERROR
        await settled_at(cluster, 1, 5)
        assert await alter(cluster, (1, 5, 2, 3)) == NO_ERROR
        await settled_at(cluster, 1, 5, 2, 3)

    with_load(scenario)


def test_nothing_moves_before_every_new_replica_is_in_sync() -> None:
    async def scenario(cluster: SimulatedCluster, load: Load) -> None:
        cluster.cut(5, OLD)
        assert await alter(cluster, NEW) == NO_ERROR
        await asyncio.sleep(5)
        assert assignment(cluster).is_being_reassigned
        assert in_sync(cluster) == {1, 2, 3, 4, 6}
        assert stored(cluster).leader == 1
        cluster.mend()
        await settled_at(cluster, *NEW)

    with_load(scenario)


@pytest.mark.parametrize("wait_s", [0.0, 0.05, 0.3, 1.0])
def test_a_target_that_dies_half_way_is_waited_for(wait_s: float) -> None:
    async def scenario(cluster: SimulatedCluster, load: Load) -> None:
        cluster.cut(5, OLD)  # so that it is half-way for long enough
        assert await alter(cluster, NEW) == NO_ERROR
        await asyncio.sleep(wait_s)
        cluster.cut_power(4)
        await asyncio.sleep(3)
        assert assignment(cluster).is_being_reassigned
        cluster.mend()
        await asyncio.sleep(3)
        assert assignment(cluster).is_being_reassigned
        await cluster.start(4)
        await settled_at(cluster, *NEW)

    with_load(scenario)


def test_a_target_that_lost_its_disk_copies_everything_again() -> None:
    async def scenario(cluster: SimulatedCluster, load: Load) -> None:
        cluster.cut(5, OLD)
        assert await alter(cluster, NEW) == NO_ERROR
        await asyncio.sleep(2)
        cluster.cut_power(4)
        cluster.wipe(4)
        cluster.mend()
        await cluster.start(4)
        await settled_at(cluster, *NEW)

    with_load(scenario)


@pytest.mark.parametrize("is_cancelled", [True, False])
def test_a_target_whose_disk_is_full_is_waited_for_or_given_up(is_cancelled: bool) -> None:
    """Its only log directory goes offline; when there is room again, the broker is started again."""

    async def scenario(cluster: SimulatedCluster, load: Load) -> None:
        disk = cluster.machines[5].disk
        disk.capacity_bytes = disk.used_bytes + 500
        assert await alter(cluster, NEW) == NO_ERROR
        (directory,) = cluster.broker(5)._services.logs.directories
        await wait_for(lambda: not directory.is_online)
        await wait_for(lambda: in_sync(cluster) >= {4, 6}, 30.0)
        assert assignment(cluster).is_being_reassigned
        if is_cancelled:
            assert await alter(cluster, None) == NO_ERROR
        disk.capacity_bytes = PLENTY_BYTES
        cluster.kill(5)
        await start_all(cluster)
        await settled_at(cluster, *(OLD if is_cancelled else NEW))

    with_load(scenario)


@pytest.mark.parametrize("times", [2, 7])
def test_many_requests_in_a_row_end_at_the_last_target(times: int) -> None:
    async def scenario(cluster: SimulatedCluster, load: Load) -> None:
        for number in range(times):
            assert await alter(cluster, (4, 5, 6) if number % 2 else (3, 4, 7)) == NO_ERROR
            assert await alter(cluster, (1, 6)) == NO_ERROR
            await asyncio.sleep(0.03 * number)
        assert await alter(cluster, (2, 6, 4)) == NO_ERROR
        await settled_at(cluster, 2, 6, 4)

    with_load(scenario)


@pytest.mark.parametrize("died", OLD)
def test_an_old_replica_that_died_is_replaced_and_its_log_deleted_when_it_is_back(died: int) -> None:
    async def scenario(cluster: SimulatedCluster, load: Load) -> None:
        cluster.kill(died)
        await wait_for(lambda: stored(cluster).leader != died)
        target = tuple(each for each in (*OLD, 4) if each != died)
        assert await alter(cluster, target) == NO_ERROR
        await wait_for(lambda: not assignment(cluster).is_being_reassigned, 30.0)
        assert assignment(cluster).removed_replicas == (died,)
        await cluster.start(died)
        await settled_at(cluster, *target)

    with_load(scenario)


def test_an_unrelated_sick_replica_does_not_hold_it_up() -> None:
    """KAFKA-19975"""

    async def scenario(cluster: SimulatedCluster, load: Load) -> None:
        cluster.kill(3)
        assert await alter(cluster, (4, 2, 3)) == NO_ERROR
        await wait_for(lambda: not assignment(cluster).is_being_reassigned, 30.0)
        await wait_for(lambda: is_at(cluster, 4, 2, 3))
        await cluster.start(3)
        await settled_at(cluster, 4, 2, 3)

    with_load(scenario)


WRITES = 6
"""By the controller: start, completion, one notification removed, three replicas deleted."""
STEPS = [(kind, step) for kind in StepFaultKind for step in range(WRITES)]


@pytest.mark.parametrize(("kind", "step"), STEPS, ids=[f"{kind.name}-{step}" for kind, step in STEPS])
def test_a_controller_that_loses_the_store_at_any_write_is_continued(kind: StepFaultKind, step: int) -> None:
    async def scenario(cluster: SimulatedCluster, load: Load) -> None:
        session = cluster.machines[7].sessions[-1]
        cluster.store_state.break_step(session, kind, step, 4.0)
        assert await alter(cluster, NEW) == NO_ERROR
        await settled_at(cluster, *NEW)

    with_load(scenario)


@pytest.mark.parametrize("is_written", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", range(WRITES))
def test_a_controller_that_dies_at_any_write_is_continued(
    step: int, is_written: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(cluster: SimulatedCluster, load: Load) -> None:
        session, count, multi = cluster.machines[7].sessions[-1], 0, MemoryStore.multi

        async def mortal(store: MemoryStore, operations: Sequence[object]) -> object:
            nonlocal count
            if store.session_id != session:
                return await multi(store, operations)  # type: ignore[arg-type]
            count += 1
            if count - 1 == step:
                if is_written:
                    await multi(store, operations)  # type: ignore[arg-type]
                asyncio.get_running_loop().call_soon(cluster.kill, 7)
                await asyncio.Event().wait()
            return await multi(store, operations)  # type: ignore[arg-type]

        monkeypatch.setattr(MemoryStore, "multi", mortal)
        asking = asyncio.get_running_loop().create_task(alter(cluster, NEW))
        await asyncio.sleep(6)
        if 7 not in {each.broker_id for each in cluster.running}:
            await cluster.start(7)
        assert await asking == NO_ERROR
        await settled_at(cluster, *NEW)

    with_load(scenario)


@pytest.mark.parametrize("wait_s", [0.0, 0.02, 0.1, 0.5, 2.0])
def test_cancelled_at_any_moment_it_is_at_one_end_or_the_other(wait_s: float) -> None:
    async def scenario(cluster: SimulatedCluster, load: Load) -> None:
        assert await alter(cluster, NEW) == NO_ERROR
        await asyncio.sleep(wait_s)
        code = await alter(cluster, None)
        assert code in (NO_ERROR, NoReassignmentInProgress.code)
        await settled_at(cluster, *(OLD if code == NO_ERROR else NEW))

    with_load(scenario)


def test_it_is_not_cancelled_when_only_the_new_replicas_have_everything() -> None:
    async def scenario(cluster: SimulatedCluster, load: Load) -> None:
        cluster.cut(5, (1, 2, 3, 4, 6))
        assert await alter(cluster, NEW) == NO_ERROR
        await wait_for(lambda: in_sync(cluster) >= {4, 6})
        for broker_id in (1, 2):
            cluster.kill(broker_id)
        await wait_for(lambda: in_sync(cluster) <= {3, 4, 6})
        assert await alter(cluster, None) == InvalidReplicaAssignment.code
        cluster.mend()
        await wait_for(lambda: not assignment(cluster).is_being_reassigned, 30.0)
        await start_all(cluster)
        await settled_at(cluster, *NEW)

    with_load(scenario)


def test_a_topic_that_is_deleted_meanwhile_is_gone_everywhere() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await create_topic(cluster, OLD)
        await produce(cluster, b"gone")
        cluster.cut(5, OLD)
        assert await alter(cluster, NEW) == NO_ERROR
        await asyncio.sleep(1)
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=TOPIC)], timeout_ms=2000)
        response = await ask(cluster, controller_of(cluster), request, DeleteTopicsResponse)
        assert response.responses[0].error_code == NO_ERROR
        await wait_for(lambda: znodes.topic_path(TOPIC) not in cluster.store_state.nodes)
        assert hosts(cluster) == {}

    simulate(scenario, 6, controller=6)


@pytest.mark.parametrize("seed", range(301, 309))
def test_replicas_move_among_whatever_else_a_seed_draws(seed: int) -> None:
    verdict = run_seed(seed, draw_config(seed).work | {REASSIGNMENTS})
    assert verdict.is_good, verdict.violations
