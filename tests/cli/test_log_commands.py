"""`tidelog log dump` and `verify`, on files that brokers wrote and that were damaged afterwards."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tidelog.cli.log_checks import check_partition
from tidelog.cli.log_reading import offset_index, time_index
from tidelog.cli.main import main
from tidelog.testing import Cluster

SMALL = {"log.index.interval.bytes": 1, "log.segment.bytes": 1024 * 1024}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Segments with indexes, leader epochs, producers, and a committed and an aborted transaction."""
    directory = tmp_path_factory.mktemp("log")
    with Cluster(directory=directory, settings=SMALL) as kafka:
        for number, ending in enumerate(("commit", "abort")):
            how = {"transactional.id": f"t{number}", "batch.num.messages": 5}
            producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, **how})
            producer.init_transactions()
            producer.begin_transaction()
            for value in range(40):
                producer.produce(
                    "tides", f"{value:060000d}", key=f"k{value}", headers={"h": "x"}, timestamp=1000 + value
                )
            producer.flush()
            getattr(producer, f"{ending}_transaction")()
            Producer({"bootstrap.servers": kafka.bootstrap_servers, **how}).init_transactions()  # the marker is there
    return directory


@pytest.fixture
def partition(written: Path, tmp_path: Path) -> Path:
    (found,) = written.glob("**/tides-0")
    return Path(shutil.copytree(found, tmp_path / "tides-0"))


def run(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    capfd.readouterr()
    code = main(["log", *arguments])
    return code, capfd.readouterr().out


def dumped(capfd: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run(capfd, "dump", *arguments, "--json")[1].splitlines()]


def test_files_of_a_broker_are_sound(written: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, said = run(capfd, "verify", str(written))
    assert (code, said.startswith("sound: ")) == (0, True), said
    found = json.loads(run(capfd, "verify", str(written), "--json")[1])
    tides = next(each for each in found if each["directory"].endswith("tides-0"))
    assert (tides["records"], tides["is_sound"], tides["segments"] > 1) == (82, True, True)


def test_everything_is_dumped(partition: Path, capfd: pytest.CaptureFixture[str]) -> None:
    entries = dumped(capfd, str(partition))
    records = [each for each in entries if "headers" in each]
    assert len(records) == 80
    assert (records[0]["key"], records[0]["headers"]) == ("k0", [{"key": "h", "value": "x"}])
    assert [each["control"] for each in entries if "control" in each] == ["commit", "abort"]
    names = {Path(each["file"]).suffix or Path(each["file"]).name for each in entries}
    assert {".log", ".index", ".timeindex", ".txnindex", ".snapshot", "leader-epoch-checkpoint"} <= names
    (aborted,) = [each for each in entries if each["file"].endswith(".txnindex")]
    assert aborted["last_offset"] == 81
    assert any(each.get("is_valid") for each in entries)
    code, text = run(capfd, "dump", "--batches", str(partition))
    assert (code, "value=" in text, "base_offset=0 " in text) == (0, False, True)


def _flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0xFF
    path.write_bytes(data)


def _first(partition: Path, suffix: str) -> Path:
    return next(each for each in sorted(partition.glob(f"*{suffix}")) if each.stat().st_size)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda each: _flip(_first(each, ".log"), 100), "the CRC does not match: offsets 0 to"),
        (lambda each: _first(each, ".log").write_bytes(_first(each, ".log").read_bytes()[:-7]), "not a whole batch"),
        (lambda each: _flip(_first(each, ".log"), 15), "leader epoch"),
        (lambda each: _flip(_first(each, ".index"), 7), "where no batch begins"),
        (lambda each: _first(each, ".index").write_bytes(b"abc"), "the last 3 bytes are not a whole entry"),
        (lambda each: _flip(_first(each, ".timeindex"), 12), "follows offset"),
        (lambda each: _flip(_first(each, ".txnindex"), 9), "there is no abort marker of producer"),
        (lambda each: _flip(_first(each, ".snapshot"), 8), "the producer snapshot is damaged: its CRC"),
        (lambda each: (each / "leader-epoch-checkpoint").write_text("0\n5\n"), "the checkpoint is damaged"),
        (lambda each: sorted(each.glob("*.log"))[1].rename(each / f"{1:020d}.log"), "but the one before it ends at"),
    ],
)
def test_damage_is_found(
    partition: Path, capfd: pytest.CaptureFixture[str], damage: Callable[[Path], object], said: str
) -> None:
    assert check_partition(partition).damages == []
    damage(partition)
    code, text = run(capfd, "verify", str(partition))
    assert code == 1
    assert said in text
    assert "damaged: " in text.splitlines()[-1]
    run(capfd, "dump", str(partition))  # says what it can, and never fails


@pytest.mark.parametrize(
    "damage", [lambda each: _flip(each, 100), lambda each: each.write_bytes(each.read_bytes()[:-7])]
)
def test_dump_of_a_damaged_log_ends_with_1(
    partition: Path, capfd: pytest.CaptureFixture[str], damage: Callable[[Path], object]
) -> None:
    file = _first(partition, ".log")
    assert run(capfd, "dump", str(file))[0] == 0
    damage(file)
    for flags in ([], ["--json"]):
        assert run(capfd, "dump", str(file), *flags)[0] == 1


def test_partition_without_segments_is_damaged(partition: Path, capfd: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(partition, partition.parent / "tides-1")
    for segment in partition.glob("*.log"):
        segment.unlink()
    code, out = run(capfd, "verify", str(partition.parent))
    assert code == 1
    assert f"{partition}: the segments are missing: no .log file" in out
    assert "checked 2 partitions" in out


def test_zeros_that_kafka_leaves_in_an_active_index_are_no_entries(tmp_path: Path) -> None:
    path = tmp_path / f"{5:020d}.timeindex"
    path.write_bytes(bytes.fromhex("000000000000000700000001") + bytes(120))
    assert [tuple(each) for each in time_index(path)] == [(6, 7)]
    empty = tmp_path / f"{5:020d}.index"
    empty.write_bytes(bytes(80))
    assert offset_index(empty) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["verify", "nowhere"], "nowhere does not exist"),
        (["verify", "."], "has no partitions"),
        (["dump", "README.md"], "is not a log file"),
        (["dump", "src"], "has no log files"),
    ],
)
def test_mistakes_are_one_sentence(arguments: list[str], said: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["log", *arguments]) == 1
    (line,) = capfd.readouterr().err.splitlines()
    assert said in line
