"""The leader's half of a Fetch: one call, which checks, compares epochs, records and reads."""

import asyncio
from collections.abc import Callable

import pytest

from tests.replication.leaders import START_MS, Replicas, assignment_of
from tests.storage.logs import batch_of
from tidelog.errors import FencedLeaderEpoch, KafkaError, NotLeaderOrFollower, OffsetOutOfRange, UnknownLeaderEpoch
from tidelog.protocol.messages.fetch import FetchPartition, PartitionData
from tidelog.replication.fetch_reads import READ_UNCOMMITTED, FetchParams
from tidelog.replication.partition import Partition
from tidelog.runtime.memory_disk import MemoryDisk
from tidelog.store.memory import MemoryStore, MemoryStoreState

CONSUMER = -1
PLENTY = 1_000_000


def with_leader(scenario: Callable[[Partition], None], records: int = 2) -> None:
    """Of a partition with followers 2 and 3, in epoch 5, with so many records that nobody has fetched."""

    async def main() -> None:
        replicas = await Replicas.on(MemoryDisk())
        replicas.take(assignment_of(1, 2, 3))
        for _ in range(records):
            replicas.orders().append_as_leader(batch_of(b"x"), 1)
        scenario(replicas.orders())

    asyncio.run(main())


def fetch(
    partition: Partition,
    offset: int,
    *,
    replica_id: int = CONSUMER,
    epoch: int = -1,
    last_epoch: int = -1,
    recorded_at_ms: int | None = START_MS,
) -> PartitionData:
    request = FetchPartition(
        partition=0,
        current_leader_epoch=epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch,
        log_start_offset=0,
        partition_max_bytes=PLENTY,
    )
    params = FetchParams(replica_id, -1, READ_UNCOMMITTED)
    at_ms = recorded_at_ms if params.is_follower else None
    return partition.fetch_records(params, request, PLENTY, recorded_at_ms=at_ms)


def test_a_follower_is_recorded_before_it_is_answered() -> None:
    def scenario(partition: Partition) -> None:
        fetch(partition, 1, replica_id=3)
        assert fetch(partition, 1, replica_id=2).high_watermark == 1

    with_leader(scenario)


def test_a_read_that_is_repeated_records_nothing() -> None:
    def scenario(partition: Partition) -> None:
        fetch(partition, 2, replica_id=3)
        assert fetch(partition, 2, replica_id=2, recorded_at_ms=None).high_watermark == 0
        assert not partition.require_leader().followers[2].has_fetched

    with_leader(scenario)


@pytest.mark.parametrize(
    ("offset", "epoch", "last_epoch", "error"),
    [(2, 4, -1, FencedLeaderEpoch), (2, 6, -1, UnknownLeaderEpoch), (3, 5, 5, OffsetOutOfRange)],
)
def test_a_fetch_that_is_refused_is_not_recorded(
    offset: int, epoch: int, last_epoch: int, error: type[KafkaError]
) -> None:
    def scenario(partition: Partition) -> None:
        with pytest.raises(error):
            fetch(partition, offset, replica_id=2, epoch=epoch, last_epoch=-1 if offset == 3 else last_epoch)
        assert not partition.require_leader().followers[2].has_fetched

    with_leader(scenario)


def test_a_follower_that_has_diverged_learns_where_and_is_not_recorded() -> None:
    def scenario(partition: Partition) -> None:
        partition.log.leader_epochs.clear()
        partition.log.leader_epochs.assign(3, 0)
        partition.log.leader_epochs.assign(5, 1)
        data = fetch(partition, 2, replica_id=2, last_epoch=4)
        assert data.diverging_epoch is not None
        assert (data.diverging_epoch.epoch, data.diverging_epoch.end_offset, data.records) == (3, 1, b"")
        assert not partition.require_leader().followers[2].has_fetched

    with_leader(scenario)


def test_a_broker_whose_lease_is_over_serves_consumers_only() -> None:
    """Before a timer has fired."""

    async def main() -> None:
        store = MemoryStore(MemoryStoreState())
        replicas = await Replicas.on(MemoryDisk(), store=store)
        replicas.take(assignment_of(1, 2))
        partition = replicas.orders()
        partition.append_as_leader(batch_of(b"x"), 1)
        fetch(partition, 1, replica_id=2)
        store.lease.end = 0.0
        for act in (
            lambda: partition.append_as_leader(batch_of(b"y"), 1),
            lambda: fetch(partition, 1, replica_id=2),
            lambda: partition.delete_records_before(1),
        ):
            with pytest.raises(NotLeaderOrFollower):
                act()
        assert fetch(partition, 0).records

    asyncio.run(main())


def test_it_is_known_without_reading_whether_a_fetch_would_bring_something() -> None:
    def scenario(partition: Partition) -> None:
        def is_ready(offset: int, replica_id: int, epoch: int = 5) -> bool:
            request = FetchPartition(partition=0, current_leader_epoch=epoch, fetch_offset=offset)
            return partition.is_ready_to_fetch(FetchParams(replica_id, -1, READ_UNCOMMITTED), request)

        assert is_ready(1, replica_id=2)
        assert not is_ready(2, replica_id=2)
        assert not is_ready(0, CONSUMER), "nothing is committed"
        assert is_ready(2, replica_id=2, epoch=4), "it would be fenced"
        assert is_ready(2, replica_id=9), "it would be refused"
        partition.resign()
        assert is_ready(2, replica_id=2)
        assert is_ready(0, CONSUMER)

    with_leader(scenario)


# ---- consumers at followers (KIP-392)


def with_follower(scenario: Callable[[Partition], None]) -> None:
    """Of a partition that follows broker 2 in epoch 5, with three records of which two are committed."""

    async def main() -> None:
        replicas = await Replicas.on(MemoryDisk())
        replicas.take(assignment_of(1, 2, leader=2))
        partition = replicas.orders()
        for offset in range(3):
            partition.append_as_follower(
                batch_of(b"x", base_offset=offset, leader_epoch=5),
                leader_epoch=5,
                leader_high_watermark=2,
                leader_log_start_offset=0,
            )
        scenario(partition)

    asyncio.run(main())


def read(
    partition: Partition, offset: int, *, epoch: int = -1, only_leader: bool = False, same_rack: tuple[int, ...] = ()
) -> PartitionData:
    params = FetchParams(CONSUMER, -1, READ_UNCOMMITTED, fetch_only_leader=only_leader, same_rack=frozenset(same_rack))
    request = FetchPartition(
        partition=0, current_leader_epoch=epoch, fetch_offset=offset, partition_max_bytes=PLENTY, last_fetched_epoch=-1
    )
    return partition.fetch_records(params, request, PLENTY)


def test_a_follower_serves_consumers_up_to_its_own_high_watermark() -> None:
    def scenario(partition: Partition) -> None:
        data = read(partition, 0)
        assert data.records
        assert len(data.records) == 2 * len(batch_of(b"x"))
        assert (data.high_watermark, data.last_stable_offset, data.preferred_read_replica) == (2, 2, -1)
        assert not read(partition, 2).records

    with_follower(scenario)


def test_a_follower_does_not_serve_consumers_before_fetch_11() -> None:
    def scenario(partition: Partition) -> None:
        with pytest.raises(NotLeaderOrFollower):
            read(partition, 0, only_leader=True)

    with_follower(scenario)


@pytest.mark.parametrize(
    ("offset", "epoch", "error"),
    [(0, 4, FencedLeaderEpoch), (0, 6, UnknownLeaderEpoch), (4, 5, OffsetOutOfRange), (0, 5, None), (3, 5, None)],
)
def test_a_follower_checks_epoch_and_offset(offset: int, epoch: int, error: type[KafkaError] | None) -> None:
    def scenario(partition: Partition) -> None:
        if error is None:
            read(partition, offset, epoch=epoch)
        else:
            with pytest.raises(error):
                read(partition, offset, epoch=epoch)

    with_follower(scenario)


def test_a_replica_without_a_role_serves_nobody() -> None:
    def scenario(partition: Partition) -> None:
        partition.resign()
        with pytest.raises(NotLeaderOrFollower):
            read(partition, 0)

    with_follower(scenario)


def test_a_consumer_that_waits_at_a_follower_is_ready_when_it_can_read_or_its_offset_was_truncated() -> None:
    def scenario(partition: Partition) -> None:
        params = FetchParams(CONSUMER, -1, READ_UNCOMMITTED, fetch_only_leader=False)
        request = FetchPartition(partition=0, current_leader_epoch=5, fetch_offset=2)
        assert not partition.is_ready_to_fetch(params, request)
        partition.append_as_follower(b"", leader_epoch=5, leader_high_watermark=3, leader_log_start_offset=0)
        assert partition.is_ready_to_fetch(params, request)
        request.fetch_offset = 3
        assert not partition.is_ready_to_fetch(params, request)
        partition.truncate_to(1, leader_epoch=5)
        assert partition.is_ready_to_fetch(params, request)

    with_follower(scenario)


def test_the_leader_names_the_preferred_replica_and_reads_nothing() -> None:
    def scenario(partition: Partition) -> None:
        fetch(partition, 1, replica_id=2)
        fetch(partition, 1, replica_id=3)
        data = read(partition, 0, same_rack=(2,))
        assert (data.preferred_read_replica, data.records, data.high_watermark) == (2, b"", 1)
        assert read(partition, 0, same_rack=(1, 2)).records
        with pytest.raises(FencedLeaderEpoch):
            read(partition, 0, same_rack=(2,), epoch=4)

    with_leader(scenario)


def test_a_follower_sends_nobody_elsewhere() -> None:
    with_follower(lambda partition: _has_records(read(partition, 0, same_rack=(2,))))


def _has_records(data: PartitionData) -> None:
    assert data.records
    assert data.preferred_read_replica == -1


def test_a_fetch_of_a_follower_that_names_its_high_watermark_is_ready_with_a_newer_one() -> None:
    def scenario(partition: Partition) -> None:
        fetch(partition, 2, replica_id=3)
        params = FetchParams(2, -1, READ_UNCOMMITTED)
        request = FetchPartition(partition=0, current_leader_epoch=5, fetch_offset=2)
        assert not partition.is_ready_to_fetch(params, request)
        request.high_watermark = 0
        assert not partition.is_ready_to_fetch(params, request)
        fetch(partition, 2, replica_id=2)
        assert partition.is_ready_to_fetch(params, request)
        request.high_watermark = 2
        assert not partition.is_ready_to_fetch(params, request)

    with_leader(scenario)
