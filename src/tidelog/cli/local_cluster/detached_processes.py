"""Detached processes: they survive the process that started them."""

import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tidelog.cli import rotating_log
from tidelog.cli.command_error import CommandError
from tidelog.cli.owners import owner_of
from tidelog.runtime.process_identity import ProcessIdentity, is_running, send, state_and_start

POLL_S = 0.01
NEW_SESSION = "import os, sys; os.setsid(); os.execv(sys.argv[1], sys.argv[1:])"
"""The same process then runs the program."""


def send_signal(identity: ProcessIdentity, number: signal.Signals) -> None:
    """Does nothing if the process is gone. CommandError if it belongs to another user."""
    try:
        send(identity, number)
    except PermissionError:
        owner = owner_of(f"/proc/{identity.pid}")
        raise CommandError(
            f"process {identity.pid} belongs to user {owner}; run the command as {owner}, or with sudo"
        ) from None


def wait_until_gone(identity: ProcessIdentity, timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while is_running(identity):
        if time.monotonic() > deadline:
            return False
        reap()
        time.sleep(POLL_S)
    return True


def start_detached(arguments: Sequence[str], log_file: Path) -> ProcessIdentity:
    """`python ARGUMENTS` in a session of its own: Ctrl-C and the end of the terminal do not reach it."""
    _rotate(log_file)
    try:
        pid = _spawn(arguments, log_file, setsid=True)
    except NotImplementedError:  # this Python was built for an older glibc (python-build-standalone)
        pid = _spawn(["-I", "-S", "-c", NEW_SESSION, sys.executable, *arguments], log_file, setsid=False)
    found = state_and_start(pid)
    assert found is not None, "a child stays at least as a zombie until it is reaped"
    return ProcessIdentity(pid, found[1])


def _spawn(arguments: Sequence[str], log_file: Path, *, setsid: bool) -> int:
    return os.posix_spawn(
        sys.executable,
        [sys.executable, *arguments],
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, str(log_file), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
            *[(os.POSIX_SPAWN_CLOSE, descriptor) for descriptor in _inheritable_descriptors()],
        ],
        setsid=setsid,
        setsigmask=[],
        setsigdef=[signal.SIGINT, signal.SIGTERM, signal.SIGHUP],
    )


def _inheritable_descriptors() -> list[int]:
    """Descriptors that a child would inherit, such as locks. Descriptors that Python opens are not inheritable."""
    return [descriptor for descriptor in map(int, os.listdir("/proc/self/fd")) if _is_inheritable(descriptor)]


def _is_inheritable(descriptor: int) -> bool:
    try:
        return descriptor > 2 and os.get_inheritable(descriptor)
    except OSError:  # the descriptor of the directory listing, closed by now
        return False


def _rotate(log_file: Path) -> None:
    """Covers processes that do not rotate their log themselves, or were killed before they could."""
    if log_file.exists() and log_file.stat().st_size > rotating_log.MAX_BYTES:
        rotating_log.rotate_files(str(log_file))


def reap() -> dict[int, int]:
    """Reaps ended children: exit codes by pid, negative for the signal that killed the child."""
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
