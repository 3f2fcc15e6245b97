"""`tidelog status`: health, brokers, controller and partitions of a cluster."""

import argparse

from tidelog.cli.client_command import add_place_options
from tidelog.cli.local_command import run_command

DESCRIPTION = """\
Show the health of a cluster: what is wrong first, with the reason, then brokers and partitions with leader, in-sync
replicas, high watermark and lag. While something is wrong, only unhealthy partitions are listed.
Exit code 0: healthy; 1: degraded, everything can still be written; 2: a partition cannot be written.
"""


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "status",
        help="show health, brokers, leaders, in-sync replicas and lag",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_place_options(parser)
    parser.add_argument("--watch", action="store_true", help="show it until Ctrl-C; without a terminal, only changes")
    parser.add_argument(
        "--all", action="store_true", dest="all_partitions", help="list all partitions, of internal topics too"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from tidelog.cli.local_cluster.status_command import status

    return run_command("status", status, options)
