"""`tidelog status`: brokers, controller and partitions of a cluster."""

import argparse

from tidelog.cli.local_command import add_data_option, run_command

DESCRIPTION = """\
Show the brokers of a cluster, the controller, and for each partition the leader, the in-sync replicas, the high
watermark and the lag of each replica. For each replica that is out of sync, show the reason.
"""


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "status", help="show brokers, leaders, in-sync replicas and lag", description=DESCRIPTION
    )
    place = parser.add_mutually_exclusive_group()
    add_data_option(place)
    place.add_argument("--bootstrap", metavar="HOST:PORT,...", help="brokers of another cluster")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from tidelog.cli.local_cluster.commands import status

    return run_command("status", status, options)
