"""Logs of brokers that `tidelog up` runs stay small, and lose no line."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tidelog.cli.rotating_log import rotate_files

TALKER = """
import logging, os, sys
from tidelog.cli.rotating_log import RotatingLog
logging.basicConfig(level="INFO", format="%(message)s", handlers=[RotatingLog(sys.argv[1], 1000, 3)])
for number in range(int(sys.argv[2])):
    logging.info("line %05d", number)
print("last words", file=sys.stderr)
os.write(1, b"ready")
sys.stdin.read()
"""


def lines(*files: Path) -> list[str]:
    return [line for file in files for line in file.read_text().splitlines()]


def talk(file: Path, count: int) -> subprocess.Popen[bytes]:
    """A process that has written so many lines, and then stands still."""
    with file.open("ab") as inherited:
        process = subprocess.Popen(
            [sys.executable, "-c", TALKER, str(file), str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=inherited,
        )
    assert process.stdout is not None
    assert process.stdout.read(5) == b"ready"
    return process


def test_a_log_is_bounded_and_the_newest_lines_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "broker-1.log"
    process = talk(file, 1000)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    names = sorted(found.name for found in tmp_path.iterdir())
    assert names == ["broker-1.log", "broker-1.log.1", "broker-1.log.2", "broker-1.log.3"]
    assert all(found.stat().st_size < 1100 for found in tmp_path.iterdir())
    kept = lines(*(tmp_path / f"broker-1.log.{number}" for number in (3, 2, 1)), file)
    assert kept[-1] == "last words", "what others write to standard error goes to the same file"
    assert kept[:-1] == [f"line {number:05d}" for number in range(1000 - len(kept) + 1, 1000)]


def test_a_file_that_was_moved_away_is_recreated_and_nothing_else_is_moved(tmp_path: Path) -> None:
    file = tmp_path / "broker-1.log"
    process = talk(file, 10)
    file.rename(tmp_path / "moved")
    process.communicate()
    again = talk(file, 10)
    again.communicate()
    assert lines(tmp_path / "moved") == lines(file)
    assert not (tmp_path / "broker-1.log.1").exists()


def test_putting_aside_forgets_the_oldest(tmp_path: Path) -> None:
    file = tmp_path / "log"
    for number in range(6):
        file.write_text(str(number))
        rotate_files(str(file))
    assert {found.name: found.read_text() for found in tmp_path.iterdir()} == {"log.1": "5", "log.2": "4", "log.3": "3"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_log_file_that_cannot_be_written_is_one_clear_sentence(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    done = subprocess.run(
        [sys.executable, "-m", "tidelog", "broker", "--log-file", str(tmp_path / "log")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("tidelog broker: cannot write to ")
