"""Options of `tidelog simulate`. Imports nothing of the simulator, so that `tidelog --help` does not wait for it."""

import argparse

from tidelog.numerals import decimal_number, natural_number, whole_number

DESCRIPTION = """\
Run whole clusters of brokers in one process on virtual time, with simulated disks, networks, clocks and a simulated
coordination store. Clients write and read while faults are injected: processes are killed and stopped, links are cut,
disks tear writes, clocks jump. Each seed draws its own cluster, faults and work; the same seed gives the same run.
Invariants are checked throughout the run: no acknowledged record is lost, replicas agree, the cluster recovers.
Exit code 0: all invariants held, 1: a seed violated one, 130: interrupted; the output says how to continue.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", metavar="S", type=_seed, help="run this seed, and print its event log if it fails")
    parser.add_argument(
        "--seeds", metavar="N", type=_positive, default=20, help="number of seeds (default: %(default)s)"
    )
    parser.add_argument("--first", metavar="S", type=_seed, default=1, help="first seed (default: %(default)s)")
    parser.add_argument(
        "--processes", metavar="P", type=_positive, default=1, help="number of processes (default: %(default)s)"
    )
    parser.add_argument(
        "--trace", action="store_true", help="with --seed: print the event log even if all invariants held"
    )
    parser.add_argument(
        "--shrink", action="store_true", help="with --seed: search for a smaller set of faults that still violates"
    )
    parser.add_argument(
        "--only", metavar="LIST", type=_numbers, help="with --seed: apply only these faults, such as 3,17,18"
    )
    parser.add_argument(
        "--digest",
        action="store_true",
        help="print only a digest of all frames, store writes and disk writes of each seed: versions of the code that"
        " behave alike give the same",
    )
    parser.add_argument(
        "--duration", metavar="SECONDS", type=_seconds, help="with --seed or --digest: duration of the faults"
    )
    parser.add_argument(
        "--exactly-once", action="store_true", help="run a group of workers that copy a topic with transactions instead"
    )
    parser.add_argument("--verbose", action="store_true", help="print the log lines of all brokers")


def _seed(text: str) -> int:
    seed = whole_number(text)
    if seed is None:
        raise argparse.ArgumentTypeError(f"expected a whole number, found {text!r}")
    return seed


def _seconds(text: str) -> float:
    seconds = decimal_number(text)
    if seconds is None or not 0 < seconds < 1e9:
        raise argparse.ArgumentTypeError(f"expected a number of seconds above 0, found {text!r}")
    return seconds


def _positive(text: str) -> int:
    number = natural_number(text)
    if number is None or number < 1:
        raise argparse.ArgumentTypeError(f"expected a number of at least 1, found {text!r}")
    return number


def _numbers(text: str) -> frozenset[int]:
    numbers = [natural_number(part) for part in text.split(",") if part]
    if None in numbers:
        raise argparse.ArgumentTypeError(f"expected numbers such as 3,17, found {text!r}")
    return frozenset(each for each in numbers if each is not None)
