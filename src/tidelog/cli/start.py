"""`tidelog start`: start one broker that was killed or died."""

import argparse

from tidelog.cli.local_command import add_data_option, carry_out


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "start",
        help="start one broker again",
        description="Start one broker of the cluster that does not run, and wait until it is back in the cluster.",
    )
    parser.add_argument("broker", metavar="ID", type=int, help="the number of the broker")
    add_data_option(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from tidelog.cli.local_cluster.commands import start

    return carry_out("start", start, options)
