"""Record batches of internal topics: encoded from the records of a step, decoded when a shard is loaded."""

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from tidelog.errors import CorruptMessage
from tidelog.kernels import kernels
from tidelog.protocol.compression import Codec
from tidelog.protocol.record_batch import HEADER_BYTES, MAGIC, BatchHeader, crc_matches
from tidelog.protocol.records import (
    SLICE_RECORDS,
    ControlType,
    build_batch,
    build_end_marker,
    column_slices,
    read_end_marker,
)
from tidelog.replicated.machine import Effects, Producer, StateMachine, StateRecord
from tidelog.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, Buffer

GZIP_FASTEST = 1
"""Compression level of gzip."""
KeysAndValues: TypeAlias = tuple[list[bytes | None], list[bytes | None]]
"""Of some records of a batch, in order."""
_NOBODY = Producer(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


COMPRESSED_FROM_BYTES = 256 * 1024
"""Batches of at least this size are compressed. Otherwise repeated names, as in the deletion of a group with thousands
of offsets, would exceed max.message.bytes."""

RECORD_OVERHEAD_BYTES = 20
"""At least the size of an ordinary record without its key and value."""


def size_bytes_of(records: Sequence[StateRecord]) -> int:
    return sum([len(key) + len(value or b"") + RECORD_OVERHEAD_BYTES for key, value in records])


def batch_of(effects: Effects) -> memoryview:
    """One batch for one step, so that the step is replayed completely or not at all."""
    producer = effects.producer or _NOBODY
    is_compressed = sum([len(key) + len(value or b"") for key, value in effects.records]) >= COMPRESSED_FROM_BYTES
    now_ms = effects.now_ms
    records = [(offset, now_ms, key, value, ()) for offset, (key, value) in enumerate(effects.records)]
    return memoryview(
        build_batch(
            records,
            compression=Codec.GZIP if is_compressed else Codec.NONE,
            level=GZIP_FASTEST if is_compressed else None,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            # As in Kafka, the coordinator does not count sequence numbers: transactional batches have 0.
            base_sequence=NO_SEQUENCE if effects.producer is None else 0,
            is_transactional=effects.producer is not None,
        )
    )


def end_marker_of(producer: Producer, *, is_committed: bool, coordinator_epoch: int, now_ms: int) -> memoryview:
    return memoryview(
        build_end_marker(
            ControlType.COMMIT if is_committed else ControlType.ABORT,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            coordinator_epoch=coordinator_epoch,
            timestamp=now_ms,
        )
    )


def check_crc(header: BatchHeader, batch: Buffer) -> None:
    """Raises CorruptMessage."""
    if not crc_matches(batch, header):
        raise CorruptMessage("the CRC of the batch does not match")


def producer_of(header: BatchHeader) -> Producer | None:
    """The producer to whose transaction the batch belongs."""
    return Producer(header.producer_id, header.producer_epoch) if header.is_transactional else None


def replay_end_marker(machine: StateMachine, header: BatchHeader, batch: Buffer) -> None:
    """Replay a control batch: the end marker of a transaction with records in this partition."""
    marker, producer = read_end_marker(batch), producer_of(header)
    if marker is not None and producer is not None:
        machine.replay_end_marker(producer, is_committed=marker.control_type is ControlType.COMMIT)


def record_slices(header: BatchHeader, batch: Buffer) -> Iterator[KeysAndValues]:
    """Records of one batch for replay, without an object for each: loading a coordinator is mostly this."""
    if header.magic == MAGIC and not header.compression and 0 < header.record_count <= SLICE_RECORDS:
        yield _decoded_at_once(header, batch)
    else:
        for columns in column_slices(batch):
            yield columns.keys, columns.values


def _decoded_at_once(header: BatchHeader, batch: Buffer) -> KeysAndValues:
    """The records of a short batch that is not compressed, as most are. Their timestamps are not needed."""
    data = bytes(batch)
    try:
        end, _, _, keys, values, _ = kernels.decoded_columns(
            data, HEADER_BYTES, header.record_count, header.base_offset, header.last_offset_delta, 0
        )
    except ValueError as error:
        raise CorruptMessage(str(error)) from None
    if end != len(data):
        raise CorruptMessage(f"{len(data) - end} bytes follow the last record of the batch")
    return keys, values


def replay_batch(machine: StateMachine, header: BatchHeader, batch: Buffer) -> None:
    """Replay a whole batch in one step."""
    check_crc(header, batch)
    if header.is_control:
        replay_end_marker(machine, header, batch)
        return
    producer = producer_of(header)
    for keys, values in record_slices(header, batch):
        for key, value in zip(keys, values, strict=True):
            if key is None:
                raise CorruptMessage("a record has no key")
            machine.replay(StateRecord(key, value), producer)
