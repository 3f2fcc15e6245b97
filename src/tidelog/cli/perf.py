"""`tidelog perf`: throughput and latency of a cluster, measured from here."""

import argparse

from tidelog.cli.client_command import (
    add_client_options,
    add_json_option,
    client_command,
    count_option,
    name_option,
    seconds_option,
)
from tidelog.cli.produce import ACKS, COMPRESSIONS

DESCRIPTION = """\
Measure a cluster from this machine, with figures each second and percentiles at the end. The client runs in Python on
one core, so it may be the limit: compare only with other measurements of the same client.
"""


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser("perf", help="measure throughput and latency", description=DESCRIPTION)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions", required=True)
    _add_produce(actions)
    _add_consume(actions)
    _add_latency(actions)


def _add_produce(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = actions.add_parser(
        "produce",
        help="write records as fast as possible, or at a rate",
        description="Write records of random bytes to a topic, and measure throughput and the time to acknowledgement.",
    )
    parser.add_argument("topic", metavar="TOPIC", type=name_option, help="topic; created if it does not exist")
    _add_amount(parser, 100_000)
    parser.add_argument(
        "--size", metavar="BYTES", type=count_option, default=1_000, help="size of each value (default: %(default)s)"
    )
    parser.add_argument(
        "--rate", metavar="N", type=count_option, help="records per second (default: as many as possible)"
    )
    parser.add_argument("--acks", choices=ACKS, default="all", help="acknowledgements to wait for (default: all)")
    parser.add_argument(
        "--compression", choices=COMPRESSIONS, default="none", help="compression of batches (default: none)"
    )
    add_json_option(parser)
    add_client_options(parser)
    parser.set_defaults(run=client_command("perf produce", "perf_commands", "produce"))


def _add_consume(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = actions.add_parser(
        "consume",
        help="read records as fast as possible",
        description="Read a topic from its beginning and measure throughput. Ends at the number of records, or if none"
        " arrives for --timeout.",
    )
    parser.add_argument("topic", metavar="TOPIC", type=name_option)
    _add_amount(parser, 100_000)
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=seconds_option,
        default=5.0,
        help="how long to wait for a record (default: %(default)s)",
    )
    add_json_option(parser)
    add_client_options(parser)
    parser.set_defaults(run=client_command("perf consume", "perf_commands", "consume"))


def _add_latency(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = actions.add_parser(
        "latency",
        help="time from writing a record to reading it",
        description="Write records one after another and read them back: the time to acknowledgement, and the time"
        " until a consumer has the record.",
    )
    parser.add_argument("topic", metavar="TOPIC", type=name_option, help="topic; created if it does not exist")
    _add_amount(parser, 1_000)
    parser.add_argument(
        "--size", metavar="BYTES", type=count_option, default=100, help="size of each value (default: %(default)s)"
    )
    parser.add_argument(
        "--rate", metavar="N", type=count_option, default=100, help="records per second (default: %(default)s)"
    )
    parser.add_argument("--acks", choices=ACKS, default="all", help="acknowledgements to wait for (default: all)")
    add_json_option(parser)
    add_client_options(parser)
    parser.set_defaults(run=client_command("perf latency", "perf_commands", "latency"))


def _add_amount(parser: argparse.ArgumentParser, default: int) -> None:
    parser.add_argument(
        "--records", metavar="N", type=count_option, default=default, help="number of records (default: %(default)s)"
    )
