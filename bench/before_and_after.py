"""CPU time of the broker before and after a change: two checkouts side by side, measured in alternating rounds.

`git worktree add --detach /tmp/before <commit>; python -m bench.before_and_after --before /tmp/before`. Each round
sends the same requests to a broker of either checkout, in changing order, and counts the CPU time of the process, which
other work on the machine disturbs less than rates. Medians and minima of the rounds are compared.
"""

import argparse
import os
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench import load, probes
from bench.load import Load
from bench.peers import TidelogPeer

REPOSITORY = Path(__file__).resolve().parent.parent
WARM_UP_ROUNDS = 2


class Workload(NamedTuple):
    name: str
    unit: str
    requests: int
    records_per_request: int
    value_bytes: int
    window: int
    partitions: int = 4

    def scaled(self, cpu_seconds: float) -> float:
        records = self.requests * self.records_per_request
        per_unit = records * self.value_bytes / 1e9 if self.unit == "s/GB" else records / 1e6
        return cpu_seconds / per_unit


WORKLOADS = (
    Workload("1 KB, batches of 950", "s/GB", 60, 950, 1024, 5),
    Workload("100 B, batches of 8,000", "us/record", 60, 8_000, 100, 5),
    Workload("100 B, batches of 100", "us/record", 4_000, 100, 100, 5),
    Workload("1 KB, one record per request, pipelined", "us/record", 15_000, 1, 1024, 64),
    Workload("1 KB, one record per request, one in flight", "us/record", 5_000, 1, 1024, 1),
)


class CheckedOutPeer(TidelogPeer):
    """A broker of the source in another directory, with the packages of this environment."""

    def __init__(self, directory: Path, checkout: Path) -> None:
        super().__init__(directory)
        self._checkout = checkout

    def launch(self) -> None:
        before = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = str(self._checkout / "src")
        try:
            super().launch()
        finally:
            if before is None:
                del os.environ["PYTHONPATH"]
            else:
                os.environ["PYTHONPATH"] = before


def cpu_seconds(pid: int) -> float:
    """On the processor, by all threads that live: in nanoseconds, where /proc/pid/stat counts hundredths."""
    tasks = Path(f"/proc/{pid}/task")
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir()) / 1e9


def measure(peer: TidelogPeer, workload: Workload, topic: str) -> float:
    request = Load(
        peer.ports[0],
        topic,
        workload.partitions,
        1,
        workload.window,
        workload.requests,
        workload.records_per_request,
        workload.value_bytes,
    )
    before = cpu_seconds(peer.pids[0])
    load.run(request)
    return workload.scaled(cpu_seconds(peer.pids[0]) - before)


def compare(peers: Sequence[TidelogPeer], workload: Workload, rounds: int) -> list[list[float]]:
    topic = f"compared-{WORKLOADS.index(workload)}"
    for peer in peers:
        probes.create_topic(peer.ports, topic, workload.partitions, {"retention.bytes": "50000000"})
    found: list[list[float]] = [[] for _ in peers]
    for number in range(WARM_UP_ROUNDS + rounds):
        order = list(range(len(peers)))
        random.shuffle(order)
        for index in order:
            value = measure(peers[index], workload, topic)
            if number >= WARM_UP_ROUNDS:
                found[index].append(value)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, required=True, help="a checkout of the commit to compare with")
    parser.add_argument("--after", type=Path, default=REPOSITORY)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", type=int, action="append", help="number of a workload, from 0")
    options = parser.parse_args()
    wanted = [WORKLOADS[number] for number in options.only or range(len(WORKLOADS))]
    with tempfile.TemporaryDirectory(prefix="before-and-after-") as directory:
        peers = [
            CheckedOutPeer(Path(directory) / str(number), checkout)
            for number, checkout in enumerate((options.before, options.after))
        ]
        with peers[0], peers[1]:
            print(f"{'':45} {'median':>25} {'least':>25}")
            for workload in wanted:
                before, after = compare(peers, workload, options.rounds)
                print(f"{workload.name:45} {_change(median(before), median(after))} ", end="")
                print(f"{_change(min(before), min(after))} {workload.unit}", flush=True)


def _change(before: float, after: float) -> str:
    return f"{before:8.3f} -> {after:7.3f} {100 * (after / before - 1):+6.1f}%"


if __name__ == "__main__":
    main()
