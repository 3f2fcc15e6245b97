"""CPU time of the broker before and after a change: two checkouts side by side, measured in alternating rounds.

`git worktree add --detach /tmp/before <commit>; python -m bench.before_and_after --before /tmp/before`. Each round
sends the same requests to a broker (or three) of either checkout, in changing order, and counts the CPU time of the
processes, which other work on the machine disturbs less than rates. Medians and minima of the rounds are compared.
"""

import argparse
import contextlib
import os
import random
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median

from bench import hot_paths
from bench.clusters import TidelogCluster
from bench.hot_paths import HOT_PATHS, HotPath
from bench.peers import Peer, TidelogPeer

REPOSITORY = Path(__file__).resolve().parent.parent
WARM_UP_ROUNDS = 2


@contextlib.contextmanager
def source_of(checkout: Path) -> Iterator[None]:
    """Processes that start meanwhile run the source there, with the packages of this environment."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join((str(checkout / "src"), str(REPOSITORY)))
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


class _CheckedOut(Peer):
    """A peer that runs the source of a checkout. Stands before the kind of peer that it starts."""

    def __init__(self, directory: Path, checkout: Path) -> None:
        super().__init__(directory)
        self._checkout = checkout

    def launch(self) -> None:
        with source_of(self._checkout):
            super().launch()  # type: ignore[safe-super]  # the next class starts it


class CheckedOutBroker(_CheckedOut, TidelogPeer): ...


class CheckedOutCluster(_CheckedOut, TidelogCluster): ...


PEERS: Mapping[int, Callable[[Path, Path], Peer]] = {1: CheckedOutBroker, 3: CheckedOutCluster}
"""By the number of brokers."""


def cpu_seconds(pid: int) -> float:
    """On the processor, by all threads that live: in nanoseconds, where /proc/pid/stat counts hundredths."""
    tasks = Path(f"/proc/{pid}/task")
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir()) / 1e9


def measure(peer: Peer, path: HotPath, topic: str) -> float:
    before = sum(map(cpu_seconds, peer.pids))
    hot_paths.run(path, peer.ports, topic)
    return path.scaled(sum(map(cpu_seconds, peer.pids)) - before)


def compare(peers: Sequence[Peer], path: HotPath, rounds: int) -> list[list[float]]:
    topic = f"compared-{HOT_PATHS.index(path)}"
    for peer in peers:
        hot_paths.prepare(path, peer.ports, topic)
    found: list[list[float]] = [[] for _ in peers]
    for number in range(WARM_UP_ROUNDS + rounds):
        order = list(range(len(peers)))
        random.shuffle(order)
        for index in order:
            value = measure(peers[index], path, topic)
            if number >= WARM_UP_ROUNDS:
                found[index].append(value)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, required=True, help="a checkout of the commit to compare with")
    parser.add_argument("--after", type=Path, default=REPOSITORY)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", type=int, action="append", help="number of a hot path, from 0")
    options = parser.parse_args()
    wanted = [HOT_PATHS[number] for number in options.only or range(len(HOT_PATHS))]
    print(f"{'':50} {'median':>25} {'least':>25}")
    for brokers, make in PEERS.items():
        paths = [path for path in wanted if path.brokers == brokers]
        if paths:
            _compare_all(make, (options.before, options.after), paths, options.rounds)


def _compare_all(
    make: Callable[[Path, Path], Peer], checkouts: Sequence[Path], paths: Sequence[HotPath], rounds: int
) -> None:
    with tempfile.TemporaryDirectory(prefix="before-and-after-") as directory, contextlib.ExitStack() as stack:
        peers = [
            stack.enter_context(make(Path(directory) / str(number), checkout.resolve()))
            for number, checkout in enumerate(checkouts)
        ]
        for path in paths:
            before, after = compare(peers, path, rounds)
            print(f"{path.name:50} {_change(median(before), median(after))} ", end="")
            print(f"{_change(min(before), min(after))} {path.unit}", flush=True)


def _change(before: float, after: float) -> str:
    return f"{before:8.3f} -> {after:7.3f} {100 * (after / before - 1):+6.1f}%"


if __name__ == "__main__":
    main()
