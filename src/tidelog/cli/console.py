"""`tidelog console`: the console in the browser, for any Kafka cluster."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.cli.client_command import add_client_options, cancel_on_interrupt, note, run_command
from tidelog.cli.command_error import CommandError

if TYPE_CHECKING:
    from tidelog.client.routing.cluster import Cluster

DEFAULT_PORT = 29080


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "console",
        help="look at a cluster in the browser",
        description="Serve a page that shows a cluster as it moves: brokers, partitions, leaders, in-sync replicas,"
        " topics, messages, groups, transactions. It works with every Kafka cluster. It listens on this machine only"
        " unless --host says otherwise, and changes nothing without --manage.",
    )
    parser.add_argument(
        "--port", metavar="PORT", type=_port, default=DEFAULT_PORT, help=f"port ({DEFAULT_PORT}); 0 picks a free one"
    )
    parser.add_argument(
        "--host",
        metavar="ADDRESS",
        default="127.0.0.1",
        help="address to listen on (127.0.0.1); any other needs the token that is printed",
    )
    parser.add_argument(
        "--manage", action="store_true", help="allow changes: topics, settings, offsets, moves, brokers"
    )
    parser.add_argument(
        "--token", metavar="TOKEN", help="token that the page asks for (default off loopback: a new one)"
    )
    parser.add_argument(
        "--data",
        metavar="DIRECTORY",
        help="data directory of the `tidelog up` cluster that --manage may kill and start brokers of",
    )
    add_client_options(parser)
    parser.set_defaults(run=lambda options: run_command("console", _run, options))


def _port(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"expected a port between 0 and 65535, found {text!r}")
    return int(text)


async def _run(cluster: "Cluster", options: argparse.Namespace) -> None:
    try:
        from tidelog.console.server import AddressTaken, ConsoleOptions, serve
    except ImportError as error:
        raise CommandError(
            f"the console needs {error.name}; install it with `pip install 'tidelog[console]'`"
        ) from error
    from tidelog.console.changes import LocalCluster

    cancel_on_interrupt()
    metadata = await cluster.refresh()
    local = _local(options)
    title = f"cluster {metadata.cluster_id}"
    settings = ConsoleOptions(
        options.host, options.port, options.manage, options.token, title, None if local is None else LocalCluster(local)
    )
    try:
        await serve(cluster, settings, note)
    except AddressTaken as taken:
        raise CommandError(str(taken)) from taken


def _local(options: argparse.Namespace) -> Path | None:
    """The data directory whose brokers may be killed: the one named, or the default one if it is this cluster's."""
    from tidelog.cli.local_cluster.data_directory import DataDirectory
    from tidelog.runtime.cluster_choice import default_data_directory

    if options.bootstrap and not options.data:
        return None
    data = DataDirectory(options.data or default_data_directory())
    return data.root if data.stored_plan() is not None else None
