"""CPU time of group coordination before and after a change: two checkouts, measured in alternating rounds.

`git worktree add --detach /tmp/before <commit>; python -m bench.group_costs --before /tmp/before`. In each round a
fresh broker of either checkout serves the workloads of the benchmark (`bench/coordinator_workloads.py`): classic groups
join, send heartbeats and commit, consumer groups (KIP-848) join and send heartbeats, then the broker starts again and
loads all of them. CPU time is compared, which other work on the machine disturbs less than rates.
"""

import argparse
import random
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from bench import coordinator_workloads
from bench.before_and_after import REPOSITORY, CheckedOutBroker
from bench.measures import QUICK, Sizes
from bench.page_cache import PageCache
from bench.processes import cpu_seconds
from bench.scenarios import Session

UNITS = {
    "groups-join-cpu": "us/member",
    "groups-heartbeat-cpu": "us",
    "groups-commit-cpu": "us",
    "groups-commit-pipelined-cpu": "us",
    "groups-commit-10-cpu": "us",
    "consumer-groups-join-cpu": "us/member",
    "consumer-groups-heartbeat-cpu": "us",
    "groups-start": "s",
    "groups-start-cpu": "s",
}
"""By measure, as in `bench/coordinator_measures.py`; the CPU time of the start only here."""


def measure(checkout: Path, sizes: Sizes, directory: Path) -> dict[str, float]:
    figures: dict[str, float] = {}
    with CheckedOutBroker(directory, checkout) as peer:
        session = Session(peer, sizes, PageCache())
        for workload in (
            coordinator_workloads.classic_groups,
            coordinator_workloads.consumer_groups,
            coordinator_workloads.restart,
        ):
            figures |= {name: value for name, value in workload(session).items() if isinstance(value, float)}
        figures["groups-start-cpu"] = cpu_seconds(peer.pids)
    return figures


def compare(checkouts: Sequence[Path], sizes: Sizes, rounds: int) -> list[dict[str, list[float]]]:
    found: list[dict[str, list[float]]] = [defaultdict(list) for _ in checkouts]
    for _ in range(rounds):
        order = list(range(len(checkouts)))
        random.shuffle(order)
        for index in order:
            with tempfile.TemporaryDirectory(prefix="group-costs-") as directory:
                for name, value in measure(checkouts[index], sizes, Path(directory)).items():
                    found[index][name].append(value)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, required=True, help="a checkout of the commit to compare with")
    parser.add_argument("--after", type=Path, default=REPOSITORY)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--groups", type=int, default=250, help="of ten members each")
    options = parser.parse_args()
    sizes = replace(QUICK, groups=options.groups, group_requests=20_000, steady_heartbeat_rounds=0)
    before, after = compare([options.before.resolve(), options.after.resolve()], sizes, options.rounds)
    print(f"{'':32} {'median':>30} {'least':>30}")
    for name, unit in UNITS.items():
        medians = _change(median(before[name]), median(after[name]))
        print(f"{name:32} {medians} {_change(min(before[name]), min(after[name]))} {unit}")


def _change(before: float, after: float) -> str:
    return f"{before:10.2f} -> {after:9.2f} {100 * (after / before - 1):+6.1f}%"


if __name__ == "__main__":
    main()
