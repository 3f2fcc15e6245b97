"""Identity of a process: its id and start time, so that a reused process id is never mistaken for it."""

import os
import signal
from pathlib import Path
from typing import NamedTuple

from tidelog.runtime.linux_calls import pidfd_open, pidfd_send_signal

ZOMBIE = "Z"
STOPPED = "T"


class ProcessIdentity(NamedTuple):
    pid: int
    started: str
    """Start time as the kernel reports it: boot id and clock ticks since boot."""


def identity_of(pid: int) -> ProcessIdentity | None:
    """None if there is no such process, or it is a zombie."""
    found = state_and_start(pid)
    return None if found is None or found[0] == ZOMBIE else ProcessIdentity(pid, found[1])


def is_running(identity: ProcessIdentity) -> bool:
    return identity_of(identity.pid) == identity


def is_stopped(identity: ProcessIdentity) -> bool:
    """Paused with SIGSTOP."""
    found = state_and_start(identity.pid)
    return found is not None and found == (STOPPED, identity.started)


def state_and_start(pid: int) -> tuple[str, str] | None:
    """State and start time. The name before them is in brackets, and may contain brackets and spaces."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return fields[0], f"{_boot()} {fields[19]}"


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def send(identity: ProcessIdentity, number: signal.Signals) -> bool:
    """False if the process is gone. A pidfd guarantees that no other process gets the signal."""
    try:
        descriptor = pidfd_open(identity.pid)
    except ProcessLookupError:
        return False
    try:
        if not is_running(identity):
            return False
        pidfd_send_signal(descriptor, number)
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
