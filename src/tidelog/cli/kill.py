"""`tidelog kill`: end one broker as a crash would, to see a failover."""

import argparse

from tidelog.cli.local_command import add_data_option, carry_out


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "kill",
        help="kill one broker, to see a failover",
        description="End one broker with SIGKILL, as a crash would. The others elect new leaders for its partitions.",
    )
    parser.add_argument("broker", metavar="ID", type=int, help="the number of the broker")
    add_data_option(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from tidelog.cli.local_cluster.commands import kill_broker

    return carry_out("kill", kill_broker, options)
