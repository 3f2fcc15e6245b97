"""`tidelog` as a process of its own, and what it leaves on disk."""

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

TIME_LIMIT_S = 120
END_OF_GREETING = "Stop it with"


def tidelog(*arguments: str, directory: Path | None = None, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Runs to its end."""
    return subprocess.run(
        [sys.executable, "-m", "tidelog", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
        cwd=directory,
        check=False,
    )


def settings(*log_dirs: Path, **values: str) -> list[str]:
    """The flags of a broker on a free port; `broker_id` means broker.id."""
    given = {"log_dirs": ",".join(map(str, log_dirs)), "listeners": "PLAINTEXT://127.0.0.1:0"} | values
    return [part for name, value in given.items() for part in ("--set", f"{name.replace('_', '.')}={value}")]


class RunningBroker:
    def __init__(self, process: subprocess.Popen[str], greeting: str, log_file: Path) -> None:
        self._process = process
        self._log_file = log_file
        self.greeting = greeting
        self.address = next(
            line.removeprefix("listening on ") for line in greeting.splitlines() if line.startswith("listening on ")
        )

    @property
    def log(self) -> str:
        return self._log_file.read_text()

    def stop(self, number: int = signal.SIGTERM) -> int:
        self._process.send_signal(number)
        return self._process.wait(TIME_LIMIT_S)

    def kill(self) -> None:
        self.stop(signal.SIGKILL)


@contextmanager
def running_broker(log_file: Path, *arguments: str) -> Generator[RunningBroker]:
    """A broker that has said that it listens; killed at the end if it still runs."""
    command = [sys.executable, "-m", "tidelog", "broker", *arguments]
    with (
        log_file.open("a") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        try:
            yield RunningBroker(process, _read_greeting(process, log_file), log_file)
        finally:
            process.kill()


def _read_greeting(process: subprocess.Popen[str], log_file: Path) -> str:
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if line.startswith(END_OF_GREETING):
            return "".join(lines)
    raise AssertionError(f"the broker did not start:\n{log_file.read_text()}")


def contents(directory: Path) -> dict[str, bytes | None]:
    """Every path below the directory, with the bytes of the files."""
    return {
        str(path.relative_to(directory)): path.read_bytes() if path.is_file() else None
        for path in sorted(directory.rglob("*"))
    }


def without_store(found: dict[str, bytes | None]) -> dict[str, bytes | None]:
    """A running broker renews its lease in the coordination store at any moment."""
    return {path: data for path, data in found.items() if not os.path.basename(path).startswith("coordination.sqlite")}


def nodes_of(store: Path) -> list[tuple[str, bytes, int]]:
    connection = sqlite3.connect(store)
    try:
        return connection.execute("SELECT path, data, version FROM node ORDER BY path").fetchall()
    finally:
        connection.close()
