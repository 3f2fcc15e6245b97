"""`tidelog down`: stop the cluster on this machine."""

import argparse

from tidelog.cli.client_command import add_json_option
from tidelog.cli.local_command import add_data_option, run_command


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "down",
        help="stop the cluster on this machine",
        description="Stop all brokers that `tidelog up` started with a controlled shutdown, and wait for them. The"
        " data stays.",
    )
    add_data_option(parser)
    add_json_option(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from tidelog.cli.local_cluster.commands import down

    return run_command("down", down, options)
