"""`make churn`: groups and transactions of all clients under many disturbances, drawn from a seed."""

import argparse
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn, TypeVar

from tests.churn import group_trial, transaction_trial
from tests.churn.brokers import Brokers
from tests.churn.group_trial import GroupTrial
from tests.churn.membership import Protocol
from tests.churn.transaction_trial import TransactionTrial

ALL = ("confluent-kafka", "kafka-python", "aiokafka")
GROUPS: dict[str, tuple[tuple[str, ...], Protocol, bool]] = {
    "eager": (ALL, Protocol.EAGER, False),
    "static": (ALL, Protocol.EAGER, True),
    "cooperative-librdkafka": (("confluent-kafka",), Protocol.COOPERATIVE, False),
    "cooperative-kafka-python": (("kafka-python",), Protocol.COOPERATIVE, False),
    "consumer": (("confluent-kafka",), Protocol.CONSUMER, False),
    "consumer-static": (("confluent-kafka",), Protocol.CONSUMER, True),
}
OVERSLEEPERS = GROUPS.keys() - {"cooperative-kafka-python"}
"""kafka-python 3.0 claims partitions that it has lost when it joins again, and does not say since which generation: its
assignor then gives one partition to two members."""

COPIES = {"copy-librdkafka": "confluent-kafka", "copy-tidelog": "tidelog"}
Churning = group_trial.Disturbance
Copy = transaction_trial.Disturbance
K = TypeVar("K")


def main() -> int:
    signal.signal(signal.SIGTERM, _break_off)
    options = _options()
    chance = random.Random(options.seed)
    names = options.only or [*GROUPS, *COPIES]
    print(f"{options.disturbances} disturbances of each of {len(names)} trials, seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="tidelog-churn-") as temporary:
        directory = Path(temporary) if options.keep is None else options.keep
        brokers = Brokers(directory / "brokers")
        try:
            brokers.start()
            failed = [name for name in names if not _run(name, options.disturbances, chance, brokers, directory)]
            brokers.stop()
            surprises = brokers.surprises()
        finally:
            brokers.close()
    for line in surprises[:20]:
        print(line)
    print("FAILED: " + ", ".join(failed) if failed or surprises else "PASSED")
    return 1 if failed or surprises else 0


def _break_off(number: int, _frame: object) -> NoReturn:
    """The way out ends all processes of the trials."""
    raise SystemExit(128 + number)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.churn.run", description=__doc__)
    parser.add_argument("--disturbances", type=int, default=12)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 100_000, help="a run can be had again with it")
    parser.add_argument("--only", action="append", choices=[*GROUPS, *COPIES], metavar="TRIAL")
    parser.add_argument("--keep", metavar="DIR", type=Path, help="leave logs and journals here")
    return parser.parse_args()


def _run(name: str, count: int, chance: random.Random, brokers: Brokers, directory: Path) -> bool:
    began_s = time.monotonic()
    print(f"\n{name}", flush=True)
    try:
        summary, problems = _trial(name, count, chance)(brokers, directory / name)
    except AssertionError as error:
        summary, problems = "broken off", [str(error)]
    print(f"{name}: {summary}, {time.monotonic() - began_s:.0f} s, {'good' if not problems else 'BAD'}", flush=True)
    for problem in problems[:10]:
        print(f"  {problem}", flush=True)
    return not problems


Carry = Callable[[Brokers, Path], tuple[str, list[str]]]


def _trial(name: str, count: int, chance: random.Random) -> Carry:
    seed = chance.randrange(1 << 30)
    if name in GROUPS:
        clients, protocol, is_static = GROUPS[name]
        possible = [kind for kind in Churning if name in OVERSLEEPERS or kind is not Churning.OVERSLEEP]
        disturbances = tuple(_drawn(possible, count, chance))
        trial = GroupTrial(clients, protocol, disturbances, seed, is_static)

        def churn(brokers: Brokers, directory: Path) -> tuple[str, list[str]]:
            outcome = group_trial.carry_out(trial, brokers, name, directory, _say)
            summary = (
                f"{outcome.produced:,} produced, {outcome.processed:,} processed, {outcome.assignments} assignments"
            )
            return summary, outcome.problems

        return churn
    client = COPIES[name]
    kinds = [kind for kind in Copy if client != "tidelog" or kind is not Copy.OVERSLEEP]
    copy_trial = TransactionTrial(client, tuple(_drawn(kinds, count, chance)), seed)

    def copy(brokers: Brokers, directory: Path) -> tuple[str, list[str]]:
        outcome = transaction_trial.carry_out(copy_trial, brokers, name, directory, _say)
        return f"{outcome.copied:,} copied", outcome.problems

    return copy


def _drawn(kinds: list[K], count: int, chance: random.Random) -> list[K]:
    """Every kind in turn, then shuffled."""
    drawn = [kinds[number % len(kinds)] for number in range(count)]
    chance.shuffle(drawn)
    return drawn


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
