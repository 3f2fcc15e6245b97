"""Batches of internal topics: what a step writes is read again, whatever its length, and nothing else is."""

import pytest

from tests.replicated.counting import CountingMachine
from tidelog.errors import CorruptMessage
from tidelog.protocol.record_batch import LENGTH_OVERHEAD_BYTES, BatchHeader, read_header, seal
from tidelog.replicated.entries import batch_of, record_slices, replay_batch
from tidelog.replicated.machine import Effects, StateRecord


def batch_with(count: int, value_bytes: int = 2) -> bytearray:
    effects = Effects(1_700_000_000_000)
    for number in range(count):
        effects.write(b"key%d" % number, b"1" * value_bytes)
    return bytearray(batch_of(effects))


def read(batch: bytearray) -> list[StateRecord]:
    slices = list(record_slices(read_header(batch), batch))
    return [StateRecord(key or b"", value) for columns in slices for key, value in zip(*columns, strict=True)]


@pytest.mark.parametrize(("count", "value_bytes"), [(1, 2), (500, 2), (501, 2), (3, 100_000)])
def test_records_are_read_as_they_were_written(count: int, value_bytes: int) -> None:
    batch = batch_with(count, value_bytes)
    assert read(batch) == [StateRecord(b"key%d" % number, b"1" * value_bytes) for number in range(count)]


def changed(batch: bytearray, more: bytes, records: int) -> tuple[BatchHeader, bytearray]:
    batch = batch + more
    batch[8:12] = (len(batch) - LENGTH_OVERHEAD_BYTES).to_bytes(4, "big")
    batch[57:61] = records.to_bytes(4, "big", signed=True)
    seal(batch)
    return read_header(batch), batch


@pytest.mark.parametrize(("more", "records"), [(b"x", 2), (b"", 3), (b"", 1)])
def test_a_batch_whose_records_end_elsewhere_is_corrupt_and_replays_nothing(more: bytes, records: int) -> None:
    machine = CountingMachine(0)
    with pytest.raises(CorruptMessage):
        replay_batch(machine, *changed(batch_with(2), more, records))
    assert machine.replayed == []
