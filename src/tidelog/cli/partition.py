"""`tidelog partition`: list partitions, move replicas, elect leaders, explain what is wrong with a partition."""

import argparse
import re

from tidelog.cli.client_command import add_client_options, add_json_option, client_command, number_option
from tidelog.numerals import natural_number

UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "KI": 2**10, "MI": 2**20, "GI": 2**30}
GOALS = ("count", "bytes", "rack")

MOVE_DESCRIPTION = """\
Move replicas to other brokers, by a plan file or by a plan that is made here. Shows the plan, asks, carries it out and
shows progress. Ctrl-C ends only the display; the brokers go on.
"""


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "partition",
        help="list partitions, move replicas, elect leaders",
        description="List partitions, move replicas between brokers, elect leaders, explain unhealthy partitions.",
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions", required=True)
    _add_list(actions)
    _add_move(actions)
    _add_elect(actions)
    _add_why(actions)


def _add_list(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = actions.add_parser(
        "list",
        help="list partitions with leader, replicas and size",
        description="List partitions with leader, replicas, in-sync replicas and size.",
    )
    _add_topic_option(parser, "only this topic; may be repeated")
    parser.add_argument("--unhealthy", action="store_true", help="only partitions that lack a leader or replicas")
    parser.add_argument("--all", action="store_true", dest="shows_all", help="list partitions of internal topics too")
    add_json_option(parser)
    add_client_options(parser)
    parser.set_defaults(run=client_command("partition list", "partition_commands", "list_partitions"))


def _add_move(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = actions.add_parser("move", help="move replicas to other brokers", description=MOVE_DESCRIPTION)
    how = parser.add_argument_group("what to do (one of these)").add_mutually_exclusive_group(required=True)
    how.add_argument(
        "--plan", metavar="FILE", help="carry out this plan, in Kafka's reassignment JSON (-: standard input)"
    )
    how.add_argument("--balance", action="store_true", help="spread the replicas evenly over all brokers")
    how.add_argument("--drain", metavar="N,...", type=_brokers_option, default=(), help="move everything off brokers")
    how.add_argument(
        "--add-broker", metavar="N,...", type=_brokers_option, default=(), help="give new brokers their share"
    )
    how.add_argument("--status", action="store_true", help="show the progress of the move under way")
    how.add_argument(
        "--wait", action="store_true", help="show progress until the move is done, and remove its throttle"
    )
    how.add_argument("--cancel", action="store_true", help="cancel the move under way")
    parser.add_argument(
        "--by",
        choices=GOALS,
        default="count",
        help="what is to be even: the number of replicas (default) or their bytes; rack only mends partitions with"
        " several replicas in one rack",
    )
    _add_topic_option(parser, "only partitions of this topic; may be repeated")
    parser.add_argument(
        "--throttle",
        metavar="RATE",
        type=_rate_option,
        help="copy at most this much per second and broker, such as 10MB",
    )
    confirm = parser.add_mutually_exclusive_group()
    confirm.add_argument("--yes", action="store_true", help="do not ask")
    confirm.add_argument("--dry-run", action="store_true", help="only show the plan; with --json as a plan file")
    add_json_option(parser)
    add_client_options(parser)
    parser.set_defaults(run=client_command("partition move", "partition_moves.commands", "move"))


def _add_elect(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = actions.add_parser(
        "elect",
        help="make preferred replicas the leaders",
        description="Make the preferred replica (the first one) the leader where it is in sync. --unclean elects any"
        " live replica for partitions without a leader: records that it lacks are lost.",
    )
    parser.add_argument(
        "partitions", metavar="TOPIC[:N]", nargs="*", default=(), help="topics or partitions (default: all)"
    )
    parser.add_argument("--unclean", action="store_true", help="accept the loss of records")
    parser.add_argument("--yes", action="store_true", help="do not ask before an unclean election")
    add_json_option(parser)
    add_client_options(parser)
    parser.set_defaults(run=client_command("partition elect", "partition_commands", "elect"))


def _add_why(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = actions.add_parser(
        "why",
        help="explain why a partition is unhealthy",
        description="Explain why a partition has no leader, or too few in-sync replicas, and what to do.",
    )
    parser.add_argument("topic", metavar="TOPIC", help="a topic, or topic and partition: TOPIC-N or TOPIC:N")
    parser.add_argument("partition", metavar="N", type=number_option, nargs="?", help="number of the partition")
    add_json_option(parser)
    add_client_options(parser)
    parser.set_defaults(run=client_command("partition why", "partition_commands", "why"))


def _add_topic_option(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("--topic", metavar="TOPIC", action="append", dest="topics", help=text)


def _brokers_option(text: str) -> tuple[int, ...]:
    parts = text.split(",")
    if any(natural_number(part) is None for part in parts):
        raise argparse.ArgumentTypeError(f"expected broker ids such as 3 or 3,4, found {text!r}")
    return tuple(map(int, parts))


def _rate_option(text: str) -> int:
    """In bytes per second."""
    found = re.fullmatch(r"([0-9]{1,18}(?:\.[0-9]+)?) *([kKmMgG]?i?)[bB]?(?:/s)?", text)
    rate = int(float(found[1]) * UNITS.get(found[2].upper(), 0)) if found else 0
    if rate < 1:
        raise argparse.ArgumentTypeError(f"expected bytes per second such as 10MB, found {text!r}")
    return rate
