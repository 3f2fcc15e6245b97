"""A broker that counts its own function calls: `python -m bench.counted_broker broker --set ...`.

SIGUSR1 starts the count. SIGUSR2 ends it and writes the numbers to a file named after the process in the directory
`TIDELOG_COUNTS`.
"""

import cProfile
import json
import os
import signal
import sys
from pathlib import Path
from types import CodeType

from tidelog.cli.main import main

DIRECTORY_VARIABLE = "TIDELOG_COUNTS"


def counts(profile: cProfile.Profile) -> dict[str, int]:
    """Calls of Python functions, and of functions in C, which Python's own profiler tells apart by their code."""
    found = {"python": 0, "c": 0}
    for entry in profile.getstats():
        found["python" if isinstance(entry.code, CodeType) else "c"] += entry.callcount
    return found


def install(profile: cProfile.Profile, path: Path) -> None:
    def end(*_: object) -> None:
        profile.disable()
        unfinished = path.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(counts(profile)))
        unfinished.rename(path)  # a reader finds the whole file or none
        profile.clear()

    signal.signal(signal.SIGUSR1, lambda *_: profile.enable())
    signal.signal(signal.SIGUSR2, end)


if __name__ == "__main__":
    install(cProfile.Profile(), Path(os.environ[DIRECTORY_VARIABLE]) / f"{os.getpid()}.json")
    sys.exit(main())
