"""`tidelog up`: a replicated cluster on this machine, with one command."""

import argparse

from tidelog.cli.local_command import add_data_option, carry_out

DESCRIPTION = """\
Start a replicated cluster on this machine: brokers 1 to N, each a process of its own, on the ports P, P+1, ...
Run again on the same data, it starts what is not running. A broker that died stays down until then.

In the foreground it shows who leads, who is in sync and who lags, until Ctrl-C stops all brokers in good order.
With --detach it returns as soon as the cluster takes writes with acks=all; its last line is for your client:
bootstrap: 127.0.0.1:29092,127.0.0.1:29093,127.0.0.1:29094

Metrics for Prometheus are on the ports P+100, P+101, ... as http://127.0.0.1:29192/metrics.
"""

EPILOG = """\
In DIR are the brokers' data (broker-N/) and logs (broker-N.log), their settings (server.properties, yours to edit)
and, without --zookeeper, the cluster's metadata (coordination.sqlite).

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
    parser.add_argument("--brokers", metavar="N", type=int, help="how many brokers (3, or as many as the data has)")
    parser.add_argument("--port", metavar="P", type=int, help="the port of broker 1 (29092, or the one used before)")
    parser.add_argument(
        "--zookeeper", metavar="HOST:PORT[/PATH]", help="keep the metadata in ZooKeeper instead of a file in DIR"
    )
    parser.add_argument("--detach", action="store_true", help="return when the cluster is ready and leave it running")
    parser.add_argument("--restart", action="store_true", help="keep all brokers up: one that dies is started again")
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        dest="overrides",
        help="a setting of all brokers, kept for later runs; may be repeated",
    )
    parser.add_argument("--config", metavar="FILE", help="a server.properties file with settings of all brokers")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from tidelog.cli.local_cluster.up import up

    return carry_out("up", up, options)
