"""Runs the benchmark: `python -m bench.run [--quick]`; results, page and plot are written at its end."""

import argparse
import contextlib
import dataclasses
import sys
import tempfile
import time
from pathlib import Path

from bench import rdkafka, report, results
from bench.measures import QUICK, Sizes
from bench.page_cache import PageCache
from bench.parts import PARTS
from bench.peers import TITLES, BrokerFailed
from bench.report import number
from bench.results import FULL, Results
from bench.scenarios import Figures, Scenario, Session, on_shared_peers
from bench.wire import RequestRejected
from tools.apache_kafka import KafkaFailed, NotAvailable

FAILURES = (rdkafka.ClientFailed, RequestRejected, BrokerFailed, KafkaFailed, OSError, TimeoutError)


class Progress:
    """One line per step: what runs, where, since when."""

    def __init__(self, rounds: int) -> None:
        self._rounds = rounds
        self._started = time.monotonic()

    def begin(self, round_number: int, peer: str, scenario: str, step: str) -> None:
        where = f"round {round_number}/{self._rounds}  {peer:8} {scenario}: {step}"
        print(f"{self.elapsed()}  {where} ... ", end="", flush=True)

    def end(self, text: str) -> None:
        print(text, flush=True)

    def elapsed(self) -> str:
        minutes, seconds = divmod(int(time.monotonic() - self._started), 60)
        return f"{minutes:3}:{seconds:02}"


def run_scenario(
    run: Results, scenario: Scenario, peer_name: str, round_number: int, progress: Progress, page_cache: PageCache
) -> None:
    """One scenario on one fresh peer; what fails is noted and ends the scenario, not the benchmark."""
    with tempfile.TemporaryDirectory(prefix=f"bench-{peer_name}-") as directory:
        peer = scenario.peers[peer_name](Path(directory))
        step_title = "start"
        progress.begin(round_number, peer_name, scenario.name, step_title)
        try:
            session = Session(peer, run.sizes, page_cache, start_seconds=peer.start())
            progress.end(f"{session.start_seconds:.2f} s")
            for step in scenario.steps:
                step_title = step.title
                progress.begin(round_number, peer_name, scenario.name, step_title)
                figures = step.work(session)
                run.add(peer_name, figures)
                progress.end(describe(figures))
        except FAILURES as error:
            progress.end(f"FAILED: {error}")
            first_line = str(error).partition("\n")[0]
            run.failures.append(f"round {round_number}, {peer_name}, {scenario.name}, {step_title}: {first_line}")
        finally:
            peer.kill()


def describe(figures: Figures) -> str:
    texts = []
    for measure, value in figures.items():
        values = [value] if isinstance(value, int | float) else value
        texts.append(f"{measure} {' '.join(map(number, values))}")
    return ", ".join(texts) or "done"


def run_rounds(run: Results, peers: list[str], wanted: list[Scenario]) -> None:
    progress, page_cache = Progress(run.rounds), PageCache()
    with contextlib.ExitStack() as stack:
        for scenario in wanted:
            stack.callback(scenario.end)
        for round_number in range(1, run.rounds + 1):
            for scenario in wanted:
                for peer in peers if round_number % 2 else reversed(peers):
                    run_scenario(run, scenario, peer, round_number, progress, page_cache)
                run.save()


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compare Tidelog with Apache Kafka on this machine.")
    parser.add_argument("--quick", action="store_true", help="one round with small sizes, under three minutes")
    parser.add_argument("--rounds", type=int, help="three unless told otherwise")
    parser.add_argument("--part", choices=tuple(PARTS), help="only this part")
    parser.add_argument("--peers", default=",".join(TITLES), help="which brokers, separated by commas")
    parser.add_argument("--scenarios", default="", help="only these scenarios, separated by commas")
    parser.add_argument("--stored-gb", type=float, help="gigabytes stored for the start-up comparison")
    parser.add_argument("--failovers", type=int, help="how often a leader is killed in each round")
    parser.add_argument(
        "--name", help="of the results file; a run named 'full' or as its part makes docs/performance.md"
    )
    return parser.parse_args(arguments)


def sizes_of(options: argparse.Namespace) -> Sizes:
    sizes = QUICK if options.quick else Sizes()
    if options.stored_gb is not None:
        sizes = dataclasses.replace(sizes, stored_bytes=int(options.stored_gb * 1e9))
    if options.failovers is not None:
        sizes = dataclasses.replace(sizes, failovers=options.failovers)
    return sizes


def name_of(options: argparse.Namespace) -> str:
    if options.name:
        return str(options.name)
    if options.quick:
        return "quick"
    return "partial" if options.scenarios or options.peers != ",".join(TITLES) else options.part or FULL


def main() -> int:
    options = parse_arguments()
    sizes = sizes_of(options)
    parts = [options.part] if options.part else list(PARTS)
    known = [scenario for part in parts for scenario in PARTS[part].scenarios(sizes)]
    names, peers = set(filter(None, options.scenarios.split(","))), options.peers.split(",")
    known = [scenario for scenario in known if scenario.name not in sizes.left_out or scenario.name in names]
    if unknown := (names - {scenario.name for scenario in known}) | (set(peers) - set(TITLES)):
        there_are = ", ".join([*(scenario.name for scenario in known), *TITLES])
        print(f"unknown: {', '.join(sorted(unknown))}; there are {there_are}", file=sys.stderr)
        return 1
    run = Results(
        name=name_of(options),
        date=results.now(),
        rounds=options.rounds or (1 if options.quick else 3),
        sizes=sizes,
        machine=results.describe_machine(),
        peers={peer: TITLES[peer] for peer in peers},
        parts=parts,
    )
    try:
        if any(PARTS[part].needs_librdkafka for part in parts):
            rdkafka.ensure_built()
        wanted = [scenario for scenario in known if not names or scenario.name in names]
        run_rounds(run, peers, on_shared_peers(wanted) if sizes.shares_peers else wanted)
    except (NotAvailable, rdkafka.ClientUnavailable) as error:
        print(error, file=sys.stderr)
        return 1
    finish(run)
    return 1 if run.failures else 0


def finish(run: Results) -> None:
    print("\n" + report.summary(run) + "\n")
    for failure in run.failures:
        print(f"failed: {failure}")
    missed = [measure.title for measure in report.measures_of(run) if report.verdict(measure, run) == "**missed**"]
    print(f"goals missed: {', '.join(missed) or 'none'}")
    if run.name == "quick":
        print("(a quick run tells that everything works, and orders of magnitude; the goals are meant for a full run)")
    print(f"wrote {run.save().relative_to(report.REPOSITORY)}")
    if run.name in (FULL, *PARTS):
        report.write()


if __name__ == "__main__":
    sys.exit(main())
