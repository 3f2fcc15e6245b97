"""`tidelog simulate`: options, progress and summary of simulated runs."""

import argparse
import logging
import sys
from collections.abc import Iterable, Sequence

from tidelog.simulation import exactly_once
from tidelog.simulation.chaos import Verdict, run_events
from tidelog.simulation.many_seeds import Finding, Progress, run_many
from tidelog.simulation.shrinking import shrink

DESCRIPTION = """\
Run whole clusters of brokers in one process on virtual time, with simulated disks, networks, clocks and a simulated
coordination store. Clients write and read while faults strike: processes are killed and stopped, links are cut, disks
tear writes, clocks jump. Each seed draws its own cluster, faults and work, and the same seed always gives the same run.
Invariants are checked all along: nothing acknowledged is lost, replicas agree, everything recovers.
Exit code 0: all invariants held, 1: a seed violated one.
"""
EXIT_HELD, EXIT_VIOLATED = 0, 1
MOST_VIOLATIONS_TOLD = 10


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", metavar="S", type=int, help="run this seed, and tell its story if it fails")
    parser.add_argument("--seeds", metavar="N", type=_positive, default=20, help="run so many seeds (%(default)s)")
    parser.add_argument("--first", metavar="S", type=int, default=1, help="the first of them (%(default)s)")
    parser.add_argument(
        "--processes", metavar="P", type=_positive, default=1, help="run them in so many processes (%(default)s)"
    )
    parser.add_argument("--trace", action="store_true", help="with --seed: tell the story even if all went well")
    parser.add_argument("--shrink", action="store_true", help="with --seed: look for fewer faults that still violate")
    parser.add_argument(
        "--only", metavar="LIST", type=_numbers, help="with --seed: only these of its faults, such as 3,17,18"
    )
    parser.add_argument("--duration", metavar="SECONDS", type=float, help="with --seed: end the faults after so long")
    parser.add_argument(
        "--exactly-once", action="store_true", help="a group of workers that copy a topic by transactions instead"
    )
    parser.add_argument("--verbose", action="store_true", help="with the log lines of all brokers")


def run(options: argparse.Namespace) -> int:
    logging.basicConfig(level=logging.INFO if options.verbose else logging.CRITICAL, format="%(message)s")
    if options.seed is not None:
        return _run_one(options)
    return _run_many(options)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number}: give 1 or more")
    return number


def _numbers(text: str) -> frozenset[int]:
    return frozenset(int(number) for number in text.split(",") if number)


def _run_one(options: argparse.Namespace) -> int:
    if options.exactly_once:
        verdict = exactly_once.run_seed(options.seed)
    else:
        verdict = run_events(options.seed, options.only, options.duration)
    if options.trace or not verdict.is_good:
        _print(verdict.story)
    _print([*verdict.violations[:MOST_VIOLATIONS_TOLD], verdict.summary])
    if options.shrink and not verdict.is_good and not options.exactly_once:
        _shrink(verdict, options.duration)
    return EXIT_HELD if verdict.is_good else EXIT_VIOLATED


def _shrink(verdict: Verdict, duration_s: float | None) -> None:
    found = shrink(verdict, duration_s, lambda line: _print([line]))
    _print(["", f"shrunk from {len(verdict.applied)} to {len(found.verdict.applied)} faults:", *found.verdict.story])
    _print([f"again: {found.command}"])


def _run_many(options: argparse.Namespace) -> int:
    seeds = range(options.first, options.first + options.seeds)
    progress = Progress(len(seeds))
    findings: list[Finding] = []
    for outcome in run_many(seeds, options.processes, exactly_once=options.exactly_once):
        progress.add(outcome)
        if outcome.violations:
            findings.append(outcome)
            _print(_told(outcome))
        progress.show()
    progress.end()
    _print([progress.line, *_summary(findings)])
    return EXIT_VIOLATED if findings else EXIT_HELD


def _told(finding: Finding) -> Iterable[str]:
    yield f"seed {finding.seed} violated: {finding.violations[0]}"
    yield f"  tidelog simulate --seed {finding.seed} --shrink"


def _summary(findings: Sequence[Finding]) -> Iterable[str]:
    if not findings:
        yield "all invariants held"
        return
    yield f"{len(findings)} seeds violated an invariant: {', '.join(str(found.seed) for found in findings)}"


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
