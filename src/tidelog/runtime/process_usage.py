"""Resource usage of this process: CPU, memory, open files."""

import ctypes
import os
import resource
from typing import NamedTuple


class ProcessUsage(NamedTuple):
    cpu_s: float
    resident_bytes: int
    open_files: int


def process_usage() -> ProcessUsage:
    times = resource.getrusage(resource.RUSAGE_SELF)
    with open("/proc/self/statm", "rb") as file:
        resident_pages = int(file.read().split()[1])
    return ProcessUsage(
        cpu_s=times.ru_utime + times.ru_stime,
        resident_bytes=resident_pages * resource.getpagesize(),
        open_files=len(os.listdir("/proc/self/fd")),
    )


def give_back_free_memory() -> None:
    """Return free memory of the allocator to the operating system. Takes milliseconds, without holding the GIL."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):
        return  # the allocator has no malloc_trim
