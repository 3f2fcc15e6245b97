"""`tidelog simulate`: simulated clusters on virtual time, faults from a seed, invariants checked."""

import argparse

from tidelog.simulation.options import DESCRIPTION, add_options


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "simulate",
        help="run simulated clusters under faults and check that nothing is lost",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from tidelog.simulation import command

    return command.run(options)
