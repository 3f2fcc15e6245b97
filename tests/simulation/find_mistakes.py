"""A search for the seeds that find the known mistakes: `python -m tests.simulation.find_mistakes`.

Of the first 5,000 seeds those are tried first that are cheap and draw the faults that a mistake needs; what
they draw is left as it is. Prints a line for each mistake, and in the end what belongs in `FOUND_BY` and in
docs/reliability.md.
"""

import argparse
import logging
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

from tests.simulation.mistakes import MISTAKES, Mistake, run_with, run_without
from tidelog.simulation.chaos import run_seed
from tidelog.simulation.fault_schedule import draw_schedule
from tidelog.simulation.swarm import SwarmConfig, draw_config

MOST_SEEDS = 5000
ENOUGH_FAULTS = 12
TOO_MANY_FAULTS = 40
LONG_S = 20.0
COSTLY_WORK = {"copying": 4.0, "transactions": 1.0, "classic_groups": 0.7, "consumer_groups": 0.7, "compaction": 0.3}
"""What each kind of work adds to the cost of a run, roughly."""


class Finding(NamedTuple):
    mistake: str
    seed: int | None
    runs: int
    cpu_s: float
    """Of the run that found it."""
    violation: str
    is_found_whole: bool = False
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


def search(name: str, configs: list[SwarmConfig], runs: int) -> Finding:
    """A seed whose run violates an invariant with the mistake, and none without it; a whole run, if possible."""
    seeds = by_promise(MISTAKES[name], configs)[:runs]
    best = Finding(name, None, len(seeds), 0.0, "not found")
    for number, seed in enumerate(seeds, 1):
        began = time.process_time()
        verdict = run_with(name, seed)
        took_s = time.process_time() - began
        if verdict.is_good or not run_without(name, seed).is_good:
            continue
        found = Finding(name, seed, number, took_s, verdict.violations[0], is_found_whole(name, seed))
        if found.is_found_whole:
            return found
        best = found if best.seed is None else best
    return best


def is_found_whole(name: str, seed: int) -> bool:
    with MISTAKES[name].broken():
        return not run_seed(seed).is_good


def told(findings: list[Finding]) -> Iterator[str]:
    found = [each for each in findings if each.seed is not None]
    yield "FOUND_BY: Mapping[str, int] = {"
    yield from (f'    "{each.mistake}": {each.seed},' for each in found)
    yield "}"
    yield "| mistake | rule | seed |"
    yield "| --- | --- | ---: |"
    for each in found:
        mistake = MISTAKES[each.mistake]
        yield f"| `{each.mistake}`: {mistake.what} | {mistake.rule} | {each.seed} |"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.find_mistakes", description=__doc__)
    parser.add_argument("--mistake", choices=MISTAKES, action="append", help="only this one; may be repeated")
    parser.add_argument("--runs", type=int, default=100, metavar="N", help="at most so many each (%(default)s)")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    configs = [draw_config(seed) for seed in range(1, MOST_SEEDS + 1)]
    findings = []
    for mistake in options.mistake or MISTAKES:
        found = search(mistake, configs, options.runs)
        findings.append(found)
        whole = "also whole" if found.is_found_whole else "only cut short"
        sys.stdout.write(
            f"{mistake}: seed {found.seed}, {found.runs} runs, {found.cpu_s:.1f} s, {whole}: {found.violation}\n"
        )
        sys.stdout.flush()
    sys.stdout.write("\n".join(told(findings)) + "\n")
    return 0 if all(each.seed is not None for each in findings) else 1


if __name__ == "__main__":
    sys.exit(main())
