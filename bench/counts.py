"""Work of brokers for each request, counted: function calls, system calls and wake-ups.

Unlike times these hardly depend on the machine or on other work on it, so that two commits can be compared on a busy
one: `python -m bench.counts`, and the same with `--checkout` for another commit. System calls need strace.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from bench import hot_paths
from bench.before_and_after import PEERS, REPOSITORY
from bench.counted_broker import DIRECTORY_VARIABLE
from bench.hot_paths import HOT_PATHS, HotPath
from bench.peers import Peer, TidelogPeer

LIMIT_S = 60.0
POLL_S = 0.05
WAKE_UP = "epoll_wait"


class CountFailed(Exception):
    """A broker or strace did not report what it had counted."""


def parse_system_calls(summary: str) -> dict[str, int]:
    """The numbers of calls in what `strace -c` writes, by their names."""
    rows = (line.split() for line in summary.splitlines())
    return {row[-1]: int(row[3]) for row in rows if len(row) >= 5 and row[3].isdigit() and row[-1] != "total"}


def count_functions(path: HotPath, peer: Peer, topic: str, directory: Path) -> dict[str, int]:
    for pid in peer.pids:
        os.kill(pid, signal.SIGUSR1)
    time.sleep(POLL_S)
    hot_paths.run(path, peer.ports, topic)
    for pid in peer.pids:
        os.kill(pid, signal.SIGUSR2)
    found = [json.loads(wait_for(directory / f"{pid}.json").read_text()) for pid in peer.pids]
    for pid in peer.pids:
        (directory / f"{pid}.json").unlink()
    return {kind: sum(each[kind] for each in found) for kind in ("python", "c")}


def wait_for(path: Path) -> Path:
    deadline = time.monotonic() + LIMIT_S
    while not path.exists():
        if time.monotonic() > deadline:
            raise CountFailed(f"{path} was not written")
        time.sleep(POLL_S)
    return path


def count_system_calls(path: HotPath, peer: Peer, topic: str, directory: Path) -> dict[str, int]:
    summary = directory / "strace"
    attached = [word for pid in peer.pids for word in ("-p", str(pid))]
    # The line about each process that it attaches to says when the count begins.
    with subprocess.Popen(
        ["strace", "-f", "-c", "-o", str(summary), *attached], stderr=subprocess.PIPE, text=True
    ) as tracer:
        assert tracer.stderr is not None
        for _ in peer.pids:
            if "attached" not in tracer.stderr.readline():
                raise CountFailed("strace may not attach to the brokers")
        hot_paths.run(path, peer.ports, topic)
        tracer.send_signal(signal.SIGINT)
        tracer.stderr.read()
    return parse_system_calls(summary.read_text())


@contextlib.contextmanager
def counted(path: HotPath, checkout: Path, directory: Path, program: str = "bench.counted_broker") -> Iterator[Peer]:
    """Brokers that can count, warmed up."""
    before = TidelogPeer.program
    TidelogPeer.program, os.environ[DIRECTORY_VARIABLE] = ("-m", program), str(directory)
    try:
        with PEERS[path.brokers](directory / "brokers", checkout) as peer:
            hot_paths.prepare(path, peer.ports, "counted")
            hot_paths.run(path, peer.ports, "counted")
            yield peer
    finally:
        TidelogPeer.program = before
        del os.environ[DIRECTORY_VARIABLE]


def line(path: HotPath, functions: Mapping[str, int], system_calls: Mapping[str, int]) -> str:
    """Per request, or per MB where a request is large."""
    is_per_megabyte = path.unit == "s/GB"
    units = 1000 * path.value_gigabytes if is_per_megabyte else path.requests
    numbers = [functions["python"], functions["c"], sum(system_calls.values()), system_calls.get(WAKE_UP, 0)]
    shown = "".join(f"{number / units:12.2f}" for number in numbers)
    return f"{path.name:50}{shown}   per {'MB' if is_per_megabyte else 'request'}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkout", type=Path, default=REPOSITORY, help="source to count, instead of this one")
    parser.add_argument("--only", type=int, action="append", help="number of a hot path, from 0")
    options = parser.parse_args()
    print(f"{'':50}{'Python':>12}{'C':>12}{'system':>12}{'wake-ups':>12}", flush=True)
    for number in options.only or range(len(HOT_PATHS)):
        path = HOT_PATHS[number]
        with (
            tempfile.TemporaryDirectory(prefix="counts-") as directory,
            counted(path, options.checkout.resolve(), Path(directory)) as peer,
        ):
            functions = count_functions(path, peer, "counted", Path(directory))
            has_tracer = shutil.which("strace") is not None
            system_calls = count_system_calls(path, peer, "counted", Path(directory)) if has_tracer else {}
            print(line(path, functions, system_calls), flush=True)


if __name__ == "__main__":
    main()
