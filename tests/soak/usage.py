"""Memory and descriptors of broker processes over time, and whether they grow without end."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

MEMORY_ALLOWANCE_BYTES = 64 * 1024 * 1024
DESCRIPTOR_ALLOWANCE = 64
"""Above what a broker had at most in the first third: caches and topics that come and go make some difference."""


class Usage(NamedTuple):
    memory_bytes: int
    """Resident."""
    descriptors: int


def usage_of(pid: int) -> Usage | None:
    """None if there is no such process any more."""
    try:
        resident_pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return Usage(resident_pages * os.sysconf("SC_PAGE_SIZE"), len(os.listdir(f"/proc/{pid}/fd")))
    except (FileNotFoundError, ProcessLookupError):
        return None


def growth(name: str, samples: Sequence[Usage]) -> list[str]:
    """What the last sample has too much of, compared with the most of the first third."""
    if len(samples) < 2:
        return [f"{name}: there are no figures of its memory and descriptors"]
    early = samples[: max(len(samples) // 3, 1)]
    last = samples[-1]
    problems = []
    memory_bytes = max(each.memory_bytes for each in early)
    if last.memory_bytes > memory_bytes * 1.5 + MEMORY_ALLOWANCE_BYTES:
        problems.append(f"{name}: memory grew from {memory_bytes >> 20} to {last.memory_bytes >> 20} MB")
    descriptors = max(each.descriptors for each in early)
    if last.descriptors > descriptors + DESCRIPTOR_ALLOWANCE:
        problems.append(f"{name}: descriptors grew from {descriptors} to {last.descriptors}")
    return problems
