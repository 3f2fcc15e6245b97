"""The audit on Spark, over what three real brokers wrote."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.audit.written_logs import flip
from tests.cli.local_cluster import LocalCluster, local_cluster
from tests.spark_session import Message, produce
from tidelog.audit.audit_run import AuditOptions, AuditResult, audit
from tidelog.audit.finding import Kind
from tidelog.audit.job import SparkRunner
from tidelog.audit.replica_facts import OffsetRange
from tidelog.audit.report import Report, as_html, as_json
from tidelog.audit.summary import summarise
from tidelog.protocol.record_batch import HEADER_BYTES, read_header, seal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

RECORDS = 3000
Look = Callable[[Path], AuditResult]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with local_cluster(tmp_path_factory.mktemp("audited") / "data", brokers=3) as found:
        found.up("--set", "log.segment.bytes=1048576", "--set", "replica.high.watermark.checkpoint.interval.ms=200")
        yield found


@pytest.fixture(scope="module")
def stopped(cluster: LocalCluster, look: Look) -> Path:
    """Directories of brokers that were audited while they ran, and have stopped since."""
    for start in range(0, RECORDS, RECORDS // 30):
        values = (b"order %06d " % (start + number) * 125 for number in range(RECORDS // 30))
        produce(cluster.bootstrap, "orders", (Message(value, b"hot") for value in values))
    assert look(cluster.data).faults == []
    cluster.run("down")
    return cluster.data


@pytest.fixture(scope="module")
def look(spark: "SparkSession") -> Look:
    return lambda path: audit(AuditOptions([str(path)]), SparkRunner(spark, output=None))


@pytest.fixture
def data(stopped: Path, tmp_path: Path) -> Path:
    """A copy to break."""
    return Path(shutil.copytree(stopped, tmp_path / "data"))


def segments_of(data: Path, broker: int) -> list[Path]:
    found = sorted((data / f"broker-{broker}" / "orders-0").glob("*.log"))
    assert len(found) > 3
    return found


def test_sound_replicas_are_clean(stopped: Path, look: Look) -> None:
    found = look(stopped)
    assert found.findings == []
    assert [log_dir.is_running for log_dir in found.log_dirs] == [False, False, False]
    report = Report(found, summarise(found, 5), 0, 1.0)
    (topic,) = json.loads(as_json(report))["topics"]
    assert (topic["records"], topic["replicas"]) == (RECORDS, 3)
    assert topic["hot_keys"][0] == {"key": "hot", "key_hex": b"hot".hex(), "count": RECORDS, "share": 1.0}
    assert "Clean" in as_html(report)


def test_flipped_byte_is_named(data: Path, look: Look) -> None:
    file = segments_of(data, 2)[1]
    first = read_header(file.read_bytes())
    flip(file, HEADER_BYTES + 20)
    (finding,) = look(data).faults
    assert (finding.kind, finding.broker, finding.file, finding.position) == (Kind.CORRUPT_BATCH, 2, str(file), 0)
    assert finding.offsets == OffsetRange(first.base_offset, first.end_offset)


def test_missing_segment_is_named(data: Path, look: Look) -> None:
    gone, following = segments_of(data, 3)[1:3]
    gone.unlink()
    (finding,) = look(data).faults
    assert (finding.kind, finding.broker, finding.file) == (Kind.MISSING_SEGMENT, 3, str(gone))
    assert finding.offsets == OffsetRange(int(gone.stem), int(following.stem))


def test_replica_with_another_tail_is_named(data: Path, look: Look) -> None:
    file = segments_of(data, 1)[-1]
    tail, position = bytearray(file.read_bytes()), 0
    while position < len(tail):
        header = read_header(tail, position)
        batch = memoryview(tail)[position : position + header.size_bytes]
        batch[-10] ^= 1
        seal(batch)
        position += header.size_bytes
    file.write_bytes(tail)
    (finding,) = look(data).faults
    assert (finding.kind, finding.broker, finding.file, finding.position) == (Kind.DIVERGED, 1, str(file), 0)
    assert finding.offsets == OffsetRange(int(file.stem), RECORDS)
    assert "brokers 2,3, which agree" in finding.sentence
