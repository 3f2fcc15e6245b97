"""Decisions of log compaction: the cleanable section of a log, and the records that it retains.

Compaction keeps the latest record of every key, in its place and with its offset. Tombstones and transaction markers
are removed last, after readers had delete.retention.ms to see them (KIP-534).
"""

# Core: no clock, no I/O, no await.

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from heapq import heappop, heappush
from itertools import pairwise
from typing import Final, NamedTuple

from tidelog.config.topic import TopicSettings
from tidelog.errors import CorruptMessage
from tidelog.kernels import kernels
from tidelog.protocol.compression import compress
from tidelog.protocol.record_batch import (
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    assemble,
    crc_matches,
)
from tidelog.protocol.records import (
    ControlType,
    RawRecord,
    build_empty_batch,
    codec_of,
    is_tombstone,
    payload_of,
    raw_records,
    read_end_marker,
    with_base_timestamp,
)
from tidelog.storage.transaction_index import AbortedTransaction
from tidelog.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP, Buffer

MAX_OFFSET_RANGE: Final = 2**31 - 1
"""Index entries hold offsets relative to the base offset in 32 bits."""

BYTES_PER_KEY: Final = 200
"""Memory of one key in the offset map: a 16-byte hash, an offset and their share of the dict."""

_HASH_BYTES: Final = 16
_CHECKED_AT_A_TIME: Final = 10_000
"""Records after which a worker yields the interpreter to the event loop."""
_FIRST_INT64, _LAST_INT64 = -(2**63), 2**63 - 1


class SegmentFacts(NamedTuple):
    """Properties of a segment that the choice depends on."""

    base_offset: int
    size_bytes: int
    largest_timestamp: int
    first_timestamp: int


class LogFacts(NamedTuple):
    """Properties of a log that the choice depends on. The last segment is the active one."""

    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int
    segments: Sequence[SegmentFacts]


class CleanableRange(NamedTuple):
    """The log is clean up to `first_dirty_offset`, and cleanable from there to `first_uncleanable_offset`."""

    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    cleanable_bytes: int
    is_overdue: bool
    """Whether a record is older than max.compaction.lag.ms."""

    @property
    def dirty_ratio(self) -> float:
        total_bytes = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total_bytes if total_bytes else 0.0

    def is_due(self, settings: TopicSettings) -> bool:
        if self.cleanable_bytes == 0:
            return False
        return self.is_overdue or self.dirty_ratio > settings.min_cleanable_dirty_ratio


def cleanable_range(log: LogFacts, clean_until: int | None, settings: TopicSettings, now_ms: int) -> CleanableRange:
    """`clean_until` is the cleaner checkpoint. The cleanable section ends at a segment boundary."""
    first_dirty_offset = _first_dirty_offset(log, clean_until)
    limit = max(first_dirty_offset, _first_uncleanable_offset(log, first_dirty_offset, settings, now_ms))
    clean: list[SegmentFacts] = []
    dirty: list[SegmentFacts] = []
    first_uncleanable_offset = log.segments[-1].base_offset
    for segment, end_offset in reversed(_sealed_with_ends(log)):
        if end_offset > limit:
            first_uncleanable_offset = segment.base_offset
        (dirty if end_offset > first_dirty_offset else clean).append(segment)
    oldest = min((segment.first_timestamp for segment in dirty if segment.first_timestamp > 0), default=now_ms)
    return CleanableRange(
        first_dirty_offset,
        first_uncleanable_offset,
        clean_bytes=sum(segment.size_bytes for segment in clean),
        cleanable_bytes=sum(segment.size_bytes for segment in dirty if segment.base_offset < first_uncleanable_offset),
        is_overdue=now_ms - oldest > settings.max_compaction_lag_ms,
    )


def _sealed_with_ends(log: LogFacts) -> list[tuple[SegmentFacts, int]]:
    """All segments but the active one, each with the base offset of the next one."""
    return [(segment, following.base_offset) for segment, following in pairwise(log.segments)]


def _first_dirty_offset(log: LogFacts, clean_until: int | None) -> int:
    """A checkpoint outside the log is ignored: then the whole log is dirty."""
    if clean_until is None or not log.log_start_offset <= clean_until <= log.log_end_offset:
        return log.log_start_offset
    return clean_until


def _first_uncleanable_offset(log: LogFacts, first_dirty_offset: int, settings: TopicSettings, now_ms: int) -> int:
    """Excludes the active segment, open transactions and records younger than min.compaction.lag.ms."""
    limits = [log.last_stable_offset, log.segments[-1].base_offset]
    if settings.min_compaction_lag_ms > 0:
        limits += [
            segment.base_offset
            for segment, end in _sealed_with_ends(log)
            if end > first_dirty_offset and segment.largest_timestamp > now_ms - settings.min_compaction_lag_ms
        ]
    return min(limits)


class GroupableSegment(NamedTuple):
    base_offset: int
    end_offset: int
    size_bytes: int
    offset_index_bytes: int
    time_index_bytes: int


def group_segments(segments: Sequence[GroupableSegment], settings: TopicSettings) -> list[list[GroupableSegment]]:
    """Group adjacent segments that fit into one, so that cleaning does not leave many small files."""
    groups: list[list[GroupableSegment]] = []
    for segment in segments:
        if groups and _fits([*groups[-1], segment], settings):
            groups[-1].append(segment)
        else:
            groups.append([segment])
    return groups


def _fits(group: Sequence[GroupableSegment], settings: TopicSettings) -> bool:
    last = group[-1]
    return (
        sum(segment.size_bytes for segment in group) <= settings.segment_bytes
        and sum(segment.offset_index_bytes for segment in group) <= settings.segment_index_bytes
        and sum(segment.time_index_bytes for segment in group) <= settings.segment_index_bytes
        and (last.size_bytes == 0 or last.end_offset - 1 - group[0].base_offset <= MAX_OFFSET_RANGE)
    )


class OffsetMap:
    """Latest offset of every key in the dirty section, with bounded memory."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = max(1, limit_bytes // BYTES_PER_KEY)
        self._offsets: dict[bytes, int] = {}
        self.end_offset = -1
        """The map covers all offsets before this one."""

    @property
    def is_full(self) -> bool:
        return len(self._offsets) >= self._limit

    def __len__(self) -> int:
        return len(self._offsets)

    def put(self, key: bytes, offset: int) -> None:
        self._offsets[_key_hash(key)] = offset

    def latest_offset(self, key: bytes) -> int:
        return self._offsets.get(_key_hash(key), -1)

    def covers_up_to(self, end_offset: int) -> None:
        self.end_offset = max(self.end_offset, end_offset)


def _key_hash(key: bytes) -> bytes:
    """Keys shorter than 16 bytes are used as they are: they cannot equal a hash, which has 16 bytes.

    The hash is cryptographic: with a weaker one a producer could find a collision and delete records of other keys.
    """
    return key if len(key) < _HASH_BYTES else hashlib.blake2b(key, digest_size=_HASH_BYTES).digest()


class TransactionTracker:
    """Tracks transactions along the log: which records are aborted, and which markers are no longer needed."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._waiting: list[tuple[int, int, AbortedTransaction]] = []
        for transaction in aborted:
            heappush(self._waiting, (transaction.first_offset, transaction.last_offset, transaction))
        self._aborting: dict[int, AbortedTransaction] = {}
        self._aborting_with_records: set[int] = set()
        self._committing_with_records: set[int] = set()
        self._still_needed: list[AbortedTransaction] = []

    def pop_needed(self) -> list[AbortedTransaction]:
        """Aborted transactions that ended since the last call and that readers still need."""
        needed, self._still_needed = self._still_needed, []
        return needed

    def is_aborted(self, header: BatchHeader) -> bool:
        """Must be called for every data batch, in log order."""
        self._start_transactions_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        if header.producer_id in self._aborting:
            self._aborting_with_records.add(header.producer_id)
            return True
        self._committing_with_records.add(header.producer_id)
        return False

    def is_marker_of_nothing(self, header: BatchHeader, batch: Buffer) -> bool:
        """Must be called for every control batch. Whether its transaction has no batch before it."""
        self._start_transactions_up_to(header.last_offset)
        if header.record_count == 0:
            return True
        marker = read_end_marker(batch)
        if marker is None:
            return False
        if marker.control_type is ControlType.COMMIT:
            had_records = header.producer_id in self._committing_with_records
            self._committing_with_records.discard(header.producer_id)
            return not had_records
        return self._end_aborted(header.producer_id)

    def _end_aborted(self, producer_id: int) -> bool:
        transaction = self._aborting.pop(producer_id, None)
        if transaction is None or producer_id not in self._aborting_with_records:
            return True
        self._aborting_with_records.discard(producer_id)
        self._still_needed.append(transaction)
        return False

    def _start_transactions_up_to(self, offset: int) -> None:
        while self._waiting and self._waiting[0][0] <= offset:
            transaction = heappop(self._waiting)[2]
            self._aborting.setdefault(transaction.producer_id, transaction)


def map_batch(
    offset_map: OffsetMap, transactions: TransactionTracker, header: BatchHeader, batch: Buffer, first_offset: int
) -> bool:
    """Add the keys of a batch from `first_offset` on. False if the map is full."""
    if offset_map.is_full:
        return False
    if header.is_control:
        transactions.is_marker_of_nothing(header, batch)
    elif not transactions.is_aborted(header):
        check_crc(batch, header)
        payload = readable_payload(batch, header)
        if payload is not None and not _map_records(offset_map, header, payload, first_offset):
            return False
    offset_map.covers_up_to(header.end_offset)
    return True


def _map_records(offset_map: OffsetMap, header: BatchHeader, payload: bytes, first_offset: int) -> bool:
    for record in raw_records(payload, header.record_count):
        offset = header.base_offset + record.offset_delta
        if record.key is not None and offset >= first_offset:
            if (
                offset_map.is_full
            ):  # one batch may have more keys than fit into the map, which then covers a part of the batch
                offset_map.covers_up_to(offset)
                return False
            offset_map.put(record.key, offset)
    return True


def readable_payload(batch: Buffer, header: BatchHeader) -> bytes | None:
    """The records of a batch; None if a record is malformed, so that the batch cannot be rewritten.

    Brokers that did not check records have accepted such batches.
    """
    try:
        payload = payload_of(batch, header)
    except CorruptMessage:
        return None
    base_timestamp = 0 if header.has_log_append_time else header.base_timestamp
    check = kernels.RecordCheck(payload, 0, header.record_count, base_timestamp, _FIRST_INT64, _LAST_INT64, False, 1)
    while not check.advance(_CHECKED_AT_A_TIME):
        pass
    if header.record_count < 0 or check.problem or check.listed:
        return None
    in_range = all(
        0 <= raw.offset_delta <= header.last_offset_delta for raw in raw_records(payload, header.record_count)
    )
    return payload if check.is_consecutive or in_range else None


def check_crc(batch: Buffer, header: BatchHeader) -> None:
    """A corrupt batch must not be rewritten with a valid CRC."""
    if not crc_matches(batch, header):
        raise CorruptMessage(f"the batch at offset {header.base_offset} fails its CRC")


class LastRecord(NamedTuple):
    """Last batch of a producer, which must be retained to restore the producer state after a restart."""

    last_offset: int | None
    """Last offset of its last data batch; None if only a marker of its epoch is left."""
    epoch: int


class BatchFilter:
    """Decides for each batch, in log order, which records are retained."""

    def __init__(
        self,
        offset_map: OffsetMap,
        transactions: TransactionTracker,
        producers: Mapping[int, LastRecord],
        *,
        kept_end_offsets: Collection[int],
        now_ms: int,
        delete_retention_ms: int,
        may_delete_tombstones: bool = True,
    ) -> None:
        self._map = offset_map
        self._transactions = transactions
        self._producers = producers
        self._kept_end_offsets = kept_end_offsets
        """End offsets of the new segments: each must end where the next one begins (R6)."""
        self._now_ms = now_ms
        self._delete_retention_ms = delete_retention_ms
        self._may_delete_tombstones = may_delete_tombstones
        """False while a replica may not have them yet. The same holds for transaction markers."""
        self.unreadable: list[int] = []
        """Base offsets of unreadable batches, which are kept unchanged."""

    def retained(self, header: BatchHeader, batch: Buffer) -> Buffer | None:
        """The batch to write in place of `batch`; None if none of it is retained."""
        check_crc(batch, header)
        is_needless = (
            self._transactions.is_marker_of_nothing(header, batch)
            if header.is_control
            else self._transactions.is_aborted(header)
        )
        if is_needless and (not header.is_control or self._is_past_horizon(header)):
            return self._without_records(header)
        payload = readable_payload(batch, header)
        if payload is None:
            self.unreadable.append(header.base_offset)
            return batch
        kept = _Kept()
        for record in raw_records(payload, header.record_count):
            if header.is_control or self._stays(header, payload, record):
                kept.add(payload, record)
        if not kept.count:
            return self._without_records(header)
        needs_horizon = (is_needless or kept.has_tombstones) and header.delete_horizon_ms is None
        if kept.count == header.record_count and not needs_horizon:
            return batch
        return self._rewritten(header, payload, kept, needs_horizon)

    def _is_past_horizon(self, header: BatchHeader) -> bool:
        horizon_ms = header.delete_horizon_ms
        return self._may_delete_tombstones and horizon_ms is not None and horizon_ms <= self._now_ms

    def _without_records(self, header: BatchHeader) -> bytearray | None:
        """Kept as a header: the last batch of a producer for its sequence, the last one of a segment for its offset."""
        if self._is_last_of_its_producer(header):
            return build_empty_batch(header)
        if header.end_offset in self._kept_end_offsets:
            return build_empty_batch(_of_no_producer(header))
        return None

    def _is_last_of_its_producer(self, header: BatchHeader) -> bool:
        last = self._producers.get(header.producer_id) if header.producer_id >= 0 else None
        if last is None:
            return False
        if last.last_offset is not None:
            return header.last_offset == last.last_offset
        return header.is_control and header.producer_epoch == last.epoch

    def _stays(self, header: BatchHeader, payload: bytes, record: RawRecord) -> bool:
        offset = header.base_offset + record.offset_delta
        if offset >= self._map.end_offset:
            return True
        if record.key is None or offset < self._map.latest_offset(record.key):
            return False
        return not (self._is_past_horizon(header) and is_tombstone(payload, record))

    def _rewritten(self, header: BatchHeader, payload: bytes, kept: "_Kept", needs_horizon: bool) -> bytearray:
        """Keeps base and last offset, and with them the producer's sequence numbers."""
        if not header.has_log_append_time:
            header = header._replace(max_timestamp=header.base_timestamp + kept.largest_delta)
        written: Buffer = bytearray().join(payload[start:end] for start, end in kept.ranges)
        if needs_horizon:
            horizon_ms = self._now_ms + self._delete_retention_ms
            records = raw_records(bytes(written), kept.count)
            written = with_base_timestamp(bytes(written), records, header.base_timestamp, horizon_ms)
            header = header._replace(base_timestamp=horizon_ms, attributes=header.attributes | DELETE_HORIZON_BIT)
        return assemble(header._replace(record_count=kept.count), compress(codec_of(header), written))


def _of_no_producer(header: BatchHeader) -> BatchHeader:
    """Belongs to no transaction, whose marker would have to stay as long, and to no time: no index names it."""
    return header._replace(
        attributes=header.attributes & ~(TRANSACTIONAL_BIT | CONTROL_BIT),
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_sequence=NO_SEQUENCE,
        max_timestamp=NO_TIMESTAMP,
    )


class _Kept:
    """Retained records of a batch, as ranges of its payload: a batch may have millions of records."""

    def __init__(self) -> None:
        self.count = 0
        self.ranges: list[tuple[int, int]] = []
        self.largest_delta = 0
        self.has_tombstones = False

    def add(self, payload: bytes, record: RawRecord) -> None:
        start = record.start
        if self.ranges and self.ranges[-1][1] == start:
            start = self.ranges.pop()[0]
        self.ranges.append((start, record.end))
        self.largest_delta = max(self.largest_delta, record.timestamp_delta) if self.count else record.timestamp_delta
        self.count += 1
        self.has_tombstones = self.has_tombstones or is_tombstone(payload, record)
