"""`tidelog consume`: print the records of topics as they arrive."""

import argparse
import re

from tidelog.cli.client_command import (
    MAX_NUMBER,
    add_client_options,
    client_command,
    count_option,
    name_option,
    number_option,
    seconds_option,
)
from tidelog.cli.time_options import duration_option, time_option
from tidelog.numerals import whole_number

DESCRIPTION = """\
Print the records of topics, one per line, and wait for more until Ctrl-C. By default, starts at the end of the topics:
only new records are printed.
"""
EPILOG = """\
  tidelog consume orders --since 10m                      the last ten minutes, then new records
  tidelog consume orders --from 2026-01-31T12:00 --until 2026-01-31T13:00
  tidelog consume 'orders-*' payments --from-beginning --until now --grep ERROR
  tidelog consume orders --json | jq .value
"""
FORMAT_HELP = """\
output format of a record: %%t topic, %%p partition, %%o offset, %%T timestamp in milliseconds, %%k key, %%v value,
%%h headers, \\t a tab, \\n a new line (default: '%%v')
"""


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "consume",
        help="print the records of topics",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "topics", metavar="TOPIC", nargs="+", type=name_option, help="a topic, or a pattern: * and ? are wildcards"
    )
    _add_start(parser)
    _add_group(parser)
    parser.add_argument(
        "--partition",
        metavar="N",
        type=number_option,
        action="append",
        help="read only this partition; may be repeated",
    )
    parser.add_argument(
        "--committed",
        action="store_true",
        help="print only records of committed transactions; wait for open transactions to end",
    )
    parser.add_argument(
        "--rack",
        metavar="NAME",
        type=name_option,
        help="read from replicas in this rack (client.rack), if the brokers' replica.selector.class is rack-aware",
    )
    _add_choice(parser)
    _add_output_options(parser)
    add_client_options(parser)
    parser.set_defaults(run=client_command("consume", "consume_command", "consume"))


def _add_start(parser: argparse.ArgumentParser) -> None:
    start = parser.add_mutually_exclusive_group()
    start.add_argument("--from-beginning", action="store_true", help="start with the oldest record")
    start.add_argument(
        "--offset",
        metavar="N",
        type=_offset_option,
        help="start at this offset; -N starts N records before the end of each partition",
    )
    start.add_argument(
        "--since", metavar="DURATION", type=duration_option, help="start this long ago, such as 30s, 10m, 2h"
    )
    start.add_argument(
        "--from", metavar="TIME", type=time_option, dest="from_ms", help="start at this time, such as 2026-01-31T12:00"
    )


def _add_group(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--group",
        metavar="NAME",
        type=name_option,
        help="read as a member of this consumer group: share its partitions with the other members and continue from"
        " its committed offsets; --from-beginning applies to a group without committed offsets",
    )
    parser.add_argument(
        "--instance-id",
        metavar="NAME",
        type=name_option,
        help="with --group: static member id (group.instance.id), unique in the group. When this command ends, its"
        " partitions are kept for the next member with this id until the session times out",
    )


def _add_choice(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--until",
        metavar="TIME",
        type=time_option,
        dest="until_ms",
        help="exit at the first record of this time or later, or `now`",
    )
    parser.add_argument("--max-messages", metavar="N", type=count_option, help="exit after N records")
    parser.add_argument(
        "--timeout", metavar="SECONDS", type=seconds_option, help="exit if no record arrives for this long"
    )
    parser.add_argument("--key", metavar="TEXT", help="only records with this key")
    parser.add_argument(
        "--grep", metavar="PATTERN", type=_pattern_option, help="only records whose value matches (regular expression)"
    )


def _add_output_options(parser: argparse.ArgumentParser) -> None:
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--format", metavar="TEXT", type=_format_option, default="%v", help=FORMAT_HELP)
    output.add_argument("--json", action="store_true", help="print each record as a line of JSON")
    parser.add_argument(
        "--value-schema",
        metavar="FILE",
        help="decode values to JSON: Avro by an .avsc file, Protobuf by a descriptor set of protoc",
    )
    parser.add_argument("--message", metavar="NAME", help="Protobuf message type, if the descriptor set has several")


def _offset_option(text: str) -> int:
    offset = whole_number(text)
    if offset is None or abs(offset) > MAX_NUMBER:
        raise argparse.ArgumentTypeError(f"expected an offset, or -N for the last N records, found {text!r}")
    return offset


def _pattern_option(text: str) -> "re.Pattern[bytes]":
    try:
        return re.compile(text.encode())
    except re.error as error:
        raise argparse.ArgumentTypeError(f"not a regular expression: {error}") from None


def _format_option(text: str) -> str:
    from tidelog.cli.record_format import BadFormat, check_format

    try:
        return check_format(text)
    except BadFormat as error:
        raise argparse.ArgumentTypeError(str(error)) from None
