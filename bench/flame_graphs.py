"""Flame graphs of brokers under load: `python -m bench.flame_graphs`, written to docs/performance/.

Each line sends one kind of requests over raw sockets (`bench/hot_paths.py`) to brokers that sample themselves by CPU
time (`bench/sampled_broker.py`). Time in the kernel belongs to the function that called it.
"""

import argparse
import os
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from bench import hot_paths
from bench.before_and_after import REPOSITORY
from bench.counts import counted, wait_for
from bench.flame_drawing import Node, drawing, tree
from bench.hot_paths import HOT_PATHS, HotPath
from bench.processes import cpu_seconds

DIRECTORY = REPOSITORY / "docs" / "performance"
TOPIC = "counted"
ROUNDS_LIMIT_S = 120.0


class FlameGraph(NamedTuple):
    title: str
    path: HotPath


def _hot_path(name: str) -> HotPath:
    return next(path for path in HOT_PATHS if path.name == name)


FLAME_GRAPHS: Mapping[str, FlameGraph] = {
    "produce": FlameGraph("produce 1 KB in batches of 950", _hot_path("1 KB, batches of 950")),
    "one-record": FlameGraph(
        "one record of 1 KB per request, pipelined", _hot_path("1 KB, one record per request, pipelined")
    ),
    "consume": FlameGraph("consume 1 KB in batches of 60", _hot_path("consume, 1 KB, batches of 60")),
    "three-brokers": FlameGraph(
        "three brokers, acks=all, 1 KB in batches of 64", _hot_path("three brokers, acks=all, batches of 64")
    ),
}


def record(graph: FlameGraph, cpu_limit_s: float) -> Node:
    """Repeats the load until the brokers have used so much CPU time."""
    with (
        tempfile.TemporaryDirectory(prefix="flame-graph-") as directory,
        counted(graph.path, REPOSITORY, Path(directory), "bench.sampled_broker") as peer,
    ):
        for pid in peer.pids:
            os.kill(pid, signal.SIGUSR1)
        limit, deadline = cpu_seconds(peer.pids) + cpu_limit_s, time.monotonic() + ROUNDS_LIMIT_S
        while cpu_seconds(peer.pids) < limit and time.monotonic() < deadline:
            hot_paths.run(graph.path, peer.ports, TOPIC)
        for pid in peer.pids:
            os.kill(pid, signal.SIGUSR2)
        files = [wait_for(Path(directory) / f"{pid}.folded") for pid in peer.pids]
        return tree(line for file in files for line in file.read_text().splitlines())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(FLAME_GRAPHS)}; by default all")
    parser.add_argument("--cpu-seconds", type=float, default=8.0, help="of samples (8)")
    options = parser.parse_args()
    if unknown := set(options.names) - set(FLAME_GRAPHS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(FLAME_GRAPHS)}")
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    for name in options.names or FLAME_GRAPHS:
        graph, path = FLAME_GRAPHS[name], DIRECTORY / f"{name}.svg"
        path.write_text(drawing(record(graph, options.cpu_seconds), graph.title))
        print(f"wrote {path.relative_to(REPOSITORY)}, {path.stat().st_size // 1000} KB", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
