"""`python -m tools.pip_progress install ...`: pip with one line for each download, in a terminal redrawn in place.

pip's own progress bars need a terminal, and without one a large download says nothing for minutes.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator

DOWNLOADING = re.compile(r"Downloading (?:\S*/)?(\S+?)(?:#\S*)?(?: \(([^)]+)\))?$")
BUILDING = re.compile(r"(Building wheels? for .*|Installing collected packages): ?")
CLEAR = "\r\x1b[K"


def steps(lines: Iterable[str]) -> Iterator[str]:
    """The lines of pip's output that are worth showing."""
    for line in lines:
        text = line.strip()
        if found := DOWNLOADING.match(text):
            size = f" ({found[2]})" if found[2] else ""
            yield f"downloading {found[1]}{size}"
        elif found := BUILDING.match(text):
            yield found[1].lower()


def main(arguments: list[str]) -> int:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    environment = os.environ | {"PIP_PROGRESS_BAR": "off"}
    began_s = time.monotonic()
    is_terminal = sys.stdout.isatty()
    kept: list[str] = []
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None

        def read() -> Iterator[str]:
            assert process.stdout is not None
            for line in process.stdout:
                kept.append(line)
                yield line

        for count, step in enumerate(steps(read()), 1):
            text = f"    {time.monotonic() - began_s:4.0f} s  {count:3}  {step}"
            print(f"{CLEAR}{text[:100]}" if is_terminal else text, end="" if is_terminal else "\n", flush=True)
    if is_terminal:
        print(CLEAR, end="")
    if process.returncode != 0:
        print("".join(kept[-20:]), end="", file=sys.stderr)
    else:
        print(f"    done after {time.monotonic() - began_s:.0f} s")
    return process.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
