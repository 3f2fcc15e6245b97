"""`tidelog doctor`: what is wrong with this machine or a cluster, and the command that mends it."""

import argparse

from tidelog.cli.client_command import add_place_options

DESCRIPTION = """\
Check this machine (open files, disk, memory, clock, ports, compiled kernels, Java) and a cluster (brokers, leaders,
replicas, disks, moves, transactions). For each problem, print what to do. Nothing is changed.
Exit code 0: nothing is wrong, 1: something is.
"""


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "doctor",
        help="find what is wrong, and say what to do",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_place_options(parser)
    parser.add_argument("--machine", action="store_true", help="check only this machine")
    parser.add_argument("--all", action="store_true", dest="shows_all", help="also print what is in order")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from tidelog.cli.doctor_command import doctor
    from tidelog.cli.local_command import run_command

    return run_command("doctor", doctor, options)
