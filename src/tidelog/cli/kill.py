"""`tidelog kill`: SIGKILL for one broker of the local cluster, to watch a failover."""

import argparse

from tidelog.cli.client_command import add_json_option, count_option
from tidelog.cli.local_command import add_data_option, run_command


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "kill",
        help="kill one broker, to watch a failover",
        description="Kill one broker with SIGKILL: a simulated crash. The others elect new leaders for its partitions.",
    )
    parser.add_argument("broker", metavar="ID", type=count_option, help="broker id")
    add_data_option(parser)
    add_json_option(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from tidelog.cli.local_cluster.commands import kill_broker

    return run_command("kill", kill_broker, options)
