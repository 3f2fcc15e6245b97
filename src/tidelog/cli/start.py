"""`tidelog start`: start one stopped broker of the local cluster."""

import argparse

from tidelog.cli.client_command import add_json_option, count_option
from tidelog.cli.local_command import add_data_option, run_command


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "start",
        help="start one stopped broker",
        description="Start one stopped broker of the cluster, and wait until it has rejoined the cluster.",
    )
    parser.add_argument("broker", metavar="ID", type=count_option, help="broker id")
    add_data_option(parser)
    add_json_option(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from tidelog.cli.local_cluster.commands import start

    return run_command("start", start, options)
