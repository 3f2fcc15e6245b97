"""Messages between brokers that are in different leader epochs do not count (R16, R26, R27, R28)."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from tests.simulation.broken_rules import (
    counting_late_answers,
    fetching_before_reconciling,
    high_watermark_before_the_cut,
    reconciling_only_with_another_leader,
    taking_batches_of_later_epochs,
    unfenced_fetches,
)
from tests.simulation.scenario import (
    FINE_STEP_S,
    TOPIC,
    all_well_again,
    ask,
    controller_of,
    create_topic,
    follower_core,
    in_sync,
    is_leading,
    leading,
    produce,
    produce_to,
    read_all,
    replica,
    simulate,
    slow_controller,
    stored,
    wait_for,
    warnings_of,
)
from tidelog.cluster.znodes import encode_state, state_path
from tidelog.protocol.messages.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicState,
)
from tidelog.simulation.cluster import LATENCY_S, PORT, SimulatedCluster, host_of
from tidelog.simulation.inspection import registered_epoch
from tidelog.store.interface import Set


@asynccontextmanager
async def leader_back_unseen(cluster: SimulatedCluster) -> AsyncIterator[None]:
    """Broker 1 leads again, without a record that it once gave to broker 3.

    Another leader was in between, and has written at the same offset. Broker 3 hears of all this only at the end.
    """
    await create_topic(cluster, [1, 2, 3])
    await produce(cluster, b"a")
    await asyncio.sleep(1)
    cluster.cut(1, [2])
    await produce_to(cluster, 1, b"given up", acks=1)
    await wait_for(lambda: replica(cluster, 3).log.log_end_offset == 2)
    with slow_controller(3):
        cluster.kill(1)
        await wait_for(lambda: is_leading(cluster, 2))
        cluster.mend()
        await produce_to(cluster, 2, b"b", acks=1)
        await cluster.start(1)
        await wait_for(lambda: 1 in in_sync(cluster))
        cluster.kill(2)
        await wait_for(lambda: is_leading(cluster, 1))
        yield


# ---- KAFKA-7164


async def follow_the_same_leader_in_a_later_epoch(cluster: SimulatedCluster) -> None:
    async with leader_back_unseen(cluster):
        assert replica(cluster, 3).leader_id == 1
    await all_well_again(cluster)
    assert await read_all(cluster) == [b"a", b"b"]


def test_a_follower_reconciles_also_when_only_the_epoch_of_its_leader_changed() -> None:
    """KAFKA-7164, R27"""
    simulate(follow_the_same_leader_in_a_later_epoch, controller=2)


def test_logs_differ_where_only_another_leader_makes_a_follower_reconcile() -> None:
    with (
        reconciling_only_with_another_leader(),
        pytest.raises(AssertionError, match="hold different bytes"),
    ):
        simulate(follow_the_same_leader_in_a_later_epoch, controller=2)


# ---- KIP-595


async def hear_of_the_parting_by_a_fetch(cluster: SimulatedCluster) -> None:
    """The leader has committed more than the two logs share."""
    with fetching_before_reconciling(), warnings_of("tidelog.replication.fetcher_log_lines") as warnings:
        async with leader_back_unseen(cluster):
            await wait_for(lambda: in_sync(cluster) == {1})
            assert replica(cluster, 1).log.high_watermark == 2
        await all_well_again(cluster)
    assert await read_all(cluster) == [b"a", b"b"]
    assert not warnings, "took for committed what it had to cut"


def test_a_fetch_that_shows_where_logs_diverge_commits_nothing_before_the_cut() -> None:
    """R28"""
    simulate(hear_of_the_parting_by_a_fetch, controller=2, replica_lag_time_max_ms=5000)


def test_records_that_must_go_pass_for_committed_where_the_high_watermark_rises_before_the_cut() -> None:
    with high_watermark_before_the_cut(), pytest.raises(AssertionError, match="took for committed what it had to cut"):
        simulate(hear_of_the_parting_by_a_fetch, controller=2, replica_lag_time_max_ms=5000)


# ---- KIP-320


async def be_asked_by_a_follower_of_an_earlier_epoch(cluster: SimulatedCluster) -> None:
    async with leader_back_unseen(cluster):
        await asyncio.sleep(5)
        leader = leading(cluster, 1)
        assert leader is not None
        assert in_sync(cluster) == {1, 3}
        assert leader.high_watermark == 1, "committed what only the leader has"
    await all_well_again(cluster)
    assert await read_all(cluster) == [b"a", b"b"]


def test_a_follower_that_missed_an_election_commits_nothing() -> None:
    """KIP-320, R16"""
    simulate(be_asked_by_a_follower_of_an_earlier_epoch, controller=2)


def test_a_follower_that_missed_an_election_commits_what_it_lacks_where_fetches_are_not_fenced() -> None:
    with unfenced_fetches(), pytest.raises(AssertionError, match="committed what only the leader has"):
        simulate(be_asked_by_a_follower_of_an_earlier_epoch, controller=2)


# ---- KAFKA-18723


async def be_sent_records_of_a_later_epoch(cluster: SimulatedCluster) -> None:
    """By a leader that does not fence: the follower has not reconciled with that epoch yet."""
    await create_topic(cluster, [1, 2, 3])
    await produce(cluster, b"a")
    with unfenced_fetches(), slow_controller(3):
        cluster.kill(2)
        await wait_for(lambda: in_sync(cluster) == {1, 3} and is_leading(cluster, 1))
        await produce_to(cluster, 1, b"b", acks=1)
        await asyncio.sleep(3)
        follower = replica(cluster, 3)
        assert follower.leader_epoch < stored(cluster).leader_epoch
        assert follower.log.log_end_offset == 1, "took records of an epoch that it has not reconciled with"
    await all_well_again(cluster)
    assert await read_all(cluster) == [b"a", b"b"]


def test_a_follower_takes_no_records_of_a_later_epoch_than_it_asked_in() -> None:
    """KAFKA-18723, R28"""
    simulate(be_sent_records_of_a_later_epoch)


def test_records_of_a_later_epoch_are_taken_where_nobody_looks() -> None:
    with taking_batches_of_later_epochs(), pytest.raises(AssertionError, match="not reconciled with"):
        simulate(be_sent_records_of_a_later_epoch)


# ---- KAFKA-18991


async def appoint(cluster: SimulatedCluster, leader: int, informed: Sequence[int]) -> None:
    """Move the leadership as a controller does, without anybody having failed."""
    state = stored(cluster)
    path = state_path(TOPIC, 0)
    controller_epoch = int(cluster.store_state.nodes["/controller_epoch"].data)
    chosen = LeaderAndIsrPartitionState(
        partition_index=0,
        controller_epoch=controller_epoch,
        leader=leader,
        leader_epoch=state.leader_epoch + 1,
        isr=list(state.in_sync_replicas),
        partition_epoch=state.version + 1,
        replicas=[1, 2, 3],
        adding_replicas=[],
        removing_replicas=[],
    )
    content = json.loads(encode_state(state)) | {"leader": leader, "leader_epoch": chosen.leader_epoch}
    cluster.store_state.perform([Set(path, json.dumps(content).encode(), state.version)], 0)
    topic = LeaderAndIsrTopicState(TOPIC, replica(cluster, 1).topic_id, [chosen])
    request = LeaderAndIsrRequest(
        controller_id=controller_of(cluster),
        controller_epoch=controller_epoch,
        topic_states=[topic],
        live_leaders=[LeaderAndIsrLiveLeader(leader, host_of(leader), PORT)],
    )
    for broker_id in informed:
        request.broker_epoch = registered_epoch(cluster.store_state, broker_id) or -1
        assert (await ask(cluster, broker_id, request, LeaderAndIsrResponse)).error_code == 0


async def hear_a_response_of_two_epochs_ago(cluster: SimulatedCluster) -> None:
    """Broker 1 said where an epoch ended; that is no longer all that broker 3 has of it when it hears it."""
    await create_topic(cluster, [1, 3], name="other")  # keeps the connection in use
    await create_topic(cluster, [1, 2, 3], min_insync_replicas=2)
    await produce(cluster, b"a")
    await asyncio.sleep(1)
    leader_epoch = stored(cluster).leader_epoch + 1
    asking = asyncio.ensure_future(appoint(cluster, 1, informed=[1, 3]))
    await wait_for(lambda: has_asked(cluster, leader_epoch), step_s=FINE_STEP_S)
    await asyncio.sleep(1.4 * LATENCY_S)
    cluster.cut(3, [1])
    await asking
    await appoint(cluster, 2, informed=[1, 2, 3])
    await produce(cluster, b"b", b"c")
    await appoint(cluster, 1, informed=[2, 1, 3])
    cluster.mend()

    def nothing_committed_is_cut() -> None:
        assert replica(cluster, 3).log.log_end_offset == 3, "cut what is committed"

    await wait_for(
        lambda: replica(cluster, 3).log.high_watermark == 3, step_s=FINE_STEP_S, always=nothing_committed_is_cut
    )
    await all_well_again(cluster)


def has_asked(cluster: SimulatedCluster, leader_epoch: int) -> bool:
    core = follower_core(cluster, 3)
    return core is not None and core.leader_epoch == leader_epoch and core.asked is not None


def test_an_answer_that_comes_two_epochs_late_cuts_nothing() -> None:
    """KAFKA-18991, R26"""
    simulate(hear_a_response_of_two_epochs_ago, controller=2)


def test_a_late_answer_cuts_what_is_committed_where_it_counts() -> None:
    with counting_late_answers(), pytest.raises(AssertionError, match="cut what is committed"):
        simulate(hear_a_response_of_two_epochs_ago, controller=2)
