"""Batch validation on the leader (Kafka: LogValidator), in Kafka's order and with Kafka's error codes.

Header and CRC first, then every record, by the kernel (`record_checks`). For a batch that is too long for one turn of
the event loop `prepare` raises NeedsSlices, and `long_preparation` validates it in slices.
"""

# Core: no clock, no I/O, no await.

from collections.abc import Callable, Generator
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from tidelog.config.topic import TopicSettings
from tidelog.errors import CorruptMessage, InvalidRecord, MessageTooLarge
from tidelog.kernels import kernels
from tidelog.kernels.records import RecordCheck
from tidelog.protocol.checksums import crc32c
from tidelog.protocol.compression import CODECS_BY_SETTING, Codec, DecompressedTooLarge, compress
from tidelog.protocol.record_batch import (
    COMPRESSION_MASK,
    CONTROL_BIT,
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LENGTH_OVERHEAD_BYTES,
    MAGIC,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
    assemble,
    batch_length_at,
    read_header,
    restamp,
)
from tidelog.protocol.records import payload_of
from tidelog.storage.record_checks import (
    INLINE_STEPS,
    PIECE_BYTES,
    SLICE_STEPS,
    UndecodableBatch,
    begin_check,
    check_in_pieces,
    is_plain_in_pieces,
    raise_problems,
    renumbering,
)
from tidelog.types import NO_TIMESTAMP

INLINE_BYTES: Final = 1024 * 1024
"""Bytes that may be decompressed on the event loop. Larger batches go to a worker."""

INLINE_COMPRESSED_BYTES: Final = 128 * 1024
"""Bytes that may be compressed on the event loop, which takes longer."""

_LAST_CODEC: Final = int(max(Codec))
_UNUSUAL_ATTRIBUTES: Final = TIMESTAMP_TYPE_BIT | CONTROL_BIT | COMPRESSION_MASK
_MIN_LENGTH: Final = 14
"""Header size of message format 0. As in Kafka, anything shorter is corrupt."""
_MAGIC_POSITION: Final = 16

_DELETE_ONLY: Final = ("delete",)
_MAX_DELTA: Final = kernels.PLAIN_MAX_DELTA
_is_plain: Final = kernels.is_plain

_unpack_header: Final = HEADER.unpack_from
_new_tuple: Final = tuple.__new__  # half the time of a named tuple's own constructor


class NeedsSlices(Exception):
    """The batch is too long for one turn of the event loop: use `long_preparation`."""


class AppendOrigin(Enum):
    """Writer of the batch. The rules for clients apply to clients only."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    """A group or transaction coordinator of this broker, which may write control batches."""
    REPLICATION = "replication"
    """The partition's leader, which has validated the batch: only corruption in transit is checked."""


_CLIENT: Final = AppendOrigin.CLIENT  # looking up an enum member takes ten times as long as a name


class PreparedBatch(NamedTuple):
    header: BatchHeader
    data: memoryview | bytearray
    """The batch to append: the original or a rewritten one."""
    log_append_time_ms: int


def only_batch(records: memoryview) -> memoryview:
    """The only batch of a produce request for a partition. An incomplete batch after it is ignored."""
    size = _size_at(records, 0)
    if size is None:
        raise InvalidRecord("A produce request carries exactly one record batch for a partition, and this one has none")
    if records[_MAGIC_POSITION] != MAGIC:
        raise InvalidRecord(
            f"Only record batches of format version {MAGIC} are accepted, and this one has {records[_MAGIC_POSITION]}"
        )
    if _size_at(records, size) is not None:
        raise InvalidRecord("A produce request carries exactly one record batch for a partition, and this one has more")
    return records[:size]


def _size_at(records: memoryview, position: int) -> int | None:
    """Size of the batch at `position`; None if there is no complete one."""
    rest = len(records) - position
    if rest < LENGTH_OVERHEAD_BYTES:
        return None
    length = batch_length_at(records, position)
    if length < _MIN_LENGTH:
        raise CorruptMessage(f"A batch claims a length of {length} bytes, less than any header")
    if rest <= _MAGIC_POSITION:
        return None
    if records[position + _MAGIC_POSITION] > MAGIC:
        raise CorruptMessage(f"Format version {records[position + _MAGIC_POSITION]} is unknown")
    size = length + LENGTH_OVERHEAD_BYTES
    return size if size <= rest else None


def prepare(batch: memoryview, settings: TopicSettings, now_ms: int, origin: AppendOrigin) -> PreparedBatch:
    """Validate `batch` and convert it to the topic's format. LogAppendTime is set in place.

    Raises NeedsSlices for a client's batch that would take too long.
    """
    if len(batch) < HEADER_BYTES:
        raise CorruptMessage(f"{len(batch)} bytes are no record batch: a batch has at least {HEADER_BYTES}")
    values = _unpack_header(batch)
    base_offset, length, _, magic, crc, attributes, last_delta, first, latest, producer_id, _, sequence, count = values
    header: BatchHeader = _new_tuple(BatchHeader, values)
    # Each comparison jumps over a few instructions only: Python has no fast form of those that jump far.
    if (
        origin is not _CLIENT
        or magic != MAGIC
        or length != len(batch) - LENGTH_OVERHEAD_BYTES
        or base_offset != 0
        or len(batch) > settings.max_message_bytes
        or attributes & _UNUSUAL_ATTRIBUTES
        or last_delta + 1 != count
        or count <= 0
        or (sequence < 0 and producer_id >= 0)
        or settings.compression_type != "producer"
        or settings.message_timestamp_type != "CreateTime"
        or crc32c(batch[CRC_START:]) != crc
    ):
        return _prepare_step_by_step(batch, header, settings, now_ms, origin)
    # Usual records take one kernel call, or one for each piece; anything else is validated record by record.
    policy, span_ms, age_ms = settings.cleanup_policy, latest - first, now_ms - first
    is_large = len(batch) > PIECE_BYTES
    if (
        0 <= span_ms <= _MAX_DELTA
        and count <= INLINE_STEPS
        and age_ms <= settings.message_timestamp_before_max_ms
        and _MAX_DELTA - age_ms <= settings.message_timestamp_after_max_ms
    ):
        needs_keys = policy != _DELETE_ONLY and "compact" in policy
        if (
            is_plain_in_pieces(batch, count, span_ms, needs_keys)
            if is_large
            else _is_plain(bytes(batch), HEADER_BYTES, count, span_ms, needs_keys)
        ):
            return _new_tuple(PreparedBatch, (header, batch, NO_TIMESTAMP))
    check = begin_check(bytes(batch[:PIECE_BYTES]), HEADER_BYTES, header, settings, now_ms)
    is_done = check_in_pieces(check, batch) if is_large else check.advance(INLINE_STEPS)
    if not is_done:
        raise NeedsSlices
    if check.confirms(latest):
        return _new_tuple(PreparedBatch, (header, batch, NO_TIMESTAMP))
    return _concluded(batch, header, check, settings, now_ms)


def _prepare_step_by_step(
    batch: memoryview, header: BatchHeader, settings: TopicSettings, now_ms: int, origin: AppendOrigin
) -> PreparedBatch:
    """Each check by itself, for unusual batches and topics. `prepare` is the shortcut for the others."""
    _check_frame(batch, header, settings, origin)
    if origin is AppendOrigin.REPLICATION:
        return PreparedBatch(header, batch, NO_TIMESTAMP)
    if origin is AppendOrigin.COORDINATOR:
        return stamped(_coordinator_batch(batch, header, settings), settings, now_ms)
    _check_client_header(header)
    limit_bytes = settings.max_decompressed_message_bytes
    try:
        payload = _payload(batch, header, min(INLINE_BYTES, limit_bytes))
    except DecompressedTooLarge:
        raise NeedsSlices from None
    if _target_codec(header, settings) != header.compression and len(payload) > INLINE_COMPRESSED_BYTES:
        raise NeedsSlices
    check = begin_check(payload, 0 if header.compression else HEADER_BYTES, header, settings, now_ms)
    if not check.advance(INLINE_STEPS):
        raise NeedsSlices
    return _concluded(batch, header, check, settings, now_ms)


def _concluded(
    batch: memoryview, header: BatchHeader, check: RecordCheck, settings: TopicSettings, now_ms: int
) -> PreparedBatch:
    raise_problems(check, header, settings, now_ms)
    payload = None
    if not check.is_consecutive:
        payload = _run_through(renumbering(_records_alone(batch, header, check), header))
    return stamped(_in_topic_format(batch, header, check, payload, settings), settings, now_ms)


def _run_through(steps: Generator[None, None, bytes]) -> bytes:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: bytes = end.value
            return result


Work: TypeAlias = Callable[[], object]
LongPreparation: TypeAlias = Generator[Work | None, object, PreparedBatch]
"""Generator that yields work for a worker and receives its result, or yields None to let others run."""


def long_preparation(batch: memoryview, settings: TopicSettings, now_ms: int) -> LongPreparation:
    """Like `prepare` for a client's batch, but in slices. `stamped` sets LogAppendTime later, at the append."""
    header = read_header(batch)
    _check_frame(batch, header, settings, AppendOrigin.CLIENT)
    _check_client_header(header)
    payload = yield lambda: _bounded_payload(batch, header, settings)
    assert isinstance(payload, bytes)
    check = begin_check(payload, 0 if header.compression else HEADER_BYTES, header, settings, now_ms)
    while not check.advance(SLICE_STEPS):
        if header.compression and not check.is_consecutive:
            break  # rejected anyway; this also stops highly compressed batches of one repeated record
        yield None
    raise_problems(check, header, settings, now_ms)
    rewritten = None
    if not check.is_consecutive:
        rewritten = yield from renumbering(_records_alone(batch, header, check), header)
    formed = yield lambda: _in_topic_format(batch, header, check, rewritten, settings)
    assert isinstance(formed, PreparedBatch)
    return formed


def _records_alone(batch: memoryview, header: BatchHeader, check: RecordCheck) -> bytes:
    return check.data if header.compression else bytes(batch[HEADER_BYTES:])


def _payload(batch: memoryview, header: BatchHeader, limit_bytes: int) -> bytes:
    """Input of the check: the records, or the whole batch if that saves a copy."""
    if not header.compression:
        return bytes(batch)
    try:
        return payload_of(batch, header, limit_bytes)
    except DecompressedTooLarge:
        raise
    except CorruptMessage as error:
        # The CRC is valid: the producer wrote the batch like this, and a retry would send the same bytes.
        raise UndecodableBatch(f"The records of the batch cannot be decompressed: {error}") from error


def _bounded_payload(batch: memoryview, header: BatchHeader, settings: TopicSettings) -> bytes:
    limit_bytes = settings.max_decompressed_message_bytes
    try:
        return _payload(batch, header, limit_bytes)
    except DecompressedTooLarge:
        # Java producers split a batch that is too large and send the halves.
        raise MessageTooLarge(
            f"The batch of {len(batch)} bytes holds more than {limit_bytes} bytes of records, which"
            " max.decompressed.message.bytes of the topic allows"
        ) from None


def _check_frame(batch: memoryview, header: BatchHeader, settings: TopicSettings, origin: AppendOrigin) -> None:
    """Checks for batches of every origin."""
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
    if header.compression > _LAST_CODEC:
        raise UndecodableBatch(f"The batch is compressed with codec {header.compression}, which is unknown")


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
    if header.is_control:
        raise InvalidRecord("Clients may not write control records")
    if header.producer_id >= 0 and header.base_sequence < 0:
        raise InvalidRecord(
            f"The batch of producer {header.producer_id} has the invalid sequence number {header.base_sequence}"
        )


def _target_codec(header: BatchHeader, settings: TopicSettings) -> int:
    return CODECS_BY_SETTING.get(settings.compression_type, header.compression)


def _in_topic_format(
    batch: memoryview, header: BatchHeader, check: RecordCheck, rewritten: bytes | None, settings: TopicSettings
) -> PreparedBatch:
    """As in Kafka, max_timestamp is taken from the records: time indexes and retention rely on the header."""
    has_create_time = settings.message_timestamp_type == "CreateTime"
    latest = check.max_timestamp if has_create_time else header.max_timestamp
    codec = Codec(_target_codec(header, settings))
    if rewritten is not None or codec != header.compression:
        payload = _records_alone(batch, header, check) if rewritten is None else rewritten
        attributes = header.attributes & ~(COMPRESSION_MASK | TIMESTAMP_TYPE_BIT) | codec
        changed = header._replace(attributes=attributes, max_timestamp=latest)
        data: memoryview | bytearray = _assembled(changed, codec, payload, settings)
    else:
        data = batch
        if latest != header.max_timestamp or header.has_log_append_time:
            data = restamp(batch, header.attributes & ~TIMESTAMP_TYPE_BIT, latest)
    return PreparedBatch(read_header(data), data, NO_TIMESTAMP)


def _coordinator_batch(batch: memoryview, header: BatchHeader, settings: TopicSettings) -> PreparedBatch:
    """This broker has just written the records, so they are not checked."""
    codec = Codec(_target_codec(header, settings))
    if codec == header.compression or header.is_control:
        return PreparedBatch(header, batch, NO_TIMESTAMP)
    attributes = header.attributes & ~COMPRESSION_MASK | codec
    data = _assembled(header._replace(attributes=attributes), codec, payload_of(batch, header), settings)
    return PreparedBatch(read_header(data), data, NO_TIMESTAMP)


def _assembled(header: BatchHeader, codec: Codec, payload: bytes, settings: TopicSettings) -> bytearray:
    data = assemble(header, compress(codec, payload, _level(codec, settings)))
    if len(data) > settings.max_message_bytes:
        raise _too_large(len(data), settings)
    return data


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


def stamped(prepared: PreparedBatch, settings: TopicSettings, now_ms: int) -> PreparedBatch:
    """Set LogAppendTime if the topic uses it; in place if possible."""
    if settings.message_timestamp_type != "LogAppendTime":
        return prepared
    data = restamp(prepared.data, prepared.header.attributes | TIMESTAMP_TYPE_BIT, now_ms)
    return PreparedBatch(read_header(data), data, now_ms)
