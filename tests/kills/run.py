"""`make kills`: processes of Spark and brokers killed, at chosen steps and at random; each record must be once."""

import argparse
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import NoReturn

from tests.kills.plan import Target
from tests.kills.step_trial import strike
from tests.kills.steps import ALL_BLOWS, LOCAL_VICTIMS, Victim
from tests.kills.trial import LOCAL_MASTER, Outcome, Trial, TrialFailed, carry_out
from tests.kills.verdict import Findings, is_good_table, is_good_topic

HEADINGS = f"{'':<8}{'records':>10}{'lost':>8}{'again':>8}{'out of order':>14}{'unknown':>9}"


def main() -> int:
    for number in (signal.SIGINT, signal.SIGTERM):  # ignored where a shell runs this behind its back
        signal.signal(number, _break_off)
    options = _options()
    trial = Trial(
        options.kills,
        options.seed,
        on_cluster=not options.local,
        only=tuple(Target[name.upper()] for name in options.targets.split(",") if name),
        batches_before=options.batches_before,
        limit_s=options.minutes * 60,
        is_stateful=options.stateful,
    )
    began_s = time.monotonic()
    try:
        is_good = _strike_at_each_step(trial, options.rounds, options.victims.split(","))
        if trial.kills:
            print(f"{trial.kills} kills, seed {trial.seed}, on {_place(trial)}", flush=True)
            outcome = _carried_out(trial, options.keep)
            _report(outcome)
            is_good = is_good and outcome.is_good
    except TrialFailed as failed:
        print(f"FAILED: {failed}")
        return 1
    print(f"{'PASSED' if is_good else 'FAILED'} after {time.monotonic() - began_s:.0f} s")
    return 0 if is_good else 1


def _strike_at_each_step(trial: Trial, rounds: int, names: list[str]) -> bool:
    victims = {victim for victim in Victim if victim.name.lower() in names}
    if not trial.on_cluster:
        victims &= LOCAL_VICTIMS
    blows = [blow for blow in ALL_BLOWS * rounds if blow.victim in victims]
    if not blows:
        return True
    print(f"{len(blows)} kills at chosen steps, seed {trial.seed}, on {_place(trial)}", flush=True)
    with tempfile.TemporaryDirectory(prefix="tidelog-kills-") as directory:
        found = strike(blows, trial.seed, Path(directory), _say, on_cluster=trial.on_cluster)
    print(f"\n{HEADINGS}\n{_row('topic', found, is_good_topic(found))}\n")
    return is_good_topic(found)


def _place(trial: Trial) -> str:
    return "a standalone cluster with two workers" if trial.on_cluster else LOCAL_MASTER


def _break_off(number: int, _frame: object) -> NoReturn:
    """The way out ends all processes of the trial."""
    raise SystemExit(128 + number)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.kills.run", description=__doc__)
    parser.add_argument("--kills", type=int, default=20, help="by lot, of a pipeline under load")
    parser.add_argument("--rounds", type=int, default=1, help="how often a process is killed at each step of a batch")
    victims = ",".join(victim.name.lower() for victim in Victim)
    parser.add_argument("--victims", default=victims, help="who is killed at those steps, separated by commas")
    targets = ",".join(target.name.lower() for target in Target)
    parser.add_argument("--targets", default="", help=f"who is killed by lot, of {targets} (all)")
    parser.add_argument("--batches-before", type=int, default=0, help="batches of each sink before the first of those")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="for those; then what there is is examined")
    parser.add_argument("--stateful", action="store_true", help="with deduplication, a join and windows, on RocksDB")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 100_000, help="a run can be had again with it")
    parser.add_argument("--local", action="store_true", help=f"on {LOCAL_MASTER}, not on a cluster")
    parser.add_argument("--keep", metavar="DIR", type=Path, help="leave logs, checkpoint and table here")
    return parser.parse_args()


def _carried_out(trial: Trial, keep: Path | None) -> Outcome:
    if keep is not None:
        keep.mkdir(parents=True)
        return carry_out(trial, keep.absolute(), _say)
    with tempfile.TemporaryDirectory(prefix="tidelog-kills-") as directory:
        return carry_out(trial, Path(directory), _say)


def _report(outcome: Outcome) -> None:
    print(f"\n{outcome.kills} kills, {outcome.produced:,} records produced")
    print(f"queries started again within a driver: {outcome.restarts}\n")
    print(HEADINGS)
    topic = outcome.topic if outcome.windows is None else outcome.topic._replace(out_of_order=0)
    print(_row("topic", topic, outcome.is_good_topic))
    print(_row("table", outcome.table._replace(out_of_order=0), is_good_table(outcome.table)))
    if outcome.windows is not None:
        print(_row("windows", outcome.windows._replace(out_of_order=0), outcome.is_good_windows))


def _row(name: str, found: Findings, is_good: bool) -> str:
    counts = f"{found.records:>10,}{found.lost:>8,}{found.again:>8,}{found.out_of_order:>14,}{found.unknown:>9,}"
    return f"{name:<8}{counts}  {'good' if is_good else 'BAD'}"


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
