"""The checks that all tests here rely on find what they are there to find."""

from pathlib import Path

import pytest

from tests.processes.history import Acknowledgement, FollowingReader, IdempotentWriter, Logs, check
from tests.processes.replicas import assert_replicas_identical
from tidelog.protocol.records import Record, build_batch

NOWHERE = "127.0.0.1:1"
VALUES = [b"0:0", b"0:1", b"0:2"]


def writer_of(*values: bytes) -> IdempotentWriter:
    """A history in which each value was acknowledged at its place."""
    writer = IdempotentWriter(NOWHERE, "tides", 1)
    writer.sent[0] = list(values)
    writer.acknowledged[0] = [Acknowledgement(value, offset, 0.0) for offset, value in enumerate(values)]
    return writer


def log_of(*values: bytes) -> Logs:
    return {0: dict(enumerate(values))}


def test_history_without_faults_passes() -> None:
    check(writer_of(*VALUES), log_of(*VALUES))


@pytest.mark.parametrize(
    "stored",
    [VALUES[:2], [*VALUES, VALUES[2]], [VALUES[1], VALUES[0], VALUES[2]], [*VALUES, b"never sent"]],
    ids=["lost", "repeated", "reordered", "foreign"],
)
def test_log_that_is_not_what_was_sent_is_found(stored: list[bytes]) -> None:
    with pytest.raises(AssertionError, match="partition 0"):
        check(writer_of(*VALUES), log_of(*stored))


def test_acknowledgement_for_another_place_is_found() -> None:
    writer = writer_of(*VALUES)
    writer.acknowledged[0][1] = Acknowledgement(VALUES[1], 2, 0.0)
    with pytest.raises(AssertionError, match="partition 0"):
        check(writer, log_of(*VALUES))


def test_acknowledgement_without_an_offset_passes() -> None:
    writer = writer_of(*VALUES)
    writer.acknowledged[0][1] = Acknowledgement(VALUES[1], None, 0.0)
    check(writer, log_of(*VALUES))


def test_reader_that_saw_what_is_not_in_the_log_is_found() -> None:
    reader = FollowingReader(NOWHERE, "tides", 1)
    reader.seen[0] = {1: b"gone"}
    with pytest.raises(AssertionError, match="a reader saw"):
        check(writer_of(*VALUES), log_of(*VALUES), reader)


def log_dirs(directory: Path) -> list[Path]:
    """Three replicas of two committed records; one of them has a third record that is not committed."""
    found = []
    for number in range(3):
        log_dir = directory / f"broker-{number}"
        (log_dir / "tides-0").mkdir(parents=True)
        (log_dir / "replication-offset-checkpoint").write_text("0\n1\ntides 0 2\n")
        batches = [build_batch([Record(offset, 0, None, b"%d" % offset)]) for offset in range(2 + (number == 1))]
        (log_dir / "tides-0" / f"{0:020}.log").write_bytes(b"".join(batches))
        found.append(log_dir)
    return found


def test_replicas_may_differ_only_above_the_high_watermark(tmp_path: Path) -> None:
    assert list(assert_replicas_identical(log_dirs(tmp_path)).values()) == [2]


def test_replica_with_another_byte_is_found(tmp_path: Path) -> None:
    found = log_dirs(tmp_path)
    segment = found[2] / "tides-0" / f"{0:020}.log"
    data = bytearray(segment.read_bytes())
    data[65] ^= 1
    segment.write_bytes(data)
    with pytest.raises(AssertionError, match="tides-0 differs below 2"):
        assert_replicas_identical(found)


def test_replica_that_lacks_committed_records_is_found(tmp_path: Path) -> None:
    found = log_dirs(tmp_path)
    (found[0] / "tides-0" / f"{0:020}.log").write_bytes(b"")
    with pytest.raises(AssertionError, match="ends at 0"):
        assert_replicas_identical(found)
