"""`make siege`: attacks on three real brokers beside a normal producer and consumer, as a table."""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.siege.catalogue import ATTACKS
from tests.siege.trial import BesiegedCluster, Outcome, carry_out

SECONDS = 10.0
HEAD = f"{'attack':24} {'p50':>7} {'p99':>7} {'max':>7} {'leaders':>8} {'sessions':>8} {'memory MB':>16} {'step':>5}"


def main() -> int:
    options = _options()
    names = options.only or list(ATTACKS)
    print(f"{len(names)} attacks of {options.seconds:g} s each; waits of others and processor time of the longest step")
    print(f"of an event loop, in ms\n\n{HEAD}", flush=True)
    failed = []
    with tempfile.TemporaryDirectory(prefix="tidelog-siege-") as temporary:
        cluster = BesiegedCluster(options.keep or Path(temporary))
        try:
            cluster.start()
            for name in names:
                outcome = carry_out(name, cluster, options.seconds, options.scale)
                print(_line(outcome), flush=True)
                if options.steps and outcome.step:
                    print(f"    {outcome.step}", flush=True)
                if outcome.problems:
                    failed.append(name)
        finally:
            cluster.close()
    print("\nFAILED: " + ", ".join(failed) if failed else "\nPASSED")
    return 1 if failed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.siege.run", description=__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="length of each attack")
    parser.add_argument("--scale", type=float, default=1.0, help="part of the connections and requests to use")
    parser.add_argument("--only", action="append", choices=list(ATTACKS), metavar="ATTACK")
    parser.add_argument("--steps", action="store_true", help="show where the longest step of each attack was")
    parser.add_argument("--keep", metavar="DIR", type=Path, help="leave logs here")
    return parser.parse_args()


def _line(outcome: Outcome) -> str:
    waits = " ".join(f"{wait * 1000:7.0f}" for wait in (outcome.p50_s, outcome.p99_s, outcome.longest_s))
    memory = "/".join(f"{size / 1e6:.0f}" for size in (outcome.before_bytes, outcome.peak_bytes, outcome.after_bytes))
    verdict = "; ".join(outcome.problems)[:300] or "good"
    counts = f"{outcome.leaders_moved:8d} {outcome.sessions_lost:8d} {memory:>16} {outcome.step_ms:5d}"
    return f"{outcome.name:24} {waits} {counts}  {verdict}"


if __name__ == "__main__":
    sys.exit(main())
