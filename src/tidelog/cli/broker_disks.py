"""`tidelog broker disks`: log directories of all brokers, and moves of replicas between them."""

import argparse
from typing import TYPE_CHECKING

from tidelog.cli.client_command import add_client_options, add_json_option, client_command

if TYPE_CHECKING:
    from tidelog.client.routing.cluster import Cluster

DESCRIPTION = """\
Show the log directories of all brokers: state, size, free space and partitions. For an offline directory, show the
reason. For each replica that moves to another log directory of its broker, show how far it is.
"""


def add_disks(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the action of `tidelog broker`."""
    parser = actions.add_parser("disks", help="show log directories and moves between them", description=DESCRIPTION)
    add_json_option(parser)
    add_client_options(parser)
    parser.set_defaults(run=client_command("broker disks", "broker_disks", "show_disks"))


async def show_disks(cluster: "Cluster", options: argparse.Namespace) -> None:
    import json

    from tidelog.cli.disk_view import as_json, as_text, disks_of
    from tidelog.client.admin.admin import Admin

    view = disks_of(await Admin(cluster).describe_log_dirs())
    print(json.dumps(as_json(view)) if options.json else "\n".join(as_text(view)))
