"""The checks a batch must pass before a leader appends it, in Kafka's order and with Kafka's error codes.

The common case costs one header and one CRC. Records are looked at only where a setting of the topic asks for it:
keys on a compacted topic, timestamps under message.timestamp.before.max.ms, another codec by compression.type.
"""

from collections.abc import Iterator
from enum import Enum
from typing import Final, NamedTuple

from tidelog.config.topic import TopicSettings
from tidelog.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    RecordError,
    UnsupportedCompressionType,
)
from tidelog.protocol.checksums import crc32c
from tidelog.protocol.compression import CODECS_BY_SETTING, Codec, compress
from tidelog.protocol.record_batch import (
    ATTRIBUTES,
    COMPRESSION_MASK,
    CONTROL_BIT,
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LENGTH_OVERHEAD_BYTES,
    MAGIC,
    MAX_TIMESTAMP,
    MAX_TIMESTAMP_POSITION,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
    assemble,
    read_header,
    seal,
)
from tidelog.protocol.records import payload_of, raw_records, timestamp_of
from tidelog.types import NO_TIMESTAMP

_LAST_CODEC: Final = int(max(Codec))
_UNUSUAL_ATTRIBUTES: Final = TIMESTAMP_TYPE_BIT | CONTROL_BIT
_EARLIEST_TRUSTED_TIMESTAMP: Final = 1_000_000_000_000
"""The first of 13 digits, in 2001. A producer whose latest record is older may compare digits, as kafkajs does."""

_DELETE_ONLY: Final = ("delete",)
_HEADER_FIELDS: Final = BatchHeader._make
_new_prepared_batch: Final = tuple.__new__  # half the time of the named tuple's own constructor


class AppendOrigin(Enum):
    """Who wrote the batch. Only clients are held to the rules for clients."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    """A group or transaction coordinator of this broker: may write control batches."""
    REPLICATION = "replication"
    """The partition's leader, which has checked it: only damage on the way counts."""


class PreparedBatch(NamedTuple):
    header: BatchHeader
    data: memoryview | bytearray
    """The batch to append: the one that came, or one that was written anew."""
    log_append_time_ms: int


def prepare(batch: memoryview, settings: TopicSettings, now_ms: int, origin: AppendOrigin) -> PreparedBatch:
    """Check `batch` and give it the form in which the topic keeps it; log append time is stamped in place."""
    if len(batch) < HEADER_BYTES:
        raise InvalidRecord(f"{len(batch)} bytes are no record batch: a batch has at least {HEADER_BYTES}")
    header = _HEADER_FIELDS(HEADER.unpack_from(batch))
    base_offset, length, _, magic, crc, attributes, last_delta, first, latest, producer_id, _, sequence, count = header
    if (
        magic == MAGIC
        and length == len(batch) - LENGTH_OVERHEAD_BYTES
        and base_offset == 0
        and len(batch) <= settings.max_message_bytes
        and attributes & _UNUSUAL_ATTRIBUTES == 0
        and attributes & COMPRESSION_MASK <= _LAST_CODEC
        and last_delta + 1 == count > 0
        and (sequence >= 0 or producer_id < 0)
        and first <= latest >= _EARLIEST_TRUSTED_TIMESTAMP
        and latest - now_ms <= settings.message_timestamp_after_max_ms
        and now_ms <= settings.message_timestamp_before_max_ms
        and settings.cleanup_policy == _DELETE_ONLY
        and settings.compression_type == "producer"
        and settings.message_timestamp_type == "CreateTime"
        and crc32c(batch[CRC_START:]) == crc
    ):
        return _new_prepared_batch(PreparedBatch, (header, batch, NO_TIMESTAMP))
    return _prepare_with_care(batch, header, settings, now_ms, origin)


def _prepare_with_care(
    batch: memoryview, header: BatchHeader, settings: TopicSettings, now_ms: int, origin: AppendOrigin
) -> PreparedBatch:
    """Every check by itself, for batches and topics out of the ordinary: `prepare` is the short cut for the others."""
    _check_frame(batch, header, settings, origin)
    if origin is AppendOrigin.REPLICATION:
        return PreparedBatch(header, batch, NO_TIMESTAMP)
    if origin is AppendOrigin.CLIENT:
        _check_client_header(header)
        if "compact" in settings.cleanup_policy or not _timestamps_are_allowed(header, settings, now_ms):
            _check_records(batch, header, settings, now_ms)
    return _in_the_form_of_the_topic(batch, header, settings, now_ms)


def _check_frame(batch: memoryview, header: BatchHeader, settings: TopicSettings, origin: AppendOrigin) -> None:
    """What holds for every batch, whoever wrote it."""
    if header.magic != MAGIC:
        raise InvalidRecord(
            f"Only record batches of format version {MAGIC} are accepted, and this one has {header.magic}"
        )
    size = header.length + LENGTH_OVERHEAD_BYTES
    if size != len(batch):
        raise InvalidRecord(
            f"A partition takes exactly one whole record batch: the batch says {size} bytes, {len(batch)} came"
        )
    if header.base_offset != 0 and origin is AppendOrigin.CLIENT:
        raise InvalidRecord(f"The base offset of a produced batch must be 0, and is {header.base_offset}")
    if size > settings.max_message_bytes and origin is not AppendOrigin.REPLICATION:
        raise _too_large(size, settings)
    if crc32c(batch[CRC_START:]) != header.crc:
        raise CorruptMessage(f"The batch was damaged on its way: its CRC-32C is not {header.crc:#010x} as it says")
    if header.attributes & COMPRESSION_MASK > _LAST_CODEC:
        raise UnsupportedCompressionType(
            f"The batch is compressed with codec {header.attributes & COMPRESSION_MASK}, which is unknown"
        )


def _too_large(size: int, settings: TopicSettings) -> MessageTooLarge:
    return MessageTooLarge(
        f"The batch has {size} bytes, and max.message.bytes of the topic allows {settings.max_message_bytes}"
    )


def _check_client_header(header: BatchHeader) -> None:
    count = header.record_count
    if header.last_offset_delta + 1 != count or count <= 0:
        raise InvalidRecord(
            f"The batch says {count} records and a last offset delta of {header.last_offset_delta}:"
            " there must be records, and the last delta must be one less than their number"
        )
    if header.attributes & (CONTROL_BIT | TIMESTAMP_TYPE_BIT):
        if header.attributes & CONTROL_BIT:
            raise InvalidRecord("Clients may not write control records")
        raise InvalidTimestamp("A producer may not set the timestamp type LogAppendTime: the topic decides on it")
    if header.producer_id >= 0 and header.base_sequence < 0:
        raise InvalidRecord(
            f"The batch of producer {header.producer_id} has the invalid sequence number {header.base_sequence}"
        )


def _timestamps_are_allowed(header: BatchHeader, settings: TopicSettings, now_ms: int) -> bool:
    """Whether the header alone proves it: it has the latest timestamp, but not the earliest."""
    if header.max_timestamp - now_ms > settings.message_timestamp_after_max_ms:
        return settings.message_timestamp_type != "CreateTime"
    return now_ms <= settings.message_timestamp_before_max_ms or settings.message_timestamp_type != "CreateTime"


def _check_records(batch: memoryview, header: BatchHeader, settings: TopicSettings, now_ms: int) -> None:
    try:
        refused = list(_refused_records(batch, header, settings, now_ms))
    except CorruptMessage as error:
        # The CRC was right: the producer wrote it so, and would only send the same again.
        raise InvalidRecord(f"The records of the batch are malformed: {error}") from error
    if any(error is InvalidTimestamp for error, _ in refused):
        raise InvalidTimestamp(
            f"{len(refused)} of {header.record_count} records refused, the first: {refused[0][1].message}",
            [record_error for _, record_error in refused],
        )
    if refused:
        raise InvalidRecord(
            f"{len(refused)} of {header.record_count} records refused, the first: {refused[0][1].message}",
            [record_error for _, record_error in refused],
        )
    if settings.message_timestamp_type == "CreateTime":
        _check_latest_timestamp(header, settings, now_ms)


def _refused_records(
    batch: memoryview, header: BatchHeader, settings: TopicSettings, now_ms: int
) -> Iterator[tuple[type[InvalidRecord] | type[InvalidTimestamp], RecordError]]:
    is_compacted = "compact" in settings.cleanup_policy
    has_create_time = settings.message_timestamp_type == "CreateTime"
    earliest = now_ms - settings.message_timestamp_before_max_ms
    latest = now_ms + settings.message_timestamp_after_max_ms
    for index, record in enumerate(raw_records(payload_of(batch, header), header.record_count)):
        if record.key is None and is_compacted:
            yield InvalidRecord, RecordError(index, f"record {index} has no key, which a compacted topic needs")
        elif has_create_time:
            timestamp = timestamp_of(record, header)
            if not earliest <= timestamp <= latest and timestamp != NO_TIMESTAMP:
                yield (
                    InvalidTimestamp,
                    RecordError(
                        index,
                        f"timestamp {timestamp} of record {index} is outside of [{earliest}, {latest}], which"
                        " message.timestamp.before.max.ms and message.timestamp.after.max.ms of the topic allow",
                    ),
                )


def _check_latest_timestamp(header: BatchHeader, settings: TopicSettings, now_ms: int) -> None:
    if header.max_timestamp - now_ms > settings.message_timestamp_after_max_ms:
        raise InvalidTimestamp(
            f"The batch gives {header.max_timestamp} as its latest timestamp, which no record has and which is"
            " later than message.timestamp.after.max.ms of the topic allows"
        )


def _in_the_form_of_the_topic(
    batch: memoryview, header: BatchHeader, settings: TopicSettings, now_ms: int
) -> PreparedBatch:
    data: memoryview | bytearray = batch
    if settings.message_timestamp_type == "CreateTime" and not _is_latest_trusted(header):
        data = _with_true_latest(batch, header)
        batch, header = memoryview(data), read_header(data)
    codec = CODECS_BY_SETTING.get(settings.compression_type, header.compression)
    if codec != header.compression and not header.is_control:
        data = _recompressed(batch, header, Codec(codec), settings)
        if len(data) > settings.max_message_bytes:
            raise _too_large(len(data), settings)
    log_append_time_ms = NO_TIMESTAMP
    if settings.message_timestamp_type == "LogAppendTime":
        log_append_time_ms = now_ms
        data = _stamped(data, now_ms)
    return PreparedBatch(read_header(data), data, log_append_time_ms)


def _is_latest_trusted(header: BatchHeader) -> bool:
    if header.is_control or header.max_timestamp == header.base_timestamp == NO_TIMESTAMP:
        return True
    return header.base_timestamp <= header.max_timestamp >= _EARLIEST_TRUSTED_TIMESTAMP


def _with_true_latest(batch: memoryview, header: BatchHeader) -> memoryview | bytearray:
    """Time indexes and retention believe the header: where it cannot be right, the records decide, as in Kafka."""
    try:
        latest = max(
            timestamp_of(record, header) for record in raw_records(payload_of(batch, header), header.record_count)
        )
    except CorruptMessage as error:
        raise InvalidRecord(f"The records of the batch are malformed: {error}") from error
    if latest == header.max_timestamp:
        return batch
    data = bytearray(batch)
    MAX_TIMESTAMP.pack_into(data, MAX_TIMESTAMP_POSITION, latest)
    seal(data)
    return data


def _recompressed(batch: memoryview, header: BatchHeader, codec: Codec, settings: TopicSettings) -> bytearray:
    """Offsets and timestamps inside are relative to the header, which stays: the records need not be read."""
    try:
        payload = payload_of(batch, header)
    except CorruptMessage as error:
        raise InvalidRecord(f"The records of the batch are malformed: {error}") from error
    attributes = header.attributes & ~COMPRESSION_MASK | codec
    return assemble(header._replace(attributes=attributes), compress(codec, payload, _level(codec, settings)))


def _level(codec: Codec, settings: TopicSettings) -> int | None:
    match codec:
        case Codec.GZIP:
            return settings.compression_gzip_level
        case Codec.LZ4:
            return settings.compression_lz4_level
        case Codec.ZSTD:
            return settings.compression_zstd_level
        case _:
            return None


def _stamped(batch: memoryview | bytearray, now_ms: int) -> memoryview | bytearray:
    if isinstance(batch, memoryview) and batch.readonly:
        batch = bytearray(batch)
    (attributes,) = ATTRIBUTES.unpack_from(batch, CRC_START)
    ATTRIBUTES.pack_into(batch, CRC_START, attributes | TIMESTAMP_TYPE_BIT)
    MAX_TIMESTAMP.pack_into(batch, MAX_TIMESTAMP_POSITION, now_ms)
    seal(batch)
    return batch
