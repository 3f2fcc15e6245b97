"""Kafka's own DumpLogSegments reads what Tidelog wrote: every codec, transactions, compaction, rolled segments."""

import asyncio
import re
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tidelog.config.broker import BrokerSettings
from tidelog.config.topic import TopicSettings
from tidelog.protocol.compression import Codec
from tidelog.protocol.records import ControlType, Record, build_batch, build_end_marker
from tidelog.runtime.clock import SystemClock
from tidelog.runtime.disk import SystemDisk
from tidelog.runtime.workers import ThreadWorkers
from tidelog.storage.log import Log
from tidelog.storage.log_directory import Identity
from tidelog.storage.log_manager import LogManager
from tidelog.storage.validation import AppendOrigin
from tidelog.types import TopicPartition
from tools.apache_kafka import KAFKA_3, KAFKA_4, KafkaFailed, dump_log_segments

TOPIC_ID = bytes(range(16))
LEADER_EPOCH = 3
SEGMENT_BYTES = 50_000
COMPLAINT = re.compile(
    r"isvalid: false|mismatch|out of order|non-consecutive|invalid bytes|exception|could not|corrupt|\berror\b",
    re.IGNORECASE,
)
DECODERS = {"__consumer_offsets": "--offsets-decoder", "__transaction_state": "--transaction-log-decoder"}
UNDERSTOOD = re.compile(
    r"endTxnMarker: (COMMIT|ABORT)"
    r'|key: {"type":"\d+","data":{.* payload: ({"version":"\d+","data":{|<DELETE>)'
    r"|key: transaction_metadata::transactionalId=.* payload: producerId:"
)
GAPS = re.compile(r"non-consecutive", re.IGNORECASE)
GAP_LINE = re.compile(r"^\s*\d+ is followed by \d+\s*$")


class Writer:
    """Appends batches to one log, with the time going on from batch to batch."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self._timestamp = int(time.time() * 1000) - 1_000_000

    def next_timestamp(self) -> int:
        self._timestamp += 7
        return self._timestamp

    def append(self, batch: bytearray, origin: AppendOrigin = AppendOrigin.CLIENT) -> None:
        result = self.log.append_as_leader(memoryview(batch), LEADER_EPOCH, origin)
        self.log.raise_high_watermark(result.last_offset + 1)

    def records(self, count: int, prefix: str = "key") -> list[Record]:
        headers = (("name", b"value"), ("nothing", None))
        return [
            Record(
                number,
                self.next_timestamp(),
                f"{prefix}-{number}".encode(),
                b"" if number == 1 else f"value {number} ".encode() * (number % 30),
                headers if number % 5 == 0 else (),
            )
            for number in range(count)
        ]


def write_codec(writer: Writer, codec: Codec) -> None:
    for round_number in range(300):
        writer.append(build_batch(writer.records(1 + round_number % 40), compression=codec))
        sequence = sum(1 + number % 7 for number in range(round_number))
        records = writer.records(1 + round_number % 7)
        writer.append(build_batch(records, compression=codec, producer_id=7, producer_epoch=0, base_sequence=sequence))


def write_transactions(writer: Writer) -> None:
    """Three producers whose transactions overlap; some are aborted, one stays open."""
    sequences = dict.fromkeys((101, 102, 103), 0)
    for round_number in range(40):
        for producer_id in sequences:
            batch = build_batch(
                writer.records(20),
                producer_id=producer_id,
                producer_epoch=1,
                base_sequence=sequences[producer_id],
                is_transactional=True,
            )
            writer.append(batch)
            sequences[producer_id] += 20
        for producer_id in (101, 102):
            kind = ControlType.ABORT if (round_number + producer_id) % 3 == 0 else ControlType.COMMIT
            end_transaction(writer, kind, producer_id)
    end_transaction(writer, ControlType.ABORT, 103)
    writer.log.roll()


def end_transaction(writer: Writer, kind: ControlType, producer_id: int) -> None:
    timestamp = writer.next_timestamp()
    marker = build_end_marker(kind, producer_id=producer_id, producer_epoch=1, coordinator_epoch=5, timestamp=timestamp)
    writer.append(marker, AppendOrigin.COORDINATOR)


def write_compacted(writer: Writer) -> None:
    for round_number in range(80):
        records = writer.records(30, prefix="key" if round_number % 2 else f"key-{round_number}")
        tombstones = [record._replace(value=None) if record.offset % 11 == 0 else record for record in records]
        writer.append(build_batch(tombstones, compression=Codec(round_number % 5)))
    writer.log.roll()


async def write_all(directory: Path) -> None:
    """A log dir as a broker would leave it after a clean stop."""
    workers = ThreadWorkers("compat", 2)
    settings = BrokerSettings(log_dirs=(str(directory),))
    clock = SystemClock()
    manager = await LogManager.open(
        settings, lambda _: TopicSettings(), SystemDisk(), clock, workers, Identity("compat", 0)
    )
    small = TopicSettings(segment_bytes=SEGMENT_BYTES)
    for codec in Codec:
        write_codec(Writer(manager.create(TopicPartition(f"codec-{codec.name.lower()}", 0), TOPIC_ID, small)), codec)
    append_time = TopicSettings(segment_bytes=SEGMENT_BYTES, message_timestamp_type="LogAppendTime")
    write_codec(Writer(manager.create(TopicPartition("log-append-time", 0), TOPIC_ID, append_time)), Codec.GZIP)
    write_transactions(Writer(manager.create(TopicPartition("transactions", 0), TOPIC_ID, small)))
    compacting = TopicSettings(segment_bytes=SEGMENT_BYTES, cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.01)
    compacted = manager.create(TopicPartition("compacted", 0), TOPIC_ID, compacting)
    write_compacted(Writer(compacted))
    size_before = compacted.size_bytes
    while await manager.cleaner.clean_once():
        pass
    assert compacted.size_bytes < size_before, "nothing was compacted"
    await manager.close()
    workers.close()


def files(directory: Path, suffix: str) -> list[Path]:
    """Those with something in them; a log that is about to be deleted does not count."""
    found = sorted(path for path in directory.glob(f"*/*{suffix}") if not path.parent.name.endswith("-delete"))
    return [path for path in found if path.stat().st_size > 0]


def complaints(output: str, *, may_have_gaps: bool = False) -> list[str]:
    """The lines in which the tool found fault; a compacted log may have gaps between its offsets."""
    found = []
    for line in output.splitlines():
        # What records hold is no complaint.
        header = line.partition(" payload: ")[0].partition(" key: ")[0]
        is_gap = GAPS.search(header) or GAP_LINE.match(line)
        if (is_gap and not may_have_gaps) or (COMPLAINT.search(header) and not is_gap):
            found.append(line.strip())
    return found


LOOKS: Sequence[tuple[str, tuple[str, ...]]] = (
    (".log", ("--deep-iteration", "--print-data-log")),
    (".index", ("--index-sanity-check",)),
    (".index", ("--verify-index-only",)),
    (".index", ()),
    (".timeindex", ("--index-sanity-check",)),
    (".timeindex", ("--verify-index-only",)),
    (".timeindex", ()),
    (".txnindex", ()),
    (".snapshot", ()),
)


def check_files(directory: Path, *, expect: Iterable[str] = ()) -> list[str]:
    """Everything that Kafka's tool finds wrong in the files of a log dir; `expect` names kinds that must be there."""
    wrong = []
    for suffix, flags in LOOKS:
        found = files(directory, suffix)
        if not found and suffix in expect:
            wrong.append(f"there is no {suffix} file to look at")
        for group in grouped(found):
            for version in (KAFKA_3, KAFKA_4) if suffix == ".snapshot" else (KAFKA_3,):
                wrong += look(group, flags, version)
    return [complaint.replace(f"{directory}/", "") for complaint in wrong]


def link_one_replica_of_each(log_dirs: Sequence[Path], directory: Path) -> None:
    """A directory with the log of every partition, now from this broker and now from that one."""
    directory.mkdir()
    names = sorted({found.name for log_dir in log_dirs for found in log_dir.iterdir() if found.is_dir()})
    for number, name in enumerate(names):
        replicas = [log_dir / name for log_dir in log_dirs if (log_dir / name).is_dir()]
        (directory / name).symlink_to(replicas[number % len(replicas)])


def check_coordinators(directory: Path) -> list[str]:
    """Records of coordinators that Kafka's tools, of both versions, cannot make anything of."""
    wrong = []
    for topic, flag in DECODERS.items():
        found = [path for path in files(directory, ".log") if path.parent.name.rpartition("-")[0] == topic]
        for version in (KAFKA_3, KAFKA_4) if found else ():
            printed = dump_log_segments(found, flag, version=version)
            records = [line for line in printed.splitlines() if line.startswith("|")]
            wrong += [f"{version} {flag}: {line}" for line in records if not UNDERSTOOD.search(line)]
            wrong += [] if records else [f"{version} {flag}: no record was found"]
    return wrong


def grouped(paths: Sequence[Path]) -> Iterator[list[Path]]:
    """Compacted logs apart from the others: only they may have gaps."""
    compacted = [path for path in paths if "compacted" in path.parent.name]
    others = [path for path in paths if "compacted" not in path.parent.name]
    yield from (group for group in (compacted, others) if group)


def look(paths: Sequence[Path], flags: Sequence[str], version: str = KAFKA_3) -> list[str]:
    try:
        output = dump_log_segments(paths, *flags, version=version)
    except KafkaFailed as error:
        return [f"DumpLogSegments {' '.join(flags)} failed: {str(error)[-600:]}"]
    seen = output.count("Dumping ")
    if seen != len(paths):
        return [f"DumpLogSegments looked at {seen} of {len(paths)} files"]
    return complaints(output, may_have_gaps="compacted" in paths[0].parent.name)


def notices_damage(directory: Path) -> bool:
    """Whether the check would notice a flipped byte: a check that cannot fail proves nothing."""
    with tempfile.TemporaryDirectory(prefix="compat-damage-") as scratch:
        broken = Path(scratch) / "codec-none-0"
        shutil.copytree(directory / "codec-none-0", broken)
        segment = files(Path(scratch), ".log")[0]
        content = bytearray(segment.read_bytes())
        content[len(content) // 2] ^= 0x55
        segment.write_bytes(content)
        return bool(look([segment], ("--deep-iteration",)))


def check() -> list[str]:
    """Writes a log dir and has it read; what is wrong with it."""
    with tempfile.TemporaryDirectory(prefix="compat-written-") as scratch:
        directory = Path(scratch)
        asyncio.run(write_all(directory))
        wrong = check_files(directory, expect=(".log", ".index", ".timeindex", ".txnindex", ".snapshot"))
        if not notices_damage(directory):
            wrong.append("the check did not notice a flipped byte")
        return wrong
