"""Command `tidelog simulate`: runs seeds and prints progress, violations and commands to repeat them."""

import argparse
import logging
import signal
import sys
from collections.abc import Iterable, Sequence

from tidelog.simulation import exactly_once
from tidelog.simulation.chaos import Verdict, run_events
from tidelog.simulation.many_seeds import Finding, Progress, run_many
from tidelog.simulation.shrinking import shrink

EXIT_HELD, EXIT_VIOLATED = 0, 1
EXIT_INTERRUPTED = 130
"""Exit code of shells after Ctrl-C."""
MAX_PRINTED_VIOLATIONS = 10


def run(options: argparse.Namespace) -> int:
    logging.basicConfig(level=logging.INFO if options.verbose else logging.CRITICAL, format="%(message)s")
    if options.digest:
        return _print_digests(options)
    if options.seed is not None:
        return _run_one(options)
    return _run_many(options)


def _run_one(options: argparse.Namespace) -> int:
    if options.exactly_once:
        verdict = exactly_once.run_seed(options.seed)
    else:
        verdict = run_events(options.seed, options.only, options.duration)
    if options.trace or not verdict.is_good:
        _print(verdict.event_log)
    _print([*verdict.violations[:MAX_PRINTED_VIOLATIONS], verdict.summary])
    if options.shrink and not verdict.is_good and not options.exactly_once:
        _shrink(verdict, options.duration)
    return EXIT_HELD if verdict.is_good else EXIT_VIOLATED


def _print_digests(options: argparse.Namespace) -> int:
    """Print one line per seed, in order, for comparison with `diff`."""
    seeds = range(options.first, options.first + options.seeds) if options.seed is None else [options.seed]
    is_good = True
    for seed in seeds:
        verdict = run_events(seed, options.only, options.duration, with_digest=True)
        is_good &= verdict.is_good
        _print([f"seed={seed} {verdict.digest} {'held' if verdict.is_good else 'VIOLATED'}"])
    return EXIT_HELD if is_good else EXIT_VIOLATED


def _shrink(verdict: Verdict, duration_s: float | None) -> None:
    found = shrink(verdict, duration_s, lambda line: _print([line]))
    _print(
        ["", f"shrunk from {len(verdict.applied)} to {len(found.verdict.applied)} faults:", *found.verdict.event_log]
    )
    _print([f"again: {found.command}"])


def _run_many(options: argparse.Namespace) -> int:
    seeds = range(options.first, options.first + options.seeds)
    progress = Progress(seeds)
    findings: list[Finding] = []
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        for outcome in run_many(seeds, options.processes, exactly_once=options.exactly_once):
            progress.add(outcome)
            if outcome.violations:
                findings.append(outcome)
                progress.clear()
                _print(_finding_lines(outcome))
            progress.show()
    except KeyboardInterrupt:
        pass
    progress.clear()
    _print([progress.line, *_summary(findings)])
    next_seed = progress.first_missing
    if next_seed is not None:
        _print(_resume_commands(next_seed, seeds.stop - next_seed, options))
        return EXIT_INTERRUPTED
    return EXIT_VIOLATED if findings else EXIT_HELD


def _resume_commands(first: int, seeds: int, options: argparse.Namespace) -> Iterable[str]:
    manner = " --exactly-once" if options.exactly_once else ""
    yield f"interrupted; to continue: make simulate SEEDS={seeds} FIRST={first} PROCESSES={options.processes}"
    yield f"  or tidelog simulate --seeds {seeds} --first {first} --processes {options.processes}{manner}"


def _finding_lines(finding: Finding) -> Iterable[str]:
    yield f"seed {finding.seed} violated: {finding.violations[0]}"
    yield f"  tidelog simulate --seed {finding.seed} --shrink"


def _summary(findings: Sequence[Finding]) -> Iterable[str]:
    if not findings:
        yield "no invariant was violated"
        return
    yield f"{len(findings)} seeds violated an invariant: {', '.join(str(found.seed) for found in findings)}"


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
