"""Log directories of stopped brokers, written batch by batch, so that tests can break them."""

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from tidelog.protocol.compression import Codec
from tidelog.protocol.record_batch import read_header
from tidelog.protocol.records import Record, build_batch
from tidelog.runtime.disk import SystemDisk
from tidelog.storage.checkpoints import HIGH_WATERMARKS, LEADER_EPOCHS, write_epochs, write_offsets
from tidelog.storage.leader_epochs import EpochEntry
from tidelog.storage.partition_metadata import write_topic_id
from tidelog.types import TopicPartition

ORDERS = TopicPartition("orders", 0)
TOPIC_ID = bytes(range(16))
NOW_MS = 1_700_000_000_000
RECORDS_PER_BATCH = 5
BATCHES_PER_SEGMENT = 4


def batch(base_offset: int, epoch: int = 0, text: str = "value", codec: Codec = Codec.NONE) -> bytes:
    records = [
        Record(base_offset + number, NOW_MS + base_offset + number, b"key-%d" % number, f"{text}-{number}".encode())
        for number in range(RECORDS_PER_BATCH)
    ]
    return bytes(build_batch(records, base_offset=base_offset, leader_epoch=epoch, compression=codec))


def batches(count: int, start: int = 0, epoch: int = 0, text: str = "value") -> list[bytes]:
    return [batch(start + number * RECORDS_PER_BATCH, epoch, text) for number in range(count)]


class Place(NamedTuple):
    file: Path
    position: int
    size_bytes: int
    start_offset: int


class WrittenBroker:
    def __init__(self, root: Path, broker: int) -> None:
        self.path = root / f"broker-{broker}"
        self.path.mkdir(parents=True)
        (self.path / "meta.properties").write_text(f"version=0\nbroker.id={broker}\n")
        (self.path / ".kafka_cleanshutdown").write_text('{"version":0}')
        self.high_watermarks: dict[TopicPartition, int] = {}

    def write(
        self,
        written: Sequence[bytes],
        epochs: Iterable[EpochEntry] = (EpochEntry(0, 0),),
        partition: TopicPartition = ORDERS,
        per_segment: int = BATCHES_PER_SEGMENT,
        topic_id: bytes = TOPIC_ID,
    ) -> Path:
        directory = self.path / str(partition)
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        for start in range(0, len(written), per_segment):
            base_offset = read_header(written[start]).base_offset
            (directory / f"{base_offset:020d}.log").write_bytes(b"".join(written[start : start + per_segment]))
            (directory / f"{base_offset:020d}.index").write_bytes(b"")
        write_topic_id(SystemDisk(), str(directory), topic_id)
        write_epochs(SystemDisk(), str(directory / LEADER_EPOCHS), list(epochs))
        self.set_high_watermark(read_header(written[-1]).end_offset, partition)
        return directory

    def set_high_watermark(self, offset: int, partition: TopicPartition = ORDERS) -> None:
        self.high_watermarks[partition] = offset
        write_offsets(SystemDisk(), str(self.path / HIGH_WATERMARKS), self.high_watermarks)

    def crash(self) -> None:
        (self.path / ".kafka_cleanshutdown").unlink()

    def segments(self, partition: TopicPartition = ORDERS) -> list[Path]:
        return sorted((self.path / str(partition)).glob("*.log"))


def flip(file: Path, position: int, mask: int = 0x01) -> None:
    data = bytearray(file.read_bytes())
    data[position] ^= mask
    file.write_bytes(data)


def places(broker: WrittenBroker) -> list[Place]:
    """Every batch of the broker's first partition."""
    found = []
    for file in broker.segments():
        data, position = file.read_bytes(), 0
        while position < len(data):
            header = read_header(data, position)
            found.append(Place(file, position, header.size_bytes, header.base_offset))
            position += header.size_bytes
    return found
