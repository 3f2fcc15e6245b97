"""Process tree, as the kernel reports it: finds the processes of Spark, to kill exactly those."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from tidelog.runtime.process_identity import ProcessIdentity, identity_of, is_running, send

POLL_S = 0.02
GONE_LIMIT_S = 120.0


def descendants(pid: int) -> list[ProcessIdentity]:
    """Children and theirs, parents first; those that have ended are left out."""
    children: dict[int, list[int]] = {}
    for child, parent in _parents():
        children.setdefault(parent, []).append(child)
    found, waiting = [], [pid]
    while waiting:
        grown = children.get(waiting.pop(0), [])
        found += [identity for child in grown if (identity := identity_of(child)) is not None]
        waiting += grown
    return found


def tree(pid: int) -> list[ProcessIdentity]:
    """A process with all that it started."""
    root = identity_of(pid)
    return ([root] if root is not None else []) + descendants(pid)


def _parents() -> Iterator[tuple[int, int]]:
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            try:
                fields = Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            yield int(entry), int(fields[1])


def command_of(identity: ProcessIdentity) -> str:
    """Empty if it is gone."""
    try:
        return Path(f"/proc/{identity.pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def busy(identities: list[ProcessIdentity], sample_s: float) -> list[ProcessIdentity]:
    """Those that have used the processor meanwhile."""
    before = {identity: _ticks(identity) for identity in identities}
    time.sleep(sample_s)
    return [identity for identity, ticks in before.items() if _ticks(identity) > ticks]


def _ticks(identity: ProcessIdentity) -> int:
    try:
        fields = Path(f"/proc/{identity.pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(fields[11]) + int(fields[12])


def kill_all(identities: list[ProcessIdentity]) -> list[ProcessIdentity]:
    """Those that were still there to be killed; returns when none of them runs."""
    killed = [identity for identity in identities if send(identity, signal.SIGKILL)]
    deadline = time.monotonic() + GONE_LIMIT_S
    while any(is_running(identity) for identity in killed):
        assert time.monotonic() < deadline, "killed processes go on"
        time.sleep(POLL_S)
    return killed


def kill_tree(pid: int) -> list[ProcessIdentity]:
    """From the top, so that no parent starts another child."""
    return kill_all(tree(pid))
