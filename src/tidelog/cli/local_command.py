"""Common parts of the commands for the cluster on this machine: the --data option, errors and exit codes."""

import argparse
import sys
from collections.abc import Callable

from tidelog.cli.command_error import CommandError
from tidelog.cli.local_cluster.data_directory import default_data_directory


def add_data_option(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--data",
        metavar="DIR",
        default=default_data_directory(),
        help="data directory of the cluster (%(default)s; set TIDELOG_DATA to change the default)",
    )


def run_command(command: str, work: Callable[[argparse.Namespace], int], options: argparse.Namespace) -> int:
    """Runs a command. A CommandError becomes one sentence on standard error and exit code 1."""
    try:
        return work(options)
    except CommandError as rejected:
        print(f"tidelog {command}: {rejected}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        sys.stderr.close()
        return 1
