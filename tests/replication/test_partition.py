"""A hosted partition in its roles."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.replication.leaders import LAG_MS, START_MS, Replicas, assignment_of, fetch_as_follower, proposed
from tests.storage.logs import append, batch_of
from tidelog.config.topic import TopicSettings
from tidelog.errors import (
    FencedLeaderEpoch,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    UnknownLeaderEpoch,
)
from tidelog.replication.fetch_reads import readable_end
from tidelog.replication.partition import ACKS_ALL, Partition
from tidelog.runtime.clock import ManualClock
from tidelog.runtime.memory_disk import MemoryDisk
from tidelog.runtime.purgatory import Watchers


class Counter:
    """Observes a key."""

    is_waiting = False

    def __init__(self, watchers: Watchers) -> None:
        self.count = 0
        watchers.observers[self] = None

    def on_changed(self) -> None:
        self.count += 1


async def notified(*counters: Counter) -> list[int]:
    """How often each was notified since the last time."""
    await asyncio.sleep(0)
    counts = [counter.count for counter in counters]
    for counter in counters:
        counter.count = 0
    return counts


def with_replicas(scenario: Callable[[Replicas], Awaitable[None]], settings: TopicSettings | None = None) -> None:
    async def main() -> None:
        await scenario(await Replicas.on(MemoryDisk(), topic_settings=settings))

    asyncio.run(main())


def produce(partition: Partition, value: bytes = b"x", acks: int = 1) -> None:
    partition.append_as_leader(batch_of(value), acks)


def replicate(
    partition: Partition, *values: bytes, epoch: int = 5, high_watermark: int = 0, log_start: int = 0
) -> None:
    batch = batch_of(*values, base_offset=partition.log.log_end_offset, leader_epoch=epoch) if values else b""
    partition.append_as_follower(
        batch,
        leader_epoch=partition.leader_epoch,
        leader_high_watermark=high_watermark,
        leader_log_start_offset=log_start,
    )


# ---- as leader


def test_followers_move_the_high_watermark_of_the_log() -> None:
    async def scenario(replicas: Replicas) -> None:
        replicas.take(assignment_of(1, 2))
        partition = replicas.orders()
        watchers, end_watchers = Counter(partition.watchers), Counter(partition.end_watchers)
        await notified(watchers, end_watchers)
        produce(partition)
        assert await notified(watchers, end_watchers) == [0, 1]
        assert (readable_end(partition.log, 0), readable_end(partition.log, 0, is_follower=True)) == (0, 1)
        fetch_as_follower(partition, 2, 1, 0, START_MS)
        assert await notified(watchers, end_watchers) == [1, 0]
        assert readable_end(partition.log, 0) == 1

    with_replicas(scenario)


def test_acks_all_is_refused_before_the_append_when_too_few_are_in_sync() -> None:
    async def scenario(replicas: Replicas) -> None:
        replicas.take(assignment_of(1, 2, 3, in_sync=(1,)))
        partition = replicas.orders()
        with pytest.raises(NotEnoughReplicas):
            produce(partition, acks=ACKS_ALL)
        produce(partition, acks=1)
        assert (partition.log.log_end_offset, partition.log.high_watermark) == (1, 0)
        leader = partition.require_leader()
        assert (leader.has_enough_in_sync, leader.is_under_replicated, leader.is_at_min_isr) == (False, True, False)
        partition.configure(TopicSettings(min_insync_replicas=1))
        assert (partition.log.high_watermark, leader.is_at_min_isr) == (1, True)

    with_replicas(scenario, TopicSettings(min_insync_replicas=2))


@pytest.mark.parametrize(("asked", "error"), [(-1, None), (5, None), (4, FencedLeaderEpoch), (6, UnknownLeaderEpoch)])
def test_only_who_knows_the_present_epoch_is_answered(asked: int, error: type[Exception] | None) -> None:
    """KIP-320: the old fetch of a zombie would move the high watermark."""

    async def scenario(replicas: Replicas) -> None:
        replicas.take(assignment_of(1, 2, epoch=5))
        if error is None:
            assert replicas.orders().require_leader(asked).leader_epoch == 5
        else:
            with pytest.raises(error):
                replicas.orders().require_leader(asked)

    with_replicas(scenario)


def test_a_follower_tells_epochs_apart_before_it_says_that_it_does_not_lead() -> None:
    async def scenario(replicas: Replicas) -> None:
        replicas.take(assignment_of(1, 2, leader=2, epoch=5))
        for asked, error in ((-1, NotLeaderOrFollower), (5, NotLeaderOrFollower), (4, FencedLeaderEpoch)):
            with pytest.raises(error):
                replicas.orders().require_leader(asked)

    with_replicas(scenario)


def test_only_assigned_replicas_in_their_present_incarnation_may_fetch_as_followers() -> None:
    """R39."""

    async def scenario(replicas: Replicas) -> None:
        replicas.take(assignment_of(1, 2))
        replicas.manager.on_brokers_changed({1: 10, 2: 20, 3: 30})
        partition = replicas.orders()
        with pytest.raises(UnknownLeaderEpoch):
            fetch_as_follower(partition, 3, 0, replica_epoch=30)
        with pytest.raises(NotLeaderOrFollower):
            fetch_as_follower(partition, 2, 0, replica_epoch=19)
        fetch_as_follower(partition, 2, 0, replica_epoch=20)
        fetch_as_follower(partition, 2, 0)
        fetch_as_follower(partition, 2, 0, replica_epoch=21)
        with pytest.raises(NotLeaderOrFollower):
            fetch_as_follower(partition, 2, 0, replica_epoch=20)

    with_replicas(scenario)


def test_a_suspended_leader_leads_nobody_and_goes_on_where_it_was() -> None:
    async def scenario(replicas: Replicas) -> None:
        replicas.take(assignment_of(1, 2))
        partition = replicas.orders()
        produce(partition)
        watchers = Counter(partition.watchers)
        replicas.manager.suspend()
        assert await notified(watchers) == [1]
        with pytest.raises(NotLeaderOrFollower):
            produce(partition)
        with pytest.raises(NotLeaderOrFollower):
            fetch_as_follower(partition, 2, 1, 0, START_MS)
        assert partition.log.high_watermark == 0
        replicas.manager.resume()
        assert await notified(watchers) == [1]
        assert partition.require_leader(5).leader_epoch == 5
        fetch_as_follower(partition, 2, 1, 0, START_MS)
        assert partition.log.high_watermark == 1

    with_replicas(scenario)


def test_nobody_leaves_because_the_leader_was_suspended() -> None:
    async def scenario(replicas: Replicas) -> None:
        replicas.take(assignment_of(1, 2))
        partition = replicas.orders()
        produce(partition)
        leader = partition.require_leader()
        replicas.manager.suspend()
        leader.followers[2].caught_up_ms = -10 * LAG_MS
        replicas.manager.resume()
        leader = partition.require_leader()
        partition.perform(leader, leader.on_check(replicas.manager.monotonic_ms() + LAG_MS))
        assert leader.pending is None

    with_replicas(scenario)


def test_who_waits_is_notified_when_the_log_start_moves() -> None:
    """Fetch sessions look only at what changed."""

    async def scenario(replicas: Replicas) -> None:
        replicas.take(assignment_of(1))
        partition = replicas.orders()
        produce(partition)
        produce(partition)
        counters = [Counter(partition.watchers), Counter(partition.end_watchers)]
        await notified(*counters)
        partition.delete_records_before(1)
        assert await notified(*counters) == [1, 1]
        partition.log.roll()
        partition.log.advance_log_start_offset(2)
        await notified(*counters)
        append(partition.log, b"z")
        partition.log.raise_high_watermark(3)
        partition.log.roll()
        partition.log.settings = TopicSettings(retention_bytes=0)
        assert partition.log.delete_old_segments(START_MS)
        assert partition.log.log_start_offset == 3
        assert await notified(*counters) == [1, 1]

    with_replicas(scenario)


def test_records_are_deleted_when_all_live_replicas_have_let_go_of_them() -> None:
    async def scenario(replicas: Replicas) -> None:
        replicas.take(assignment_of(1, 2))
        partition = replicas.orders()
        produce(partition)
        fetch_as_follower(partition, 2, 1, 0, START_MS)
        waiting = Counter(partition.low_watermark_watchers)
        assert partition.delete_records_before(-1) == 1
        assert partition.low_watermark() == 0
        await notified(waiting)
        fetch_as_follower(partition, 2, 1, 1, START_MS)
        assert await notified(waiting) == [1]
        assert partition.low_watermark() == 1

    with_replicas(scenario)


def test_a_dead_replica_does_not_keep_records_from_being_deleted() -> None:
    async def scenario(replicas: Replicas) -> None:
        replicas.take(assignment_of(1, 2))
        partition = replicas.orders()
        waiting = Counter(partition.low_watermark_watchers)
        assert partition.low_watermark() == -1
        await notified(waiting)
        replicas.manager.on_brokers_changed({1: -1})
        assert await notified(waiting) == [1]
        assert partition.low_watermark() == 0

    with_replicas(scenario)


# ---- as follower


def test_a_follower_takes_records_then_the_high_watermark_then_the_log_start() -> None:
    async def scenario(replicas: Replicas) -> None:
        replicas.take(assignment_of(1, 2, leader=2))
        partition = replicas.orders()
        watchers = Counter(partition.watchers)
        await notified(watchers)
        replicate(partition, b"a", b"b", high_watermark=7)
        log = partition.log
        assert (log.log_end_offset, log.high_watermark, log.log_start_offset) == (2, 2, 0)
        assert await notified(watchers) == [1]
        replicate(partition, b"c", high_watermark=1, log_start=1)
        assert (log.log_end_offset, log.high_watermark, log.log_start_offset) == (3, 2, 1)
        replicate(partition, high_watermark=3, log_start=9)
        assert (log.high_watermark, log.log_start_offset) == (3, 1), "a log start beyond the high watermark waits"

    with_replicas(scenario)


def test_what_was_fetched_in_an_earlier_epoch_counts_for_nothing() -> None:
    async def scenario(replicas: Replicas) -> None:
        replicas.take(assignment_of(1, 2, leader=2, epoch=5))
        partition = replicas.orders()
        replicate(partition, b"a")
        replicas.take(assignment_of(1, 2, leader=2, epoch=6))
        with pytest.raises(NotLeaderOrFollower):
            partition.append_as_follower(b"", leader_epoch=5, leader_high_watermark=1, leader_log_start_offset=0)
        with pytest.raises(NotLeaderOrFollower):
            partition.truncate_to(0, leader_epoch=5)
        with pytest.raises(NotLeaderOrFollower):
            partition.truncate_fully_and_start_at(9, leader_epoch=5)
        assert (partition.log.log_end_offset, partition.log.high_watermark) == (1, 0)

    with_replicas(scenario)


def test_a_leader_takes_nothing_as_a_follower() -> None:
    async def scenario(replicas: Replicas) -> None:
        replicas.take(assignment_of(1, 2))
        with pytest.raises(NotLeaderOrFollower):
            replicate(replicas.orders(), b"a")

    with_replicas(scenario)


def test_a_follower_takes_no_batch_of_a_later_epoch_than_it_fetched_in() -> None:
    """KAFKA-18723."""

    async def scenario(replicas: Replicas) -> None:
        replicas.take(assignment_of(1, 2, leader=2, epoch=5))
        partition = replicas.orders()
        first = bytes(batch_of(b"a", leader_epoch=5))
        later = bytes(batch_of(b"b", base_offset=1, leader_epoch=6))
        partition.append_as_follower(first + later, leader_epoch=5, leader_high_watermark=0, leader_log_start_offset=0)
        assert partition.log.log_end_offset == 1
        with pytest.raises(FencedLeaderEpoch):
            partition.append_as_follower(later, leader_epoch=5, leader_high_watermark=2, leader_log_start_offset=0)
        assert (partition.log.log_end_offset, partition.log.high_watermark) == (1, 0)

    with_replicas(scenario)


def test_a_follower_is_never_cut_below_its_log_start() -> None:
    async def scenario(replicas: Replicas) -> None:
        replicas.take(assignment_of(1, 2, leader=2))
        partition = replicas.orders()
        for value in (b"a", b"b", b"c"):
            replicate(partition, value, high_watermark=3)
        replicate(partition, high_watermark=3, log_start=2)
        partition.truncate_to(1, leader_epoch=5)
        log = partition.log
        assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (2, 2, 2)
        partition.truncate_fully_and_start_at(50, leader_epoch=5)
        assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (50, 50, 50)

    with_replicas(scenario)


def test_the_log_start_of_a_follower_does_not_pass_its_high_watermark() -> None:
    """R4: a leader that was just elected may know a log start that its own high watermark has not reached yet."""

    async def scenario(replicas: Replicas) -> None:
        replicas.take(assignment_of(1, 2, leader=2))
        partition = replicas.orders()
        replicate(partition, b"a", b"b", b"c", high_watermark=1, log_start=2)
        assert (partition.log.log_start_offset, partition.log.high_watermark) == (0, 1)
        replicate(partition, high_watermark=2, log_start=2)
        assert (partition.log.log_start_offset, partition.log.high_watermark) == (2, 2)

    with_replicas(scenario)


def test_a_late_answer_about_in_sync_replicas_is_nothing_to_the_leadership_that_follows() -> None:
    """R20: of a leader that is no more, not even its high watermark counts."""

    async def main() -> None:
        clock = ManualClock(START_MS)
        replicas = await Replicas.on(MemoryDisk(), clock=clock)
        replicas.take(assignment_of(1, 2))
        partition = replicas.orders()
        earlier = partition.require_leader()
        produce(partition)
        clock.advance(LAG_MS + 1)
        proposal = proposed(earlier.on_check(clock.now_ms()))
        assert proposal is not None
        assert proposal.in_sync_replicas == (1,)
        replicas.take(assignment_of(1, 2, leader=2, epoch=6))
        partition.perform(earlier, earlier.on_written((1,), 1, clock.now_ms()))
        assert partition.log.high_watermark == 0, "the new leader may not have it"
        replicas.take(assignment_of(1, 2, epoch=7, version=9))
        partition.perform(earlier, earlier.on_written((1,), 1, clock.now_ms()))
        assert partition.log.high_watermark == 0
        assert partition.require_leader().version == 9

    asyncio.run(main())
