"""`python -m tidelog.simulation --seed N`: run one story of accidents and tell what happened and the verdict."""

import argparse
import logging
import sys

from tidelog.simulation import chaos, exactly_once
from tidelog.simulation.chaos import Verdict


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO if options.verbose else logging.CRITICAL, format="%(message)s")
    verdicts = [_run(seed, options) for seed in range(options.seed, options.seed + options.seeds)]
    return 0 if all(verdict.is_good for verdict in verdicts) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tidelog.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the same seed gives the same story (default 1)")
    parser.add_argument("--seeds", type=int, default=1, help="run so many seeds, from that one on (default 1)")
    parser.add_argument(
        "--exactly-once", action="store_true", help="the story of a group of workers that copy a topic by transactions"
    )
    parser.add_argument("--story", action="store_true", help="tell the story even if all went well")
    parser.add_argument("--verbose", action="store_true", help="with the log lines of all brokers")
    return parser


def _run(seed: int, options: argparse.Namespace) -> Verdict:
    verdict = exactly_once.run_seed(seed) if options.exactly_once else chaos.run_seed(seed)
    if options.story or not verdict.is_good:
        _print(*verdict.story)
    _print(*verdict.violations, verdict.summary)
    return verdict


def _print(*lines: str) -> None:
    for line in lines:
        sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
