"""Options of `tidelog simulate`. Imports nothing of the simulator, so that `tidelog --help` does not wait for it."""

import argparse

DESCRIPTION = """\
Run whole clusters of brokers in one process on virtual time, with simulated disks, networks, clocks and a simulated
coordination store. Clients write and read while faults strike: processes are killed and stopped, links are cut, disks
tear writes, clocks jump. Each seed draws its own cluster, faults and work, and the same seed always gives the same run.
Invariants are checked all along: nothing acknowledged is lost, replicas agree, everything recovers.
Exit code 0: all invariants held, 1: a seed violated one, 130: interrupted, and it says where to go on.
"""


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
    parser.add_argument(
        "--digest",
        action="store_true",
        help="only tell a digest of all frames, store writes and disk writes of each seed: versions of the code that"
        " behave alike give the same",
    )
    parser.add_argument(
        "--duration", metavar="SECONDS", type=float, help="with --seed or --digest: end the faults after so long"
    )
    parser.add_argument(
        "--exactly-once", action="store_true", help="a group of workers that copy a topic by transactions instead"
    )
    parser.add_argument("--verbose", action="store_true", help="with the log lines of all brokers")


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number}: give 1 or more")
    return number


def _numbers(text: str) -> frozenset[int]:
    return frozenset(int(number) for number in text.split(",") if number)
