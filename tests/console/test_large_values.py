"""Values of many megabytes: the page shows their beginning, and memory does not grow with their number."""

import json
import sys
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from bench import wire
from tests.console.running_console import RunningConsole, running_console
from tidelog.console import messages
from tidelog.console.payload import MAX_SHOWN_BYTES
from tidelog.testing import Cluster

MEGABYTE = 1024 * 1024
SIZE = 12 * MEGABYTE
VALUES = 6
ITEM = b'{"id": 12345, "name": "something"}, '
VALUE = b"[" + ITEM * (SIZE // len(ITEM)) + b"1]"
MAX_COPIES = 14
"""Of one value, in the memory of the console: in the frames, decoded, encoded and on the way to the browser."""
PYARROW_BYTES = 120 * MEGABYTE
"""Of the library itself, once it is loaded."""


@pytest.fixture(scope="module")
def kafka() -> Generator[Cluster]:
    with Cluster(settings={"num.partitions": 1, "message.max.bytes": 2 * SIZE}) as cluster:
        with wire.Connection(int(cluster.bootstrap_servers.rpartition(":")[2])) as connection:
            connection.ask(wire.create_topic_frame("large", 1, {}))
            for _ in range(VALUES):
                batch = wire.record_batch([VALUE], time.time_ns() // 1_000_000)
                response = connection.ask(wire.produce_frame("large", {0: batch}))
                assert wire.produce_error(response) == wire.ERROR_NONE
        yield cluster


@pytest.fixture(scope="module")
def console(kafka: Cluster) -> Generator[RunningConsole]:
    with running_console(kafka.bootstrap_servers) as running:
        yield running


def test_the_page_gets_the_beginning_of_each_value(console: RunningConsole) -> None:
    answer = console.read("/api/topics/large/messages?start=earliest&limit=2")
    assert len(answer) < 3 * MAX_SHOWN_BYTES
    first, second = json.loads(answer)["records"]
    assert first["value"]["size"] == second["value"]["size"] == len(VALUE)
    assert first["value"]["cut"] is True


def test_a_page_of_large_values_ends_early_and_goes_on_from_there(console: RunningConsole) -> None:
    fitting = messages.MAX_READ_BYTES // len(VALUE) + 1
    assert fitting <= VALUES
    page = console.get("/api/topics/large/messages?start=earliest&limit=100")
    # Fewer where the machine is so busy that a page took MAX_SCAN_S.
    assert 1 <= len(page["records"]) <= fitting
    assert page["next_offsets"] == {"0": len(page["records"])}


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of another process is in /proc")
@pytest.mark.parametrize(
    "path",
    ["messages?start=earliest&limit=100", *(f"download?start=earliest&format={name}" for name in ("jsonl", "csv"))],
)
def test_memory_holds_a_few_copies_of_one_value(console: RunningConsole, path: str) -> None:
    assert _peak_growth(console, path) < MAX_COPIES * SIZE


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of another process is in /proc")
def test_a_parquet_file_too(console: RunningConsole) -> None:
    assert _peak_growth(console, "download?start=earliest&format=parquet") < MAX_COPIES * SIZE + PYARROW_BYTES


def _peak_growth(console: RunningConsole, path: str) -> int:
    process = Path(f"/proc/{console.pid}")
    (process / "clear_refs").write_text("5")  # the peak is counted from here on
    before = _field(process, "VmRSS")
    assert console.read(f"/api/topics/large/{path}")
    return _field(process, "VmHWM") - before


def _field(process: Path, name: str) -> int:
    lines = (process / "status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))
