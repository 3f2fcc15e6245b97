"""`tidelog` as one types it, in processes of its own; whatever happens, none of them is left behind."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from demo.time_limits import time_limit_s
from tidelog.runtime.process_identity import ProcessIdentity, identity_of, is_running, send

PROGRAMS = Path(sys.executable).parent
COMMAND_LIMIT_S = 90.0
POLITE_S = 3.0
POLL_S = 0.05


class CommandFailed(Exception):
    """The message says which, and what it said."""


class Commands:
    """Runs them with the environment that says which cluster is meant."""

    def __init__(self, environment: Mapping[str, str], directory: Path) -> None:
        path = f"{PROGRAMS}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        self._environment = {**os.environ, **environment, "PATH": path}
        self._directory = directory

    def run(self, *arguments: str, limit_s: float = COMMAND_LIMIT_S, good_codes: Collection[int] = (0,)) -> str:
        """To its end; what it printed."""
        limit_s = time_limit_s(limit_s)
        with self.started(arguments, subprocess.PIPE, subprocess.PIPE) as process:
            try:
                output, errors = process.communicate(timeout=limit_s)
            except subprocess.TimeoutExpired:
                raise CommandFailed(f"tidelog {' '.join(arguments)} took longer than {limit_s:.0f} s") from None
        if process.returncode not in good_codes:
            raise CommandFailed(f"tidelog {' '.join(arguments)}: {(errors or output).strip()}")
        return output

    def ask(self, *arguments: str, good_codes: Collection[int] = (0,)) -> Any:
        return json.loads(self.run(*arguments, "--json", good_codes=good_codes))

    @contextmanager
    def started(
        self, arguments: tuple[str, ...], output: TextIO | int, errors: TextIO | int = subprocess.STDOUT
    ) -> "Generator[subprocess.Popen[str]]":
        """In a session of its own: Ctrl-C is for the tour, which ends it together with all that it started."""
        process = subprocess.Popen(
            [PROGRAMS / "tidelog", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            text=True,
            cwd=self._directory,
            env=self._environment,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            end(process)


def end(process: "subprocess.Popen[str]") -> None:
    """In order if that is quick; with Spark's Java and its workers, which would notice only by and by."""
    if process.poll() is not None:
        return
    family = [identity for pid in descendants(process.pid) if (identity := identity_of(pid)) is not None]
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(POLITE_S)
    process.kill()
    process.wait()
    _end_all(family)


def _end_all(family: list[ProcessIdentity]) -> None:
    deadline_s = time.monotonic() + POLITE_S
    while any(map(is_running, family)) and time.monotonic() < deadline_s:
        time.sleep(POLL_S)
    for identity in family:
        send(identity, signal.SIGKILL)


def descendants(pid: int) -> list[int]:
    """Processes that `pid` started, those that they started, and so on."""
    children: dict[int, list[int]] = {}
    for directory in Path("/proc").iterdir():
        if directory.name.isdecimal():
            with contextlib.suppress(OSError):
                parent = int((directory / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(directory.name))
    found: list[int] = []
    waiting = [pid]
    while waiting:
        born = children.get(waiting.pop(), [])
        found += born
        waiting += born
    return found
