"""CPU time and memory of processes, from the operating system."""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

CLOCK_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pids: Sequence[int]) -> float:
    """User and system time of all their threads so far."""
    return sum(parse_cpu_ticks(Path(f"/proc/{pid}/stat").read_text()) for pid in pids) / CLOCK_TICKS_PER_SECOND


def parse_cpu_ticks(stat: str) -> int:
    # The name in parentheses may itself hold spaces and parentheses: count fields from its end.
    fields = stat.rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def tree_cpu_seconds(pid: int) -> float:
    """Of a process and all below it, those that have ended and were waited for included."""
    stats = dict(_all_stats())
    total, waiting = 0, [pid]
    while waiting:
        parent = waiting.pop()
        fields = stats.get(parent)
        total += sum(map(int, fields[11:15])) if fields else 0
        waiting += [child for child, fields in stats.items() if int(fields[1]) == parent]
    return total / CLOCK_TICKS_PER_SECOND


def _all_stats() -> Iterator[tuple[int, list[str]]]:
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            with suppress(FileNotFoundError, ProcessLookupError):
                yield int(entry), Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()


def resident_megabytes(pids: Sequence[int]) -> float:
    """What several of them share counts for each."""
    return sum(parse_resident_kilobytes(Path(f"/proc/{pid}/status").read_text()) for pid in pids) * 1024 / 1e6


def parse_resident_kilobytes(status: str) -> int:
    line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1])


@dataclass
class CpuMeter:
    """CPU seconds that some processes used while a block ran."""

    pids: Sequence[int]
    seconds: float = 0.0
    elapsed_seconds: float = 0.0

    def __enter__(self) -> "CpuMeter":
        self._started = time.monotonic()
        self._cpu_at_start = cpu_seconds(self.pids)
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = cpu_seconds(self.pids) - self._cpu_at_start
        self.elapsed_seconds = time.monotonic() - self._started
