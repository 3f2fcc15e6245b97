"""Reading a segment: chunks do not show, what is behind damaged bytes is found again, and nothing crashes."""

import random
import zlib

import pytest

from tests.audit.written_logs import RECORDS_PER_BATCH, batch, batches
from tidelog.audit import segments
from tidelog.audit.replica_facts import DefectKind, EpochRun, OffsetRange, SegmentFacts
from tidelog.audit.segments import BlockItem, SegmentItem, list_batches, read_segment
from tidelog.protocol.compression import Codec
from tidelog.protocol.record_batch import seal
from tidelog.runtime.memory_disk import MemoryDisk
from tidelog.types import TopicPartition

PATH = "/orders-0/00000000000000000000.log"


def disk_with(data: bytes) -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_directory("/orders-0")
    disk.open(PATH, "create").append(data)
    return disk


def item_of(data: bytes, *, cuts: tuple[int, ...] = (), counts_keys: bool = False) -> SegmentItem:
    return SegmentItem(TopicPartition("orders", 0), PATH, 0, len(data), cuts, counts_keys)


def read(data: bytes, *, cuts: tuple[int, ...] = (), counts_keys: bool = False) -> SegmentFacts:
    return read_segment(item_of(data, cuts=cuts, counts_keys=counts_keys), disk_with(data))


def test_facts_of_a_sound_segment() -> None:
    data = b"".join([*batches(3), *batches(2, start=15, epoch=2)])
    facts = read(data)
    assert (facts.first_offset, facts.end_offset, facts.batch_count, facts.record_count) == (0, 25, 5, 25)
    assert facts.epoch_runs == (EpochRun(0, 0, 0), EpochRun(2, 15, 3 * len(batch(0))))
    assert facts.defects == ()


@pytest.mark.parametrize("chunk_bytes", [61, 156, 200, 400, 1000])
def test_size_of_the_chunks_does_not_show(monkeypatch: pytest.MonkeyPatch, chunk_bytes: int) -> None:
    data = bytearray(b"".join(batches(10)))
    data[4 * len(batch(0)) + 70] ^= 1
    whole = read(bytes(data), cuts=(20,))
    monkeypatch.setattr(segments, "CHUNK_BYTES", chunk_bytes)
    chunked = read(bytes(data), cuts=(20,))
    assert chunked.defects == whole.defects
    assert chunked.blocks.starts.tolist() == whole.blocks.starts.tolist() == [0, 20]
    assert chunked.blocks.digests.tolist() == whole.blocks.digests.tolist()
    assert chunked.epoch_runs == whole.epoch_runs


def test_digests_of_parts_add_up_to_that_of_the_whole() -> None:
    one, two = read(b"".join(batches(4))), read(b"".join(batches(3, start=20)))
    whole = read(b"".join(batches(7)))
    assert (int(one.blocks.digests[0]) + int(two.blocks.digests[0])) % 2**64 == int(whole.blocks.digests[0])


def test_batches_of_a_range_are_listed_also_behind_damage() -> None:
    data = bytearray(b"".join(batches(8)))
    size = len(batch(0))
    data[2 * size + 9] ^= 1
    damaged = bytes(data)
    listed = list_batches(BlockItem(item_of(damaged), size, OffsetRange(5, 25)), disk_with(damaged))
    assert [(each.identity.base_offset, each.position) for each in listed] == [
        (5, size),
        (15, 3 * size),
        (20, 4 * size),
    ]


def test_records_that_do_not_decode_are_named_though_the_crc_is_right() -> None:
    broken = bytearray(batch(5))
    broken[61] = 0xFF
    seal(broken)
    facts = read(batch(0) + bytes(broken) + batch(10), counts_keys=True)
    (defect,) = facts.defects
    assert (defect.kind, defect.position) == (DefectKind.MALFORMED, len(batch(0)))
    assert facts.keys is not None
    assert facts.keys.record_count == 2 * RECORDS_PER_BATCH


@pytest.mark.parametrize("codec", list(Codec))
def test_keys_are_counted_whatever_the_codec(codec: Codec) -> None:
    facts = read(batch(0, codec=codec), counts_keys=True)
    assert facts.keys is not None
    assert facts.keys.counts == {b"key-%d" % number: 1 for number in range(RECORDS_PER_BATCH)}
    assert facts.codecs[codec].batches == 1


def test_old_message_format_is_distinguished_from_damage() -> None:
    message = b"\x01\x00" + bytes(8) + b"\xff" * 4 + b"\xff" * 4
    old = bytes(8) + (len(message) + 4).to_bytes(4, "big") + zlib.crc32(message).to_bytes(4, "big") + message
    (defect,) = read(old).defects
    assert (defect.kind, defect.detail) == (DefectKind.OLD_FORMAT, "message format 1")


def test_file_that_is_gone_or_shorter_than_listed_is_no_crash() -> None:
    assert read_segment(item_of(b"x"), MemoryDisk()).is_gone
    data = b"".join(batches(3))
    facts = read_segment(item_of(data + bytes(1000)), disk_with(data))
    assert (facts.batch_count, facts.defects) == (3, ())


def test_no_bytes_crash_the_reader() -> None:
    chance = random.Random(7)
    sound = b"".join(batches(5))
    for _ in range(300):
        data = bytearray(sound)
        for _ in range(chance.randint(1, 8)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        cut = data[: chance.randint(0, len(data))]
        facts = read(bytes(cut), counts_keys=True)
        assert facts.batch_count <= 5
    noise = chance.randbytes(5000)
    assert read(noise).batch_count == 0
