"""The whole audit over written log directories, without Spark: what is whole is clean, each break is named."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.audit.written_logs import NOW_MS, ORDERS, WrittenBroker, batch, batches, flip, places
from tidelog.audit import batch_table
from tidelog.audit import replica_comparison as comparing
from tidelog.audit.audit_run import AuditOptions, AuditResult, LocalRunner, audit
from tidelog.audit.directories import CannotAudit
from tidelog.audit.finding import Finding, Kind, offsets_are
from tidelog.audit.replica_facts import OffsetRange
from tidelog.runtime.disk import SystemDisk
from tidelog.storage.checkpoints import CLEANER_OFFSETS, RECOVERY_POINTS, write_offsets
from tidelog.storage.leader_epochs import EpochEntry
from tidelog.types import TopicPartition


@pytest.fixture
def brokers(tmp_path: Path) -> list[WrittenBroker]:
    found = [WrittenBroker(tmp_path, broker) for broker in (1, 2, 3)]
    for broker in found:
        broker.write(batches(12))
    return found


def look(root: Path, **options: object) -> AuditResult:
    asked = replace(AuditOptions([str(root)]), **options)  # type: ignore[arg-type]
    return audit(asked, LocalRunner(), pause=lambda _: None)


def only(found: AuditResult) -> Finding:
    (finding,) = found.faults
    return finding


def test_equal_replicas_are_clean(brokers: list[WrittenBroker], tmp_path: Path) -> None:
    found = look(tmp_path)
    assert found.findings == []
    assert [str(log_dir) for log_dir in found.log_dirs] == ["broker 1", "broker 2", "broker 3"]
    assert [replica.log_end for replica in found.replicas] == [60, 60, 60]


def test_other_segment_bounds_do_not_matter(brokers: list[WrittenBroker], tmp_path: Path) -> None:
    for file in brokers[1].path.glob("orders-0/*"):
        file.unlink()
    brokers[1].write(batches(12), per_segment=5)
    assert look(tmp_path).findings == []


@pytest.mark.parametrize("byte", [0, 7, 8, 10, 11, 12, 15, 16, 17, 21, 22, 26, 40, 60, 61, 90])
@pytest.mark.parametrize("place", [0, 1, 5, 7, 11])
def test_flipped_byte_is_found_and_named(brokers: list[WrittenBroker], tmp_path: Path, place: int, byte: int) -> None:
    damaged = places(brokers[1])[place]
    for mask in (0x01, 0x80):
        flip(damaged.file, damaged.position + byte, mask)
        found = look(tmp_path)
        assert found.faults, (byte, mask)
        assert {finding.broker for finding in found.faults} == {2}
        finding = found.faults[0]
        assert finding.topic_partition == ORDERS
        assert finding.file in (str(damaged.file), str(damaged.file.parent / "leader-epoch-checkpoint"))
        assert finding.offsets is not None
        assert finding.offsets.start <= damaged.start_offset + 4
        assert any(each.position in (damaged.position, None) for each in found.faults)
        flip(damaged.file, damaged.position + byte, mask)


def test_corrupt_batch_is_named_once_with_its_offsets(brokers: list[WrittenBroker], tmp_path: Path) -> None:
    damaged = places(brokers[2])[5]
    flip(damaged.file, damaged.position + 70)
    finding = only(look(tmp_path))
    assert finding == Finding(
        Kind.CORRUPT_BATCH,
        "the CRC does not match (offsets 25 to 29)",
        str(brokers[2].path),
        3,
        ORDERS,
        str(damaged.file),
        damaged.position,
        damaged.size_bytes,
        OffsetRange(25, 30),
    )


def test_damaged_length_does_not_hide_what_follows(brokers: list[WrittenBroker], tmp_path: Path) -> None:
    damaged, other = places(brokers[0])[4], places(brokers[0])[6]
    flip(damaged.file, damaged.position + 9)
    flip(other.file, other.position + 75)
    found = look(tmp_path).faults
    assert [(each.kind, each.offsets) for each in found] == [
        (Kind.CORRUPT_BATCH, OffsetRange(20, 25)),
        (Kind.CORRUPT_BATCH, OffsetRange(30, 35)),
    ]


def test_one_offset_is_reported_in_the_singular() -> None:
    assert offsets_are(OffsetRange(3, 4)) == "offset 3 is"
    assert offsets_are(OffsetRange(3, 5)) == "offsets 3 to 4 are"


def test_missing_segment_in_the_middle_is_named(brokers: list[WrittenBroker], tmp_path: Path) -> None:
    gone = brokers[1].segments()[1]
    gone.unlink()
    finding = only(look(tmp_path))
    assert (finding.kind, finding.broker, finding.file) == (Kind.MISSING_SEGMENT, 2, str(gone))
    assert finding.offsets == OffsetRange(20, 40)
    gone.with_suffix(".index").unlink()
    assert only(look(tmp_path)) == finding


@pytest.mark.parametrize(("index", "offsets"), [(0, OffsetRange(0, 20)), (2, OffsetRange(40, 60))])
def test_missing_first_or_last_segment_is_named(
    brokers: list[WrittenBroker], tmp_path: Path, index: int, offsets: OffsetRange
) -> None:
    gone = brokers[1].segments()[index]
    gone.unlink()
    finding = only(look(tmp_path))
    assert (finding.kind, finding.file, finding.offsets) == (Kind.MISSING_SEGMENT, str(gone), offsets)


def test_retention_on_one_broker_is_a_note(brokers: list[WrittenBroker], tmp_path: Path) -> None:
    directory = brokers[1].path / "orders-0"
    for name in ("00000000000000000000.log", "00000000000000000000.index"):
        (directory / name).unlink()
    (directory / "leader-epoch-checkpoint").write_text("0\n1\n0 20\n")
    found = look(tmp_path)
    assert found.faults == []
    assert "0 on broker 1, 20 on broker 2" in found.notes[0].sentence


def test_diverged_tail_is_named_with_those_who_agree(brokers: list[WrittenBroker], tmp_path: Path) -> None:
    brokers[2].write(batches(9) + batches(3, start=45, text="other"))
    finding = only(look(tmp_path))
    assert (finding.kind, finding.broker, finding.offsets) == (Kind.DIVERGED, 3, OffsetRange(45, 60))
    assert (finding.file, finding.position) == (str(brokers[2].segments()[2]), len(batch(40)))
    assert "brokers 1,2, which agree" in finding.sentence


def test_difference_over_many_blocks_is_named_from_its_first_to_its_last_batch(
    brokers: list[WrittenBroker], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (batch_table, comparing):
        monkeypatch.setattr(module, "BLOCK_OFFSETS", 10)
    brokers[0].write(batches(3) + batches(5, start=15, text="other") + batches(4, start=40))
    finding = only(look(tmp_path))
    assert (finding.kind, finding.broker, finding.offsets) == (Kind.DIVERGED, 1, OffsetRange(15, 40))
    brokers[0].write(batches(1, text="other") + batches(10, start=5) + batches(1, start=55, text="other"))
    assert [each.offsets for each in look(tmp_path).faults] == [OffsetRange(0, 5), OffsetRange(55, 60)]


def test_damage_and_divergence_on_two_brokers_are_distinguished(brokers: list[WrittenBroker], tmp_path: Path) -> None:
    damaged = places(brokers[0])[10]
    flip(damaged.file, damaged.position + 80)
    brokers[2].write(batches(10) + batches(1, start=50, text="other") + batches(1, start=55))
    found = look(tmp_path).faults
    assert [(each.kind, each.broker) for each in found] == [
        (Kind.CORRUPT_BATCH, 1),
        (Kind.DIVERGED, 2),
        (Kind.DIVERGED, 3),
    ]


def test_two_replicas_that_differ_are_both_named(tmp_path: Path) -> None:
    for number, text in ((1, "value"), (2, "other")):
        WrittenBroker(tmp_path, number).write(batches(4) + batches(2, start=20, text=text))
    found = look(tmp_path).faults
    assert [(each.kind, each.broker, each.offsets) for each in found] == [
        (Kind.DIVERGED, 1, OffsetRange(20, 30)),
        (Kind.DIVERGED, 2, OffsetRange(20, 30)),
    ]
    assert "no majority" in found[0].sentence


def test_what_lies_above_the_high_watermark_may_differ(brokers: list[WrittenBroker], tmp_path: Path) -> None:
    brokers[2].write(batches(9) + batches(3, start=45, text="other"))
    brokers[2].set_high_watermark(45)
    assert look(tmp_path).findings == []
    brokers[2].set_high_watermark(46)
    assert only(look(tmp_path)).kind is Kind.DIVERGED


def test_replica_far_behind_does_not_hide_that_the_others_differ(brokers: list[WrittenBroker], tmp_path: Path) -> None:
    brokers[0].set_high_watermark(5)
    brokers[2].write(batches(9) + batches(3, start=45, text="other"))
    assert {each.broker for each in look(tmp_path).faults} == {2, 3}


def test_log_that_ends_before_its_high_watermark_is_named(brokers: list[WrittenBroker], tmp_path: Path) -> None:
    file = brokers[0].segments()[-1]
    file.write_bytes(file.read_bytes()[: len(batch(40)) * 2])
    finding = only(look(tmp_path))
    assert (finding.kind, finding.offsets) == (Kind.MISSING_RECORDS, OffsetRange(50, 60))


def test_cut_batch_counts_unless_a_crash_cut_it_off(brokers: list[WrittenBroker], tmp_path: Path) -> None:
    with brokers[0].segments()[-1].open("ab") as file:
        file.write(batch(60)[:40])
    finding = only(look(tmp_path))
    assert (finding.kind, finding.position) == (Kind.CUT_BATCH, 4 * len(batch(40)))
    brokers[0].crash()
    found = look(tmp_path)
    assert found.faults == []
    assert "cut off by a crash" in found.notes[0].sentence


def test_epoch_that_the_checkpoint_does_not_know_is_named(brokers: list[WrittenBroker], tmp_path: Path) -> None:
    for broker in brokers:
        broker.write(batches(6) + batches(6, start=30, epoch=3), [EpochEntry(0, 0), EpochEntry(3, 30)])
    assert look(tmp_path).findings == []
    brokers[1].write(batches(6) + batches(6, start=30, epoch=3), [EpochEntry(0, 0)])
    finding = only(look(tmp_path))
    assert (finding.kind, finding.broker) == (Kind.EPOCHS, 2)
    assert "from offset 30 on have leader epoch 3, the checkpoint has epoch 0" in finding.sentence
    brokers[1].write(
        batches(6) + batches(6, start=30, epoch=3), [EpochEntry(0, 0), EpochEntry(3, 30), EpochEntry(4, 50)]
    )
    assert "leader epoch 4 starts at offset 50" in only(look(tmp_path)).sentence


def test_epochs_of_a_crashed_broker_are_judged_as_far_as_it_had_flushed(
    brokers: list[WrittenBroker], tmp_path: Path
) -> None:
    for broker in brokers:
        broker.write(batches(12), [])
        broker.crash()
    assert look(tmp_path).findings == []
    write_offsets(SystemDisk(), str(brokers[1].path / RECOVERY_POINTS), {ORDERS: 1})
    assert (only(look(tmp_path)).kind, only(look(tmp_path)).broker) == (Kind.EPOCHS, 2)


def test_epochs_that_go_back_are_named(brokers: list[WrittenBroker], tmp_path: Path) -> None:
    for broker in brokers:
        broker.write(batches(6, epoch=4) + batches(6, start=30, epoch=3), [EpochEntry(4, 0)])
    found = look(tmp_path).faults
    assert {each.kind for each in found} == {Kind.EPOCHS}
    assert {each.broker for each in found} == {1, 2, 3}


@pytest.mark.parametrize("byte", range(1, 8))
def test_a_gap_in_a_compacted_topic_does_not_reach_over_the_high_watermark(
    brokers: list[WrittenBroker], tmp_path: Path, byte: int
) -> None:
    """Compaction never touches the last segment: an offset beyond everything is a damaged header."""
    for broker in brokers:
        broker.write(batches(9))
    last = places(brokers[1])[8]
    flip(last.file, last.position + byte, 0x80)
    found = look(tmp_path, compacted=["orders"]).faults
    assert {(each.kind, each.broker, each.file) for each in found} == {(Kind.FILE_NAME, 2, str(last.file))}


def test_gaps_are_allowed_in_compacted_topics_only(brokers: list[WrittenBroker], tmp_path: Path) -> None:
    kept = batches(12)
    del kept[2]
    for broker in brokers[:2]:
        broker.write(kept)
    brokers[2].write(batches(12))
    assert [each.kind for each in look(tmp_path).faults] == [Kind.MISSING_RECORDS, Kind.MISSING_RECORDS]
    assert look(tmp_path, compacted=["ord*"]).faults == []
    write_offsets(SystemDisk(), str(brokers[0].path / CLEANER_OFFSETS), {ORDERS: 40})
    assert look(tmp_path).faults == []
    brokers[1].write(kept[:-1] + batches(1, start=55, text="other"))
    assert only(look(tmp_path)).offsets == OffsetRange(55, 60)


def test_directory_that_only_the_checkpoint_knows_is_missing(brokers: list[WrittenBroker], tmp_path: Path) -> None:
    brokers[1].set_high_watermark(7, TopicPartition("payments", 3))
    finding = only(look(tmp_path))
    assert (finding.kind, finding.broker, str(finding.topic_partition)) == (Kind.MISSING_REPLICA, 2, "payments-3")
    assert look(tmp_path, topics=["orders"]).faults == []


@pytest.mark.parametrize("content", ["", "version: 0\ntopic_id: ?", "\xff"])
def test_metadata_without_the_topic_id_is_named(brokers: list[WrittenBroker], tmp_path: Path, content: str) -> None:
    damaged = brokers[1].path / "orders-0" / "partition.metadata"
    damaged.write_text(content)
    finding = only(look(tmp_path))
    assert (finding.kind, finding.broker, finding.file) == (Kind.CHECKPOINT, 2, str(damaged))
    brokers[1].crash()
    assert look(tmp_path).faults == []


def test_replica_of_an_older_topic_of_that_name_is_named(brokers: list[WrittenBroker], tmp_path: Path) -> None:
    brokers[2].write(batches(12, text="other"), topic_id=bytes(16))
    finding = only(look(tmp_path))
    assert (finding.kind, finding.broker) == (Kind.TOPIC_ID, 3)


def test_file_that_is_not_named_after_its_first_offset_is_named(brokers: list[WrittenBroker], tmp_path: Path) -> None:
    file = brokers[1].segments()[1]
    file.rename(file.with_name("00000000000000000019.log"))
    file.with_suffix(".index").unlink()
    assert Kind.FILE_NAME in {each.kind for each in look(tmp_path).faults}


def test_damaged_checkpoint_is_named(brokers: list[WrittenBroker], tmp_path: Path) -> None:
    (brokers[1].path / "replication-offset-checkpoint").write_text("nonsense")
    finding = only(look(tmp_path))
    assert (finding.kind, finding.broker) == (Kind.CHECKPOINT, 2)


def test_empty_checkpoint_says_nothing_yet(brokers: list[WrittenBroker], tmp_path: Path) -> None:
    (brokers[1].path / "replication-offset-checkpoint").write_text("")
    (brokers[1].path / CLEANER_OFFSETS).write_text("")
    found = look(tmp_path)
    assert found.findings == []
    assert [replica.high_watermark for replica in found.replicas] == [60, 0, 60]


@pytest.fixture
def lock_holder(brokers: list[WrittenBroker]) -> Iterator[subprocess.Popen[str]]:
    """Stands for a broker that runs on the second directory."""
    program = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print(flush=True); input()"
    command = [sys.executable, "-c", program, str(brokers[1].path / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        os.kill(process.pid, signal.SIGKILL)


@pytest.mark.usefixtures("lock_holder")
def test_unfinished_write_of_a_running_broker_is_nothing(brokers: list[WrittenBroker], tmp_path: Path) -> None:
    brokers[1].crash()
    with brokers[1].segments()[-1].open("ab") as file:
        file.write(batch(60)[:40])
    found = look(tmp_path)
    assert [log_dir.is_running for log_dir in found.log_dirs] == [False, True, False]
    assert found.findings == []


@pytest.mark.usefixtures("lock_holder")
def test_what_a_running_broker_mends_while_we_look_is_no_finding(brokers: list[WrittenBroker], tmp_path: Path) -> None:
    damaged = places(brokers[1])[3]
    flip(damaged.file, damaged.position + 70)
    options = AuditOptions([str(tmp_path)])
    assert only(audit(options, LocalRunner(), pause=lambda _: None)).kind is Kind.CORRUPT_BATCH
    found = audit(options, LocalRunner(), pause=lambda _: flip(damaged.file, damaged.position + 70))
    assert found.findings == []


def test_keys_are_counted_on_one_replica(brokers: list[WrittenBroker], tmp_path: Path) -> None:
    counted = [
        segment.keys for replica in look(tmp_path).replicas for segment in replica.segments if segment.keys is not None
    ]
    assert sum(keys.record_count for keys in counted) == 60
    assert counted[0].counts[b"key-3"] == 4
    assert counted[0].payload_bytes == 20 * (len("key-0") + len("value-0"))
    assert look(tmp_path, counts_keys=False).replicas[0].segments[0].keys is None


def test_times_of_batches_are_known(brokers: list[WrittenBroker], tmp_path: Path) -> None:
    segment = look(tmp_path).replicas[0].segments[0]
    assert (segment.first_timestamp_ms, segment.last_timestamp_ms) == (NOW_MS + 4, NOW_MS + 19)
    assert segment.timeline is not None
    assert sum(segment.timeline.bucket_bytes) == segment.size_bytes


@pytest.mark.parametrize("name", ["absent", "file", "empty"])
def test_path_without_logs_is_refused_with_one_sentence(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    with pytest.raises(CannotAudit, match=name):
        look(tmp_path / name)


def test_log_directories_can_be_named_one_by_one(brokers: list[WrittenBroker]) -> None:
    options = AuditOptions([str(brokers[0].path), str(brokers[2].path), str(brokers[0].path)])
    assert [log_dir.broker for log_dir in audit(options, LocalRunner()).log_dirs] == [1, 3]
