"""`tidelog status`: brokers, controller and partitions of a cluster."""

import argparse

from tidelog.cli.local_command import add_data_option, carry_out

DESCRIPTION = """\
Show the brokers of a cluster, which one is controller, and for each partition its leader, its in-sync replicas,
its high watermark and how far each replica is behind. For a replica that is out of sync there is the reason.
"""


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "status", help="show brokers, leaders, in-sync replicas and lag", description=DESCRIPTION
    )
    place = parser.add_mutually_exclusive_group()
    add_data_option(place)
    place.add_argument("--bootstrap", metavar="HOST:PORT,...", help="ask a cluster anywhere instead")
    parser.add_argument("--json", action="store_true", help="as JSON, for programs")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from tidelog.cli.local_cluster.commands import status

    return carry_out("status", status, options)
