"""Speed of the simulator: simulated seconds and seeds per processor second, `python -m bench.simulator`.

`git worktree add --detach /tmp/before <commit>; python -m bench.simulator --before /tmp/before` measures another
checkout beside this one. Each runs its seeds in one process of its own, and the two take turns after every seed: other
work on the machine disturbs both alike. Processor time is user and system time of the process, for each seed the least
of all rounds; imports and a first seed, which compiles encoders, are not counted. Checkouts from commit 8fdded3 on can
be measured. Their seeds draw other clusters and faults: simulated seconds are then not the same work.
"""

import argparse
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

REPOSITORY = Path(__file__).resolve().parent.parent
WARM_UP_SEED = 5


class Run(NamedTuple):
    """One run of a seed."""

    simulated_s: float
    processor_s: float


class Speed(NamedTuple):
    """Sum of the least runs of all seeds."""

    seeds: int
    simulated_s: float
    processor_s: float

    def line(self, name: str) -> str:
        return (
            f"{name}: {self.seeds} seeds, {self.simulated_s:.0f} simulated s in {self.processor_s:.2f} processor s:"
            f" {self.simulated_s / self.processor_s:.1f} simulated s and {self.seeds / self.processor_s:.2f} seeds"
            f" per processor s"
        )


class Checkout:
    """A process that runs one seed after the other with the source of a checkout."""

    def __init__(self, path: Path) -> None:
        paths = os.pathsep.join((str(path / "src"), str(REPOSITORY)))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.simulator", "--serve"],
            env=os.environ | {"PYTHONPATH": paths},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, seed: int) -> Run:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{seed}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().split()
        if len(answer) != len(Run._fields):
            raise SystemExit(f"seed {seed} could not be run: its process ended")
        return Run(*map(float, answer))

    def close(self) -> None:
        with self._process:  # closes its pipes, at which it ends, and waits for it
            pass


@contextlib.contextmanager
def opened(paths: Sequence[Path]) -> Iterator[list[Checkout]]:
    with contextlib.ExitStack() as stack:
        checkouts = [Checkout(path) for path in paths]
        for checkout in checkouts:
            stack.callback(checkout.close)
        yield checkouts


def measure(checkouts: Sequence[Checkout], seeds: range, rounds: int) -> list[Speed]:
    for checkout in checkouts:
        checkout.run(WARM_UP_SEED)
    least: list[dict[int, Run]] = [{} for _ in checkouts]
    for _ in range(rounds):
        for seed in seeds:
            for checkout, found in zip(checkouts, least, strict=True):
                run = checkout.run(seed)
                known = found.get(seed, run)
                found[seed] = min(known, run, key=lambda each: each.processor_s)
    return [_sum(list(found.values())) for found in least]


def _sum(runs: Sequence[Run]) -> Speed:
    return Speed(len(runs), sum(run.simulated_s for run in runs), sum(run.processor_s for run in runs))


def serve() -> None:
    """Run the seeds on stdin, one by line, and print the simulated and the processor seconds of each."""
    import asyncio
    import logging

    from tidelog.simulation.chaos import Chaos, run_seed

    logging.basicConfig(level=logging.CRITICAL)
    simulated_s = 0.0
    run_chaos = Chaos.run

    async def run(self: Chaos) -> Any:
        nonlocal simulated_s
        verdict = await run_chaos(self)
        simulated_s = asyncio.get_running_loop().time()
        return verdict

    Chaos.run = run  # type: ignore[method-assign]
    for line in sys.stdin:
        began = time.process_time()
        verdict = run_seed(int(line))
        processor_s = time.process_time() - began
        if not verdict.is_good:
            sys.stderr.write(f"seed {line.strip()} violated: {verdict.violations[0]}\n")
        sys.stdout.write(f"{simulated_s} {processor_s}\n")
        sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.simulator", description=__doc__)
    parser.add_argument("--before", type=Path, help="another checkout, measured beside this one")
    parser.add_argument("--seeds", type=int, default=60, help="number of seeds (default %(default)s)")
    parser.add_argument("--first", type=int, default=1, help="first seed (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each seed (default %(default)s)")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve()
        return
    paths = [REPOSITORY] if options.before is None else [options.before.resolve(), REPOSITORY]
    with opened(paths) as checkouts:
        speeds = measure(checkouts, range(options.first, options.first + options.seeds), options.rounds)
    sys.stdout.write(f"load average {os.getloadavg()[0]:.1f}\n")
    for name, speed in zip(["before", "now"][-len(speeds) :], speeds, strict=True):
        sys.stdout.write(f"{speed.line(name)}\n")


if __name__ == "__main__":
    main()
