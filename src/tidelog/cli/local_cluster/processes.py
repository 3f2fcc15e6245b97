"""Processes that outlive whoever started them: named so that a reused process id is never taken for one of them."""

import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ZOMBIE = "Z"
STOPPED = "T"
POLL_S = 0.01
LARGEST_LOG_BYTES = 20 * 1024 * 1024


class ProcessIdentity(NamedTuple):
    pid: int
    started: str
    """When, in the kernel's own terms: the boot and the clock ticks since then."""


def identity_of(pid: int) -> ProcessIdentity | None:
    """None if there is no such process, or it has ended and waits for its parent to notice."""
    found = _stat(pid)
    return None if found is None or found[0] == ZOMBIE else ProcessIdentity(pid, found[1])


def is_running(identity: ProcessIdentity) -> bool:
    return identity_of(identity.pid) == identity


def is_stopped(identity: ProcessIdentity) -> bool:
    """Paused with SIGSTOP."""
    found = _stat(identity.pid)
    return found is not None and found == (STOPPED, identity.started)


def _stat(pid: int) -> tuple[str, str] | None:
    """State and start time. The name before them is in brackets and may itself hold brackets and spaces."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return fields[0], f"{_boot()} {fields[19]}"


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def send(identity: ProcessIdentity, number: signal.Signals) -> bool:
    """False if the process is gone; a file descriptor of the process rules out that another one is hit."""
    try:
        descriptor = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        return False
    try:
        if not is_running(identity):
            return False
        signal.pidfd_send_signal(descriptor, number)
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)


def wait_until_gone(identity: ProcessIdentity, timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while is_running(identity):
        if time.monotonic() > deadline:
            return False
        reap()
        time.sleep(POLL_S)
    return True


def start_detached(arguments: Sequence[str], log_file: Path) -> ProcessIdentity:
    """`python ARGUMENTS` in a session of its own: neither Ctrl-C nor the end of the terminal reaches it."""
    _rotate(log_file)
    pid = os.posix_spawn(
        sys.executable,
        [sys.executable, *arguments],
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, str(log_file), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
        ],
        setsid=True,
        setsigmask=[],
        setsigdef=[signal.SIGINT, signal.SIGTERM, signal.SIGHUP],
    )
    found = _stat(pid)
    assert found is not None, "a child stays at least as a zombie until it is reaped"
    return ProcessIdentity(pid, found[1])


def _rotate(log_file: Path) -> None:
    if log_file.exists() and log_file.stat().st_size > LARGEST_LOG_BYTES:
        log_file.replace(log_file.with_name(log_file.name + ".1"))


def reap() -> dict[int, int]:
    """Ended children with their exit codes (minus the signal that killed them), which then are gone for good."""
    ended = {}
    try:
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            ended[pid] = os.waitstatus_to_exitcode(status)
    except ChildProcessError:
        pass
    return ended
