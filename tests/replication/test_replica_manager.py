"""Requests of the controller to the replica manager, and what they change."""

import asyncio
import errno
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from tests.replication.leaders import ORDERS, ORDERS_ID, Replicas, assignment_of
from tests.storage.logs import append
from tidelog.config.topic import TopicSettings
from tidelog.errors import (
    FencedLeaderEpoch,
    InconsistentTopicId,
    KafkaStorageError,
    NotLeaderOrFollower,
    StaleBrokerEpoch,
    StaleControllerEpoch,
    UnknownServerError,
    UnknownTopicOrPartition,
)
from tidelog.replication.assignment import EPOCH_DURING_DELETE, NO_EPOCH_CHECK, ReplicaStop
from tidelog.replication.follower import PartitionFollower
from tidelog.replication.partition import Partition
from tidelog.runtime.memory_disk import MemoryDisk
from tidelog.types import TopicPartition, uuid_text

SECOND_ID = b"2" * 16


def with_replicas(scenario: Callable[[Replicas], Awaitable[None]], *log_dirs: str) -> None:
    async def main() -> None:
        await scenario(await Replicas.on(MemoryDisk(), log_dirs=log_dirs or ("/data",)))

    asyncio.run(main())


def stop(replicas: Replicas, leader_epoch: int, *, delete: bool = False, controller_epoch: int = 1) -> object:
    (outcome,) = replicas.manager.stop_replicas(controller_epoch, [ReplicaStop(ORDERS, leader_epoch, delete)]).values()
    return None if outcome is None else type(outcome)


def test_a_partition_is_online_offline_or_not_here() -> None:
    async def scenario(replicas: Replicas) -> None:
        with pytest.raises(UnknownTopicOrPartition):
            replicas.orders()
        assert replicas.take(assignment_of(1)) == [None]
        assert replicas.orders().topic_partition == ORDERS
        replicas.manager.mark_offline({ORDERS})
        with pytest.raises(KafkaStorageError):
            replicas.orders()
        assert replicas.take(assignment_of(1, epoch=6)) == [KafkaStorageError]
        assert replicas.manager.offline_partitions == {ORDERS}
        assert stop(replicas, 6) is KafkaStorageError

    with_replicas(scenario)


def test_a_controller_of_the_past_is_refused_and_changes_nothing() -> None:
    async def scenario(replicas: Replicas) -> None:
        replicas.take(assignment_of(1), controller_epoch=7)
        replicas.fetchers.calls.clear()
        with pytest.raises(StaleControllerEpoch):
            replicas.take(assignment_of(1, epoch=9), controller_epoch=6)
        with pytest.raises(StaleControllerEpoch):
            stop(replicas, 9, delete=True, controller_epoch=6)
        assert (replicas.orders().leader_epoch, replicas.manager.controller_epoch) == (5, 7)
        assert replicas.fetchers.calls == []

    with_replicas(scenario)


@pytest.mark.parametrize("epoch", [4, 5])
def test_an_epoch_that_is_not_newer_is_skipped(epoch: int) -> None:
    async def scenario(replicas: Replicas) -> None:
        replicas.take(assignment_of(1, 2, epoch=5))
        assert replicas.take(assignment_of(1, 2, leader=2, epoch=epoch)) == [StaleControllerEpoch]
        assert replicas.orders().require_leader().leader_epoch == 5

    with_replicas(scenario)


def test_what_this_broker_has_no_replica_of_is_refused() -> None:
    async def scenario(replicas: Replicas) -> None:
        assert replicas.take(assignment_of(2, 3, leader=2)) == [UnknownTopicOrPartition]
        assert len(replicas.manager) == 0

    with_replicas(scenario)


def test_a_partition_of_another_topic_of_the_same_name_is_refused() -> None:
    async def scenario(replicas: Replicas) -> None:
        replicas.take(assignment_of(1))
        assert replicas.take(assignment_of(1, epoch=6, topic_id=SECOND_ID)) == [InconsistentTopicId]
        assert replicas.orders().topic_id == ORDERS_ID

    with_replicas(scenario)


def test_each_partition_of_a_request_has_its_own_outcome() -> None:
    async def scenario(replicas: Replicas) -> None:
        elsewhere = assignment_of(2, 3, leader=2, topic_partition=TopicPartition("orders", 1))
        assert replicas.take(elsewhere, assignment_of(1)) == [UnknownTopicOrPartition, None]
        assert [partition.topic_partition for partition in replicas.manager] == [ORDERS]

    with_replicas(scenario)


def test_a_new_epoch_is_recorded_before_the_first_append() -> None:
    """KAFKA-7415."""

    async def scenario(replicas: Replicas) -> None:
        replicas.take(assignment_of(1, epoch=4))
        log = replicas.orders().log
        assert list(log.leader_epochs.starts) == [(4, 0)]
        append(log, b"x", leader_epoch=4)
        replicas.take(assignment_of(1, epoch=6))
        assert list(log.leader_epochs.starts) == [(4, 0), (6, 1)]

    with_replicas(scenario)


def test_fetching_stops_before_a_role_changes_and_starts_after_it() -> None:
    """R8, R9."""

    async def scenario(replicas: Replicas) -> None:
        roles: list[tuple[bool, bool]] = []
        forget = replicas.fetchers.forget

        def forget_and_look(topic_partitions: list[TopicPartition]) -> None:
            forget(topic_partitions)
            if len(replicas.manager):
                roles.append((replicas.orders().is_leader, isinstance(replicas.orders().role, PartitionFollower)))

        replicas.fetchers.forget = forget_and_look  # type: ignore[method-assign, assignment]
        replicas.take(assignment_of(1, 2, leader=2, epoch=5))
        replicas.take(assignment_of(1, 2, leader=1, epoch=6))
        replicas.take(assignment_of(1, 2, leader=2, epoch=7))
        assert replicas.fetchers.calls == [
            ("forget", ORDERS),
            ("follow", ORDERS, 2, 5),
            ("forget", ORDERS),
            ("forget", ORDERS),
            ("follow", ORDERS, 2, 7),
        ]
        assert roles == [(False, True), (True, False)]

    with_replicas(scenario)


def test_the_same_leader_in_a_new_epoch_is_followed_again() -> None:
    """KAFKA-7164: what must be cut is asked again in every epoch."""

    async def scenario(replicas: Replicas) -> None:
        replicas.take(assignment_of(1, 2, leader=2, epoch=5))
        replicas.take(assignment_of(1, 2, leader=2, epoch=6))
        assert ("follow", ORDERS, 2, 6) in replicas.fetchers.calls

    with_replicas(scenario)


@pytest.mark.parametrize("leader", [-1, 9])
def test_without_a_live_leader_there_is_a_log_and_nobody_fetches(leader: int) -> None:
    """KAFKA-3096; the high watermark must survive in the checkpoint."""

    async def scenario(replicas: Replicas) -> None:
        assert replicas.take(assignment_of(1, 9, leader=leader, in_sync=(9,))) == [None]
        assert replicas.orders().log.log_end_offset == 0
        assert replicas.fetchers.calls == [("forget", ORDERS)]

    with_replicas(scenario)


def test_new_and_former_leaderships_are_reported() -> None:
    """R10."""

    async def scenario(replicas: Replicas) -> None:
        reported: list[tuple[int, int]] = []

        def note(leading: list[Partition], left: list[Partition]) -> None:
            reported.append((len(leading), len(left)))

        replicas.manager.on_leadership_change.append(note)
        replicas.take(assignment_of(1, 2, epoch=5))
        replicas.take(assignment_of(1, 2, epoch=5))
        replicas.take(assignment_of(1, 2, leader=2, epoch=6))
        stop(replicas, 6)
        assert reported == [(1, 0), (0, 1), (0, 1)]

    with_replicas(scenario)


def test_a_topic_made_again_does_not_inherit_the_records_of_the_earlier_one() -> None:
    async def run() -> None:
        disk = MemoryDisk()
        replicas = await Replicas.on(disk)
        replicas.take(assignment_of(1, epoch=0))
        append(replicas.orders().log, b"old", leader_epoch=0)
        disk.crash(lambda path, unsynced_bytes: unsynced_bytes)
        again = await Replicas.on(disk)
        again.take(assignment_of(1, epoch=0, topic_id=SECOND_ID))
        log = again.orders().log
        assert (log.log_end_offset, log.topic_id) == (0, SECOND_ID)
        assert again.logs.stray_paths == [f"/data/orders-0.{uuid_text(ORDERS_ID)}-stray"]

    asyncio.run(run())


def test_a_log_without_an_id_is_not_taken_for_one_of_a_topic_that_was_just_made() -> None:
    async def run() -> None:
        replicas = await Replicas.on(MemoryDisk())
        append(replicas.logs.create(ORDERS, None, TopicSettings()), b"old")
        replicas.take(assignment_of(1, epoch=0, is_new=True))
        assert replicas.orders().log.log_end_offset == 0
        assert len(replicas.logs.stray_paths) == 1

    asyncio.run(run())


def test_the_deletion_of_a_topic_sets_aside_the_log_of_another_one_of_its_name() -> None:
    async def run() -> None:
        disk = MemoryDisk()
        replicas = await Replicas.on(disk)
        append(replicas.logs.create(ORDERS, SECOND_ID, TopicSettings()), b"not of the deleted topic")
        replicas.manager.stop_replicas(1, [ReplicaStop(ORDERS, EPOCH_DURING_DELETE, True, ORDERS_ID)])
        assert replicas.logs.stray_paths == [f"/data/orders-0.{uuid_text(SECOND_ID)}-stray"]
        append(replicas.logs.create(ORDERS, ORDERS_ID, TopicSettings()), b"of the deleted topic")
        replicas.manager.stop_replicas(1, [ReplicaStop(ORDERS, EPOCH_DURING_DELETE, True, ORDERS_ID)])
        assert len(replicas.logs.stray_paths) == 1
        assert [entry.name for entry in disk.list_directory("/data") if entry.name.endswith("-delete")]

    asyncio.run(run())


def test_a_late_deletion_of_an_earlier_topic_leaves_alone_the_present_one_of_its_name() -> None:
    """The network held it up: its repetition was answered long ago, and the topic was made again."""

    async def scenario(replicas: Replicas) -> None:
        replicas.take(assignment_of(1, epoch=0, topic_id=SECOND_ID))
        append(replicas.orders().log, b"of the present topic", leader_epoch=0)
        late = ReplicaStop(ORDERS, EPOCH_DURING_DELETE, True, ORDERS_ID)
        assert replicas.manager.stop_replicas(1, [late]) == {ORDERS: None}
        assert replicas.orders().is_leader
        assert (replicas.orders().log.log_end_offset, replicas.logs.stray_paths) == (1, [])

    with_replicas(scenario)


def test_a_deletion_that_knows_too_little_leaves_alone_a_log_that_is_not_hosted() -> None:
    """R37: the replica was added again since, and its broker has just started."""

    async def run() -> None:
        replicas = await Replicas.on(MemoryDisk())
        append(replicas.logs.create(ORDERS, ORDERS_ID, TopicSettings()), b"kept", leader_epoch=6)
        assert stop(replicas, 5, delete=True) is FencedLeaderEpoch
        assert replicas.logs.get(ORDERS) is not None
        assert stop(replicas, 6, delete=True) is None
        assert replicas.logs.get(ORDERS) is None

    asyncio.run(run())


def test_a_deletion_that_lacks_descriptors_is_refused_and_can_be_done_later() -> None:
    async def run() -> None:
        disk = MemoryDisk()
        replicas = await Replicas.on(disk)
        replicas.take(assignment_of(1, epoch=0))
        deletion = ReplicaStop(ORDERS, EPOCH_DURING_DELETE, True, ORDERS_ID)
        disk.inject(errno.ENOMEM, "/data", ("rename",))
        assert isinstance(replicas.manager.stop_replicas(1, [deletion])[ORDERS], UnknownServerError)
        disk.faults.clear()
        assert replicas.manager.stop_replicas(1, [deletion]) == {ORDERS: None}
        assert replicas.logs.get(ORDERS) is None
        assert not replicas.manager.offline_partitions

    asyncio.run(run())


def test_a_topic_made_again_while_its_broker_was_away_is_taken_without_a_restart() -> None:
    async def scenario(replicas: Replicas) -> None:
        replicas.take(assignment_of(1, epoch=3))
        append(replicas.orders().log, b"of the earlier topic", leader_epoch=3)
        replicas.manager.resign_all()
        replicas.take(assignment_of(1, epoch=0, topic_id=SECOND_ID))
        log = replicas.orders().log
        assert (log.log_end_offset, log.topic_id, replicas.orders().is_leader) == (0, SECOND_ID, True)
        assert replicas.logs.stray_paths == [f"/data/orders-0.{uuid_text(ORDERS_ID)}-stray"]

    with_replicas(scenario)


def test_a_log_that_was_opened_before_its_topic_was_known_has_the_settings_of_the_topic() -> None:
    """Else its leader would commit with fewer replicas than min.insync.replicas asks for."""

    async def scenario(replicas: Replicas) -> None:
        replicas.logs.create(ORDERS, ORDERS_ID, TopicSettings())
        replicas.manager._logs._topic_settings = lambda _: TopicSettings(min_insync_replicas=2)
        replicas.take(assignment_of(1, epoch=0))
        assert replicas.orders().log.settings.min_insync_replicas == 2
        leader = replicas.orders().leader
        assert leader is not None
        assert leader.min_in_sync_replicas == 2

    with_replicas(scenario)


def test_no_empty_log_takes_the_place_of_one_in_a_failed_directory() -> None:
    async def run() -> None:
        replicas = await Replicas.on(MemoryDisk(), log_dirs=("/a", "/b"))
        replicas.logs.directories[1].fail(OSError(errno.EIO, "broken"))
        assert replicas.take(assignment_of(1, 2, is_new=False)) == [KafkaStorageError]
        assert replicas.manager.offline_partitions == {ORDERS}
        fresh = assignment_of(1, 2, topic_partition=TopicPartition("orders", 1), is_new=True)
        assert replicas.take(fresh) == [None]

    asyncio.run(run())


# ---- stopping (R11)


@pytest.mark.parametrize(
    ("leader_epoch", "error"),
    [(4, FencedLeaderEpoch), (5, None), (6, None), (NO_EPOCH_CHECK, None), (EPOCH_DURING_DELETE, None)],
)
def test_a_late_stop_does_not_stop_a_replica_that_was_added_again(leader_epoch: int, error: object) -> None:
    """KIP-570."""

    async def scenario(replicas: Replicas) -> None:
        replicas.take(assignment_of(1, 2, epoch=5))
        assert stop(replicas, leader_epoch, delete=True) is error
        assert len(replicas.manager) == (1 if error else 0)

    with_replicas(scenario)


def test_a_stopped_replica_keeps_its_log_unless_it_is_to_be_deleted() -> None:
    async def scenario(replicas: Replicas) -> None:
        replicas.take(assignment_of(1, 2))
        partition = replicas.orders()
        append(partition.log, b"x")
        replicas.fetchers.calls.clear()
        assert stop(replicas, 5) is None
        assert replicas.fetchers.calls == [("forget", ORDERS)]
        with pytest.raises(NotLeaderOrFollower):
            partition.require_leader()
        assert replicas.take(assignment_of(1, 2, epoch=6)) == [None]
        assert replicas.orders().log.log_end_offset == 1

    with_replicas(scenario)


def test_a_deleted_partition_has_no_leader_for_those_who_still_hold_it() -> None:
    async def scenario(replicas: Replicas) -> None:
        replicas.take(assignment_of(1))
        partition = replicas.orders()
        assert stop(replicas, EPOCH_DURING_DELETE, delete=True) is None
        with pytest.raises(NotLeaderOrFollower):
            partition.require_leader()
        with pytest.raises(UnknownTopicOrPartition):
            replicas.orders()

    with_replicas(scenario)


def test_a_log_that_nobody_hosts_is_deleted_too() -> None:
    """The topic was deleted while this broker was away."""

    async def run() -> None:
        disk = MemoryDisk()
        replicas = await Replicas.on(disk)
        replicas.take(assignment_of(1))
        disk.crash(lambda path, unsynced_bytes: unsynced_bytes)
        again = await Replicas.on(disk)
        assert disk.exists("/data/orders-0")
        assert stop(again, EPOCH_DURING_DELETE, delete=True) is None
        assert not disk.exists("/data/orders-0")

    asyncio.run(run())


# ---- self-fencing


def test_after_a_session_has_ended_the_controller_may_name_the_same_epoch_again() -> None:
    async def scenario(replicas: Replicas) -> None:
        replicas.take(assignment_of(1, 2, leader=2, epoch=5))
        replicas.fetchers.calls.clear()
        replicas.manager.resign_all()
        assert replicas.fetchers.calls == [("forget", ORDERS)]
        with pytest.raises(NotLeaderOrFollower):
            replicas.orders().require_leader(5)
        assert replicas.take(assignment_of(1, 2, leader=2, epoch=5)) == [None]

    with_replicas(scenario)


def test_roles_given_while_suspended_begin_with_the_resumption() -> None:
    async def scenario(replicas: Replicas) -> None:
        replicas.manager.suspend()
        replicas.take(assignment_of(1, 2))
        assert replicas.orders().leader is None
        replicas.manager.resume()
        assert replicas.orders().leader is not None

    with_replicas(scenario)


def test_what_is_short_of_replicas_is_counted() -> None:
    async def scenario(replicas: Replicas) -> None:
        replicas.take(
            assignment_of(1, 2, in_sync=(1,)),
            assignment_of(1, 2, topic_partition=TopicPartition("orders", 1)),
            assignment_of(1, 2, leader=2, topic_partition=TopicPartition("orders", 2)),
        )
        manager = replicas.manager
        assert [each.is_under_replicated for each in manager.leaderships()].count(True) == 1
        assert [each.is_at_min_isr for each in manager.leaderships()].count(True) == 1
        assert manager.leader_count == sum(each.has_enough_in_sync for each in manager.leaderships()) == 2

    with_replicas(scenario)


def test_what_an_earlier_incarnation_was_to_lead_is_refused() -> None:
    """R41: this one may have come back with an empty disk."""

    async def scenario(replicas: Replicas) -> None:
        assignment = assignment_of(1, 2, is_new=False)._replace(in_sync_epochs={1: 10, 2: 20}, broker_epoch=11)
        assert replicas.take(assignment) == [StaleBrokerEpoch]
        assert replicas.take(assignment._replace(in_sync_epochs={1: 11, 2: 20}, leader_epoch=6)) == [None]
        assert replicas.take(assignment._replace(leader=2, leader_epoch=7)) == [None]
        assert replicas.take(assignment._replace(broker_epoch=-1, leader_epoch=8)) == [None]

    with_replicas(scenario)


def test_replicas_that_are_being_added_do_not_count_before_they_are_there() -> None:
    """R37: as long as a reassignment copies, writes are taken as before."""

    async def scenario(replicas: Replicas) -> None:
        replicas.take(assignment_of(2, 3, 1, in_sync=[1])._replace(adding_replicas=(2, 3), removing_replicas=(1,)))
        orders = replicas.orders()
        orders.configure(replace(orders.log.settings, min_insync_replicas=2))
        leader = orders.require_leader()
        assert (leader.effective_min_in_sync, leader.is_under_replicated) == (1, False)
        assert orders.is_being_reassigned
        leader.require_enough_in_sync()

    with_replicas(scenario)
