"""A broker that samples its own stack: `python -m bench.sampled_broker broker --set ...`.

The timer counts CPU time, not time on the wall: on a busy machine a profiler from outside takes threads that wait for a
core, or were put aside in a system call, for threads that run. SIGUSR1 starts the samples. SIGUSR2 ends them and writes
folded stacks (`frame;frame;frame count`) to a file named after the process in the directory `TIDELOG_COUNTS`.
"""

import os
import signal
import sys
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType

from bench.counted_broker import DIRECTORY_VARIABLE
from tidelog.cli.main import main

REPOSITORY = Path(__file__).resolve().parent.parent
INTERVAL_S = 0.001
"""The kernel rounds it up to its own clock."""


def name_of(code: CodeType) -> str:
    """`Log.append (tidelog/storage/log.py)`: the path from the package or the library on."""
    path = code.co_filename
    for folder in ("/src/", "/site-packages/", f"{os.path.dirname(os.__file__)}/", f"{REPOSITORY}/"):
        path = path.rpartition(folder)[2]
    return f"{code.co_qualname} ({path})"


class Sampler:
    def __init__(self) -> None:
        self._stacks: Counter[tuple[CodeType, ...]] = Counter()

    def start(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_PROF, INTERVAL_S, INTERVAL_S)

    def sample(self, _: int, frame: FrameType | None) -> None:
        codes = []
        while frame is not None:
            codes.append(frame.f_code)
            frame = frame.f_back
        self._stacks[tuple(reversed(codes))] += 1

    def end(self, path: Path) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        lines = [f"{';'.join(map(name_of, stack))} {count}\n" for stack, count in self._stacks.items()]
        unfinished = path.with_suffix(".unfinished")
        unfinished.write_text("".join(lines))
        unfinished.rename(path)  # a reader finds the whole file or none
        self._stacks.clear()


def install(sampler: Sampler, path: Path) -> None:
    signal.signal(signal.SIGPROF, sampler.sample)
    signal.signal(signal.SIGUSR1, sampler.start)
    signal.signal(signal.SIGUSR2, lambda *_: sampler.end(path))


if __name__ == "__main__":
    install(Sampler(), Path(os.environ[DIRECTORY_VARIABLE]) / f"{os.getpid()}.folded")
    sys.exit(main())
