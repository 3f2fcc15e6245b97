"""What the commands about a cluster on this machine have in common."""

import argparse
import sys
from collections.abc import Callable

from tidelog.cli.command_error import Refused
from tidelog.cli.local_cluster.data_directory import default_data_directory


def add_data_option(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--data",
        metavar="DIR",
        default=default_data_directory(),
        help="where the cluster lives (%(default)s; the variable TIDELOG_DATA changes that)",
    )


def carry_out(command: str, work: Callable[[argparse.Namespace], int], options: argparse.Namespace) -> int:
    """A refusal ends in one sentence and exit code 1."""
    try:
        return work(options)
    except Refused as refused:
        print(f"tidelog {command}: {refused}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        sys.stderr.close()
        return 1
