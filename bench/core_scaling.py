"""Brokers per core: `python -m bench.core_scaling`; rate of the same clients with 1, 2, ... processes on this machine.

The brokers are those of `tidelog broker --processes N`, topics have one replica, and partitions are led in turn. Rounds
alternate between the numbers of processes. The clients share the cores with the brokers: the CPU time of both says what
is left for a further process.
"""

import argparse
import contextlib
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from bench import hot_paths, probes
from bench.hot_paths import HotPath
from bench.processes import CpuMeter, cpu_seconds
from tools.ports import free_ports

READY = re.compile(r"broker \d+ \(pid (\d+)\): listening on 127\.0\.0\.1:(\d+)")

LOADS = (
    HotPath("1 KB, one record per request, 100 connections", "us/request", 30_000, 1, 1024, 1, 12, connections=100),
    HotPath("1 KB, batches of 64, 20 connections", "s/GB", 6_000, 64, 1024, 2, 12, connections=20),
    HotPath("100 B, batches of 100, 20 connections", "us/record", 12_000, 100, 100, 2, 12, connections=20),
)


class Outcome(NamedTuple):
    per_second: float
    """Requests."""
    broker_cpu: float
    """Cores that the brokers kept busy."""
    client_cpu: float


@contextlib.contextmanager
def running_processes(count: int) -> Iterator[tuple[list[int], list[int]]]:
    """Process ids and ports of the brokers."""
    with tempfile.TemporaryDirectory(prefix="tidelog-cores-") as directory:
        settings = {
            "broker.id": "1",
            "listeners": f"PLAINTEXT://127.0.0.1:{free_ports(count)}",
            "log.dirs": str(Path(directory) / "logs"),
        }
        flags = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
        command = [sys.executable, "-m", "tidelog", "broker", "--processes", str(count), "--log-level", "error"]
        process = subprocess.Popen([*command, *flags], stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            found: list[re.Match[str]] = []
            while len(found) < count:
                line = process.stdout.readline()
                assert line, "the brokers did not start"
                found += filter(None, [READY.search(line)])
            yield [int(each[1]) for each in found], [int(each[2]) for each in found]
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate()


def measure(load: HotPath, count: int) -> Outcome:
    with running_processes(count) as (pids, ports):
        topic = "population"
        # Connections are divided among the brokers, so that there are as many with any number of these.
        shared = load._replace(connections=max(1, load.connections // count))
        hot_paths.prepare(shared, ports, topic)
        hot_paths.run(shared._replace(requests=load.requests // 10), ports, topic)
        probes.ask_topic(ports[0], topic)
        client_before = cpu_seconds([os.getpid()])
        with CpuMeter(pids) as meter:
            started = time.monotonic()
            hot_paths.run(shared, ports, topic)
            seconds = time.monotonic() - started
        client = cpu_seconds([os.getpid()]) - client_before
    return Outcome(load.requests / seconds, meter.seconds / seconds, client / seconds)


def row(name: str, count: int, found: Sequence[Outcome], base: float) -> str:
    rate, broker, client = (statistics.median(values) for values in zip(*found, strict=True))
    return (
        f"| {name} | {count} | {rate:,.0f} | {rate / base:.2f} | {rate / broker:,.0f} | {broker:.2f} | {client:.2f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    print("| load | processes | requests/s | ratio | per second of CPU | cores of brokers | cores of clients |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for load in LOADS:
        found: dict[int, list[Outcome]] = {count: [] for count in arguments.processes}
        for _ in range(arguments.rounds):
            for count in arguments.processes:
                found[count].append(measure(load, count))
        base = statistics.median(each.per_second for each in found[arguments.processes[0]])
        for count in arguments.processes:
            print(row(load.name, count, found[count], base), flush=True)


if __name__ == "__main__":
    main()
