"""Log reads for Fetch requests (Kafka: FetchParams, Partition.readRecords): how far a reader may read (R15)."""

from collections.abc import Set as AbstractSet

from tidelog.protocol.messages.fetch import AbortedTransaction, EpochEndOffset, FetchPartition, PartitionData
from tidelog.storage.leader_epochs import EpochEnd
from tidelog.storage.log import Log
from tidelog.types import BrokerId

READ_UNCOMMITTED, READ_COMMITTED = ISOLATION_LEVELS = 0, 1
NO_BROKERS: frozenset[BrokerId] = frozenset()


class FetchParams:
    """Parameters that all partitions of one Fetch share."""

    __slots__ = ("fetch_only_leader", "is_follower", "isolation_level", "replica_epoch", "replica_id", "same_rack")

    def __init__(
        self,
        replica_id: BrokerId,
        replica_epoch: int,
        isolation_level: int,
        *,
        fetch_only_leader: bool = True,
        same_rack: AbstractSet[BrokerId] = NO_BROKERS,
    ) -> None:
        self.replica_id = replica_id
        self.replica_epoch = replica_epoch
        self.is_follower = replica_id >= 0
        self.isolation_level = isolation_level
        self.fetch_only_leader = fetch_only_leader
        """False: a follower may serve this consumer too (KIP-392)."""
        self.same_rack = same_rack
        """Brokers in the consumer's rack; empty if it is not to be sent to another replica."""


def readable_end(log: Log, isolation_level: int, *, is_follower: bool = False) -> int:
    """R15: followers read to the log end, consumers to the high watermark, read_committed to the last stable offset."""
    if is_follower:
        return log.log_end_offset
    return log.last_stable_offset if isolation_level == READ_COMMITTED else log.high_watermark


def without_records(log: Log, request: FetchPartition) -> PartitionData:
    """The offsets of a partition only."""
    return PartitionData(
        partition_index=request.partition,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.log_start_offset,
        records=b"",
    )


def read_records(
    log: Log,
    params: FetchParams,
    request: FetchPartition,
    max_bytes: int,
    *,
    diverging: EpochEnd | None,
    at_least_one_batch: bool,
    may_block: bool,
) -> PartitionData:
    """Read one partition. `at_least_one_batch` ignores `max_bytes` for the first batch, so that no reader gets stuck.

    Returns no records if the logs diverge: the follower must truncate first (KIP-595). Raises NotCached if the read
    would wait for the disk and `may_block` is false.
    """
    fetch_offset, is_follower = request.fetch_offset, params.is_follower
    data = without_records(log, request)
    if diverging is not None:
        data.diverging_epoch = EpochEndOffset(epoch=diverging.epoch, end_offset=diverging.end_offset)
        return data
    max_bytes = min(request.partition_max_bytes, max_bytes)
    if max_bytes <= 0 and not at_least_one_batch and log.log_start_offset <= fetch_offset <= log.log_end_offset:
        return data
    end = log.log_end_offset if is_follower else readable_end(log, params.isolation_level)
    found = log.read(fetch_offset, max_bytes, end, at_least_one_batch=at_least_one_batch, may_block=may_block).slice
    if found is not None:
        data.records = found
    if params.isolation_level == READ_COMMITTED and not is_follower:
        data.aborted_transactions = []
        if found is not None:
            end = log.end_of_slice(found, fetch_offset, end, may_block=may_block)
            data.aborted_transactions = [
                AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
                for aborted in log.aborted_transactions(fetch_offset, end)
            ]
    return data
