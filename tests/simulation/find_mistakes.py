"""A search for the seeds that find the known mistakes: `python -m tests.simulation.find_mistakes`.

Of the first 5,000 seeds those are tried first that are cheap and draw the faults that a mistake needs; what
they draw is left as it is. Prints a line for each seed that finds one, and in the end what belongs in `FOUND_BY` and in
docs/reliability.md.
"""

import argparse
import logging
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from tests.simulation.mistakes import MISTAKES, Mistake, run_with, run_without
from tidelog.simulation.chaos import run_seed
from tidelog.simulation.fault_schedule import draw_schedule
from tidelog.simulation.swarm import SwarmConfig, draw_config

MAX_SEEDS = 5000
SEEDS_EACH = 5
MAX_CPU_S = 2.0
"""For a run with the mistake and one without: tests repeat them."""
ENOUGH_FAULTS = 12
TOO_MANY_FAULTS = 40
COSTLY_WORK = {"copying": 4.0, "transactions": 1.0, "classic_groups": 0.7, "consumer_groups": 0.7, "compaction": 0.3}
"""What each kind of work adds to the cost of a run, roughly."""


class Finding(NamedTuple):
    """A seed that finds a mistake."""

    seed: int
    cpu_s: float
    """With the mistake and without it."""
    violation: str
    is_found_whole: bool
    """Also if the faults go on for as long as the seed draws."""


def promise(mistake: Mistake, config: SwarmConfig) -> float:
    """How much a run may be worth in relation to what it costs."""
    drawn = config.faults | config.conditions | config.work
    if not mistake.needs <= drawn or config.brokers < mistake.least_brokers:
        return 0.0
    kinds = [event.kind for event in draw_schedule(config) if event.at_s < mistake.faults_s]
    helpful = sum(kind in mistake.helpers for kind in kinds)
    if not helpful or not all(need in kinds for need in mistake.needs & config.faults):
        return 0.0
    cost = (
        1
        + sum(cost for work, cost in COSTLY_WORK.items() if work in config.work)
        + (config.brokers - mistake.least_brokers) / 4
    )
    return min(helpful, ENOUGH_FAULTS) * helpful / len(kinds) / cost / (1 + len(kinds) / TOO_MANY_FAULTS)


def by_promise(mistake: Mistake, configs: list[SwarmConfig]) -> list[int]:
    promises = {config.seed: promise(mistake, config) for config in configs}
    return sorted((seed for seed, worth in promises.items() if worth), key=lambda seed: -promises[seed])


def search(name: str, configs: list[SwarmConfig], runs: int) -> Iterator[Finding]:
    """Seeds whose run violates an invariant with the mistake, and none without it."""
    for seed in by_promise(MISTAKES[name], configs)[:runs]:
        began = time.process_time()
        verdict = run_with(name, seed)
        if verdict.is_good or not run_without(name, seed).is_good:
            continue
        took_s = time.process_time() - began
        if took_s <= MAX_CPU_S:
            yield Finding(seed, took_s, verdict.violations[0], is_found_whole(name, seed))


def is_found_whole(name: str, seed: int) -> bool:
    with MISTAKES[name].broken():
        return not run_seed(seed).is_good


def best_of(findings: Iterable[Finding]) -> list[Finding]:
    """Those that are found in a whole run come first; each kind in the order in which it was found."""
    return sorted(findings, key=lambda each: not each.is_found_whole)


def report_lines(found: Mapping[str, list[Finding]]) -> Iterator[str]:
    yield "FOUND_BY: Mapping[str, tuple[int, ...]] = {"
    for name, findings in found.items():
        yield f'    "{name}": ({", ".join(str(each.seed) for each in findings)}),'
    yield "}"
    yield "| mistake | rule | seeds |"
    yield "| --- | --- | --- |"
    for name, findings in found.items():
        seeds = ", ".join(str(each.seed) for each in findings)
        yield f"| `{name}`: {MISTAKES[name].what} | {MISTAKES[name].rule} | {seeds} |"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.find_mistakes", description=__doc__)
    parser.add_argument("--mistake", choices=MISTAKES, action="append", help="only this one; may be repeated")
    parser.add_argument("--seeds", type=int, default=SEEDS_EACH, metavar="N", help="so many each (%(default)s)")
    parser.add_argument(
        "--runs", type=int, default=100, metavar="N", help="at most so many for each mistake (%(default)s)"
    )
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    configs = [draw_config(seed) for seed in range(1, MAX_SEEDS + 1)]
    found: dict[str, list[Finding]] = {}
    for mistake in options.mistake or MISTAKES:
        found[mistake] = best_of(islice(search(mistake, configs, options.runs), options.seeds))
        for each in found[mistake]:
            whole = "also whole" if each.is_found_whole else "only cut short"
            sys.stdout.write(f"{mistake}: seed {each.seed}, {each.cpu_s:.1f} s, {whole}: {each.violation}\n")
        sys.stdout.flush()
    sys.stdout.write("\n".join(report_lines(found)) + "\n")
    return 0 if all(len(findings) == options.seeds for findings in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
