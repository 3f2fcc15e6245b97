"""Known mistakes, put back one at a time: after how many seeds does the simulator find each?

`python -m tests.simulation.mistakes` searches for all of them, `--mistake NAME` for one. `FOUND_BY` keeps a seed that
finds each, so that a test can show it cheaply. A change of the swarm moves the seeds: search again then.
"""

import argparse
import logging
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager

from tests.simulation.broken_offices import registration_epochs_ignored, unfenced_controller_writes
from tests.simulation.broken_retries import (
    followers_given_up_without_descriptors,
    refused_roles_forgotten,
    starting_without_logs_that_cannot_be_opened,
)
from tests.simulation.broken_rules import (
    high_watermark_before_the_cut,
    high_watermark_over_the_plain_isr,
    joining_before_the_epoch_start,
    truncating_to_the_high_watermark,
    unfenced_fetches,
    without_second_question,
)
from tidelog.simulation.chaos import Verdict, run_seed

MOST_SEEDS = 5000

MISTAKES: Mapping[str, Callable[[], AbstractContextManager[None]]] = {
    "truncate-to-high-watermark": truncating_to_the_high_watermark,
    "no-second-question": without_second_question,
    "unfenced-fetches": unfenced_fetches,
    "high-watermark-over-plain-isr": high_watermark_over_the_plain_isr,
    "join-before-epoch-start": joining_before_the_epoch_start,
    "high-watermark-before-cut": high_watermark_before_the_cut,
    "registration-epochs-ignored": registration_epochs_ignored,
    "unfenced-controller-writes": unfenced_controller_writes,
    "refused-roles-forgotten": refused_roles_forgotten,
    "followers-given-up-without-descriptors": followers_given_up_without_descriptors,
    "starting-without-logs": starting_without_logs_that_cannot_be_opened,
}

FOUND_BY: Mapping[str, int] = {
    "truncate-to-high-watermark": 4,
    "join-before-epoch-start": 2,
    "registration-epochs-ignored": 1,
}


def run_with(mistake: str, seed: int) -> Verdict:
    with MISTAKES[mistake]():
        return run_seed(seed)


def search(mistake: str, first: int, seeds: int) -> int | None:
    """The first seed whose run violates an invariant with the mistake, and none without it."""
    for seed in range(first, first + seeds):
        if not run_with(mistake, seed).is_good and run_seed(seed).is_good:
            return seed
    return None


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mistakes", description=__doc__)
    parser.add_argument("--mistake", choices=MISTAKES, action="append", help="only this one; may be repeated")
    parser.add_argument("--first", type=int, default=1, metavar="S", help="the first seed (%(default)s)")
    parser.add_argument("--seeds", type=int, default=MOST_SEEDS, metavar="N", help="at most so many (%(default)s)")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    found = {}
    for mistake in options.mistake or MISTAKES:
        found[mistake] = seed = search(mistake, options.first, options.seeds)
        after = f"seed {seed}, after {seed - options.first + 1} seeds" if seed is not None else "not found"
        sys.stdout.write(f"{mistake}: {after}\n")
        sys.stdout.flush()
    return 0 if None not in found.values() else 1


if __name__ == "__main__":
    sys.exit(main())
