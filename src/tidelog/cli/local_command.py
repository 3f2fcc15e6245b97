"""Common parts of the commands for the cluster on this machine: the --data option, errors and exit codes."""

import argparse
import os
import sys
from collections.abc import Callable

from tidelog.cli.command_error import CommandError
from tidelog.cli.owners import owner_of
from tidelog.runtime.cluster_choice import default_data_directory


def add_data_option(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--data",
        metavar="DIR",
        default=default_data_directory(),
        help="data directory of the cluster (default: %(default)s; set TIDELOG_DATA to change it)",
    )


def run_command(command: str, work: Callable[[argparse.Namespace], int], options: argparse.Namespace) -> int:
    """Runs a command. A CommandError, or a file of another user, becomes one sentence on standard error."""
    try:
        return work(options)
    except CommandError as rejected:
        print(f"tidelog {command}: {rejected}", file=sys.stderr)
        return 1
    except PermissionError as error:
        if error.filename is None:  # not about a file: a bug
            raise
        print(f"tidelog {command}: {_not_permitted(error.filename)}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        sys.stderr.close()
        return 1


def _not_permitted(path: str) -> str:
    parent = os.path.dirname(path)
    owner = owner_of(path if os.path.exists(path) else parent)
    return f"no permission to use {path}; it belongs to user {owner}: run the command as {owner}, or with sudo"
