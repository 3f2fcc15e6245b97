"""`tidelog produce`: write each line of standard input to a topic."""

import argparse

from tidelog.cli.client_command import (
    add_client_options,
    add_json_option,
    client_command,
    count_option,
    name_option,
    number_option,
    settings_option,
)
from tidelog.numerals import decimal_number

DESCRIPTION = """\
Write each line of standard input to a topic as one record. A topic that does not exist is created if the cluster
allows it. The command returns when all records are acknowledged.
"""
EPILOG = """\
With --input json a line is an object; all fields but "value" may be missing:
  {"key": "a", "value": "text, or any JSON", "headers": {"source": "web"}, "partition": 0, "timestamp": 1769860800000}
A "value" of null is a tombstone. "key_base64" and "value_base64" are for other bytes. `tidelog consume --json` prints
such lines: tidelog consume a --from-beginning --until now --json | tidelog produce b --input json
"""
ACKS = {"all": -1, "1": 1, "0": 0}
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "produce",
        help="write lines to a topic",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("topic", metavar="TOPIC", type=name_option)
    parser.add_argument(
        "--input", choices=("lines", "json"), default="lines", help="what a line is (default: lines, each a value)"
    )
    parser.add_argument(
        "--key-separator",
        metavar="TEXT",
        type=_separator_option,
        help="text between key and value in each line; \\t is a tab",
    )
    parser.add_argument("--partition", metavar="N", type=number_option, help="write only to this partition")
    parser.add_argument(
        "--header",
        metavar="KEY=VALUE",
        action="append",
        type=settings_option,
        default=[],
        dest="headers",
        help="add a header to every record; may be repeated",
    )
    parser.add_argument("--rate", metavar="N", type=_rate_option, help="write at most N records per second")
    parser.add_argument(
        "--repeat", metavar="N", type=count_option, default=1, help="write the whole input N times, one after another"
    )
    parser.add_argument(
        "--acks", choices=ACKS, default="all", help="acknowledgements to wait for (default: all, every in-sync replica)"
    )
    parser.add_argument(
        "--compression", choices=COMPRESSIONS, default="none", help="compression of batches (default: none)"
    )
    add_json_option(parser, "print how much was written as JSON")
    add_client_options(parser)
    parser.set_defaults(run=client_command("produce", "produce_command", "produce"))


def _separator_option(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("the separator must not be empty; without this option a line is a value")
    from tidelog.cli.record_format import unescaped

    return unescaped(text)


def _rate_option(text: str) -> float:
    rate = decimal_number(text)
    if rate is None or not 0 < rate < 1e9:
        raise argparse.ArgumentTypeError(f"expected a number of records per second above 0, found {text!r}")
    return rate
