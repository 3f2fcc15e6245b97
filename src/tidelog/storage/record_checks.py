"""Record validation of a produced batch by the kernel, and the record errors of the response."""

from collections.abc import Generator
from typing import Final

from tidelog.config.topic import TopicSettings
from tidelog.errors import InvalidRecord, InvalidTimestamp, RecordError, UnknownServerError
from tidelog.kernels import is_compiled, kernels
from tidelog.kernels.records import RecordCheck
from tidelog.protocol.record_batch import HEADER_BYTES, BatchHeader
from tidelog.protocol.records import raw_records, read_varint, write_varint
from tidelog.types import NO_TIMESTAMP

INLINE_STEPS: Final = 30_000 if is_compiled else 500
"""Records and headers checked in one step, about half a millisecond. Longer batches are checked in slices."""

SLICE_STEPS: Final = 100_000 if is_compiled else 1_000
"""Slice of a long batch, about two milliseconds."""

PIECE_BYTES: Final = 256 * 1024
"""Bytes copied for the kernel at a time."""

MAX_RECORD_ERRORS: Final = 1_000
"""Maximum record errors in a response. Kafka returns all; the first ones are enough to find the mistake."""

_SLICE_RECORDS: Final = 1_000
_FIRST_INT64, _LAST_INT64 = -(2**63), 2**63 - 1
_NO_LIMIT_MS: Final = 2**62
_DELETE_ONLY: Final = ("delete",)


class UndecodableBatch(UnknownServerError):
    """A producer's batch cannot be decompressed. As in Kafka, the error code is UNKNOWN_SERVER_ERROR."""


def begin_check(payload: bytes, start: int, header: BatchHeader, settings: TopicSettings, now_ms: int) -> RecordCheck:
    """`payload` ends with the records, which begin at `start`."""
    needs_keys = settings.cleanup_policy != _DELETE_ONLY and "compact" in settings.cleanup_policy
    if settings.message_timestamp_type != "CreateTime":  # the producer's timestamps are ignored
        return kernels.RecordCheck(
            payload, start, header.record_count, 0, _FIRST_INT64, _LAST_INT64, needs_keys, MAX_RECORD_ERRORS
        )
    after_max_ms = settings.message_timestamp_after_max_ms
    return kernels.RecordCheck(
        payload,
        start,
        header.record_count,
        header.base_timestamp,
        now_ms - settings.message_timestamp_before_max_ms,
        now_ms + after_max_ms if after_max_ms < _NO_LIMIT_MS else _LAST_INT64,
        needs_keys,
        MAX_RECORD_ERRORS,
    )


def is_plain_in_pieces(batch: memoryview, count: int, max_delta: int, needs_keys: bool) -> bool:
    """The kernel's `is_plain` for an uncompressed batch of more than a piece. False if a record is larger than a piece.

    The kernel needs bytes, not a view. Small copies that reuse the same memory cost half of a large one.
    """
    plain_records = kernels.plain_records
    start, position, index, found, size = 0, HEADER_BYTES, 0, -1, len(batch)
    while True:
        end, first = start + PIECE_BYTES, index
        position, index, delta = plain_records(bytes(batch[start:end]), position, first, count, needs_keys)
        found = max(found, delta)
        start += position
        if end >= size:
            return index == count and found == max_delta and start == size
        if index in (first, count):
            return False
        position = 0


def check_in_pieces(check: RecordCheck, batch: memoryview) -> bool:
    """Check the rest of an uncompressed batch after its first piece. False if that takes too long."""
    position, room = 0, PIECE_BYTES
    check.is_last_piece = False
    while not check.advance(INLINE_STEPS - check.index):
        if not check.needs_more:
            return False
        room = PIECE_BYTES if check.position else 4 * room  # a record may be larger than a piece
        position += check.position
        check.feed(bytes(batch[position : position + room]), position + room >= len(batch))
    return True


def raise_problems(check: RecordCheck, header: BatchHeader, settings: TopicSettings, now_ms: int) -> None:
    """Raise if a record is malformed or not permitted in this topic."""
    if check.problem:
        raise _malformed(check, header)
    if check.listed:
        raise _rejection(check, header, settings, now_ms)
    if header.has_log_append_time:
        _check_stamp_of_client(check, header, settings)
    if header.compression and not check.is_consecutive:
        raise UndecodableBatch("The records of a compressed batch must have the offsets 0, 1, 2 and so on")


def _malformed(check: RecordCheck, header: BatchHeader) -> InvalidRecord | UndecodableBatch:
    kernel = kernels
    what = f"Record {check.index} of {header.record_count} {kernel.PROBLEMS[check.problem]}"
    if check.problem == kernel.ENDLESS_LENGTH and not header.compression:
        return UndecodableBatch(what)  # as in Kafka, where an unexpected exception has this result
    return InvalidRecord(what)


def _rejection(
    check: RecordCheck, header: BatchHeader, settings: TopicSettings, now_ms: int
) -> InvalidRecord | InvalidTimestamp:
    errors = [_record_error(entry, settings, now_ms) for entry in check.listed]
    text = f"{check.keyless + check.mistimed} of {header.record_count} records refused, the first: {errors[0].message}"
    return InvalidTimestamp(text, errors) if check.mistimed else InvalidRecord(text, errors)


def _record_error(entry: int, settings: TopicSettings, now_ms: int) -> RecordError:
    index, why = divmod(entry, 2)
    if why == kernels.NO_KEY:
        return RecordError(index, f"record {index} has no key, which a compacted topic needs")
    earliest = now_ms - settings.message_timestamp_before_max_ms
    latest = now_ms + settings.message_timestamp_after_max_ms
    return RecordError(
        index,
        f"the timestamp of record {index} is outside of [{earliest}, {latest}], which message.timestamp.before.max.ms"
        " and message.timestamp.after.max.ms of the topic allow",
    )


def _check_stamp_of_client(check: RecordCheck, header: BatchHeader, settings: TopicSettings) -> None:
    """Reject LogAppendTime set by a client. Kafka uses it as the timestamp of all records where that is valid."""
    if settings.message_timestamp_type == "CreateTime" and header.max_timestamp != NO_TIMESTAMP:
        if check.earliest <= header.max_timestamp <= check.latest:
            return
        text = f"log append time {header.max_timestamp} is outside of what the topic allows"
    else:
        text = "a producer may not set the timestamp type LogAppendTime: the topic decides on it"
    indexes = range(min(header.record_count, MAX_RECORD_ERRORS))
    raise InvalidTimestamp(text, [RecordError(index, text) for index in indexes])


def renumbering(payload: bytes, header: BatchHeader) -> Generator[None, None, bytes]:
    """Renumber the records of an uncompressed batch to 0, 1, 2 and so on. Yields now and then.

    Kafka appends such batches unchanged, and readers then see offsets that the log does not have.
    """
    output = bytearray()
    for index, record in enumerate(raw_records(payload, header.record_count)):
        head = bytearray(payload[read_varint(payload, record.start)[1] : record.offset_position])
        write_varint(head, index)
        rest = payload[read_varint(payload, record.offset_position)[1] : record.end]
        write_varint(output, len(head) + len(rest))
        output += head
        output += rest
        if index % _SLICE_RECORDS == _SLICE_RECORDS - 1:
            yield
    return bytes(output)
