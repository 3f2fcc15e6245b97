"""Runs the benchmark: `python -m bench.run [--quick]`; results, page and plot are written at its end.

It can be interrupted and run again: see `bench/kept_pieces.py`.
"""

import argparse
import contextlib
import dataclasses
import sys
import tempfile
import time
from pathlib import Path

from bench import kept_pieces, rdkafka, report, results
from bench.kept_pieces import KeptPiece, KeptPieces, Piece
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

    def begin(self, piece: Piece, step: str) -> None:
        where = f"round {piece.round_number}/{self._rounds}  {piece.peer:8} {piece.scenario}: {step}"
        print(f"{self.elapsed()}  {where} ... ", end="", flush=True)

    def end(self, text: str) -> None:
        print(text, flush=True)

    def elapsed(self) -> str:
        minutes, seconds = divmod(int(time.monotonic() - self._started), 60)
        return f"{minutes:3}:{seconds:02}"


def run_scenario(
    run: Results, scenario: Scenario, piece: Piece, progress: Progress, page_cache: PageCache
) -> KeptPiece:
    """One scenario on one fresh peer; what fails is noted and ends the scenario, not the benchmark."""
    done: list[Figures] = []
    with tempfile.TemporaryDirectory(prefix=f"bench-{piece.peer}-") as directory:
        peer = scenario.peers[piece.peer](Path(directory))
        step_title = "start"
        progress.begin(piece, step_title)
        try:
            session = Session(peer, run.sizes, page_cache, start_seconds=peer.start())
            progress.end(f"{session.start_seconds:.2f} s")
            for step in scenario.steps:
                step_title = step.title
                progress.begin(piece, step_title)
                figures = step.work(session)
                done.append(figures)
                progress.end(describe(figures))
        except FAILURES as error:
            progress.end(f"FAILED: {error}")
            first_line = str(error).partition("\n")[0]
            run.failures.append(
                f"round {piece.round_number}, {piece.peer}, {scenario.name}, {step_title}: {first_line}"
            )
        finally:
            peer.kill()
    return KeptPiece(results.now(), done)


def describe(figures: Figures) -> str:
    texts = []
    for measure, value in figures.items():
        values = [value] if isinstance(value, int | float) else value
        texts.append(f"{measure} {' '.join(map(number, values))}")
    return ", ".join(texts) or "done"


def run_rounds(run: Results, peers: list[str], wanted: list[Scenario], kept: KeptPieces, *, is_forced: bool) -> None:
    """What was done before on the same code, with the same sizes, is not done again; what failed is."""
    progress, page_cache = Progress(run.rounds), PageCache()
    with contextlib.ExitStack() as stack:
        for scenario in wanted:
            stack.callback(scenario.end)
        for round_number in range(1, run.rounds + 1):
            for scenario in wanted:
                for peer in peers if round_number % 2 else reversed(peers):
                    piece = Piece(scenario.name, peer, round_number)
                    found = None if is_forced else kept.find(piece)
                    if found is None:
                        found = _run_and_keep(run, scenario, piece, kept, progress, page_cache)
                    else:
                        progress.begin(piece, "all")
                        progress.end(f"done before, {found.date}")
                    for figures in found.steps:
                        run.add(peer, figures)
                run.save()


def _run_and_keep(
    run: Results, scenario: Scenario, piece: Piece, kept: KeptPieces, progress: Progress, page_cache: PageCache
) -> KeptPiece:
    failures = len(run.failures)
    found = run_scenario(run, scenario, piece, progress, page_cache)
    if len(run.failures) == failures:
        kept.keep(piece, found)
    return found


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compare Tidelog with Apache Kafka on this machine.")
    parser.add_argument("--quick", action="store_true", help="one round with small sizes, a few minutes")
    parser.add_argument("--rounds", type=int, help="by default three")
    parser.add_argument("--part", choices=tuple(PARTS), help="only this part")
    parser.add_argument("--peers", default=",".join(TITLES), help="which brokers, separated by commas")
    parser.add_argument("--scenarios", default="", help="only these scenarios, separated by commas")
    parser.add_argument("--stored-gb", type=float, help="gigabytes stored for the start-up comparison")
    parser.add_argument("--failovers", type=int, help="how often a leader is killed in each round")
    parser.add_argument("--force", action="store_true", help="measure again what was measured before on this commit")
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
        commit=kept_pieces.code_version(),
    )
    try:
        if any(PARTS[part].needs_librdkafka for part in parts):
            rdkafka.ensure_built()
        wanted = [scenario for scenario in known if not names or scenario.name in names]
        scenarios = on_shared_peers(wanted) if sizes.shares_peers else wanted
        kept = KeptPieces(kept_pieces.DIRECTORY, sizes, run.commit)
        run_rounds(run, peers, scenarios, kept, is_forced=options.force)
    except (NotAvailable, rdkafka.ClientUnavailable) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted; run it again on this commit to go on", file=sys.stderr)
        return 130
    finish(run)
    return 1 if run.failures else 0


def finish(run: Results) -> None:
    print("\n" + report.summary(run) + "\n")
    for failure in run.failures:
        print(f"failed: {failure}")
    missed = [measure.title for measure in report.measures_of(run) if report.verdict(measure, run) == "**missed**"]
    print(f"goals missed: {', '.join(missed) or 'none'}")
    if run.name == "quick":
        print("(a quick run shows that everything works, and orders of magnitude; the goals are meant for a full run)")
    print(f"wrote {run.save().relative_to(report.REPOSITORY)}")
    if run.name in (FULL, *PARTS):
        report.write()


if __name__ == "__main__":
    sys.exit(main())
