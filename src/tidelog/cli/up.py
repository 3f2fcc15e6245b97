"""`tidelog up`: start a replicated cluster on this machine with one command."""

import argparse

from tidelog.cli.client_command import add_json_option, number_option
from tidelog.cli.local_command import add_data_option, run_command

DESCRIPTION = """\
Start a replicated cluster on this machine: brokers 1 to N, each its own process, on ports P, P+1, ...
Run again with the same data directory, it starts the brokers that are not running.

In the foreground it shows leaders, in-sync replicas and lag until Ctrl-C, which shuts all brokers down cleanly.
With --detach it returns as soon as the cluster accepts writes with acks=all. The last line is for your client:
bootstrap: 127.0.0.1:29092,127.0.0.1:29093,127.0.0.1:29094

Prometheus metrics are on ports P+100, P+101, ..., such as http://127.0.0.1:29192/metrics.
"""

EPILOG = """\
DIR contains the brokers' data (broker-N/), their logs (broker-N.log), their settings (server.properties, which you may
edit) and, without --zookeeper, the cluster's metadata (coordination.sqlite).

See also: tidelog status, kill, start, down.
"""


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "up",
        help="start a cluster on this machine",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_data_option(parser)
    _add_size_options(parser)
    parser.add_argument(
        "--zookeeper", metavar="HOST:PORT[/PATH]", help="keep the metadata in ZooKeeper instead of a file in DIR"
    )
    parser.add_argument(
        "--secure",
        action="store_true",
        help="TLS, logins and permissions: makes certificates, an administrator and DIR/client.properties",
    )
    parser.add_argument("--detach", action="store_true", help="return when the cluster is ready and leave it running")
    parser.add_argument(
        "--console",
        action="store_true",
        help="serve the console for the browser too, while this runs in the foreground",
    )
    parser.add_argument(
        "--log-format",
        choices=["text", "json"],
        help="format of the brokers' logs: text, or one JSON object per event (default: text, or as stored in DIR)",
    )
    parser.add_argument("--restart", action="store_true", help="restart brokers that die")
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        dest="overrides",
        help="a setting for all brokers, stored in DIR; may be repeated",
    )
    parser.add_argument("--config", metavar="FILE", help="a server.properties file with settings for all brokers")
    add_json_option(parser, "with --detach: print JSON when the cluster is ready")
    parser.set_defaults(run=run)


def _add_size_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--brokers", metavar="N", type=number_option, help="number of brokers (default: 3, or as stored in DIR)"
    )
    parser.add_argument(
        "--per-core",
        action="store_true",
        help="one broker for each core, for speed: brokers have the machine as rack, and topics one replica",
    )
    parser.add_argument(
        "--port",
        metavar="P",
        type=number_option,
        help="port of broker 1; 0: free ports (default: 29092, or as stored in DIR)",
    )


def run(options: argparse.Namespace) -> int:
    from tidelog.cli.local_cluster.up_command import up

    return run_command("up", up, options)
