"""Command line `tidelog COMMAND`. A user error ends with one sentence on standard error and exit code 1."""

import argparse
import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from tidelog import __version__

COMMANDS = (
    "up",
    "status",
    "kill",
    "start",
    "down",
    "topic",
    "partition",
    "config",
    "user",
    "produce",
    "consume",
    "group",
    "transaction",
    "acl",
    "quota",
    "pipeline",
    "console",
    "audit",
    "log",
    "perf",
    "doctor",
    "broker",
    "profile",
    "completion",
    "simulate",
    "version",
)
"""Each is a module of this package."""


def main(arguments: Sequence[str] | None = None) -> int:
    if arguments is None:
        arguments = sys.argv[1:]
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    parser = _parser(arguments)
    arguments = [_text(argument, parser) for argument in arguments]
    options = parser.parse_args(arguments)
    if options.command is None:
        parser.print_help()
        return 0
    exit_code: int = options.run(options)
    return exit_code


def _text(argument: str, parser: argparse.ArgumentParser) -> str:
    """Rejects arguments that are not valid in the terminal's encoding: Python decodes them to surrogates."""
    data = os.fsencode(argument)
    try:
        return data.decode()
    except UnicodeDecodeError:
        parser.error(f"argument is not valid UTF-8: {data!r}")


class _Parser(argparse.ArgumentParser):
    """Reports unknown arguments with the usage of the subcommand, not of `tidelog`."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown


def full_parser() -> argparse.ArgumentParser:
    """With all commands."""
    return _parser(())


def _parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    parser = _Parser(
        prog="tidelog",
        description="A replicated event log that installs with pip and speaks Kafka.",
        epilog="`tidelog COMMAND --help` describes a command.",
    )
    parser.add_argument("--version", action="version", version=f"tidelog {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for name in _requested_commands(arguments):
        import_module(f"tidelog.cli.{name}").add_command(commands)
    return parser


def _requested_commands(arguments: Sequence[str]) -> Sequence[str]:
    """Only the requested command: a broker should not wait for the imports of other commands."""
    return arguments[:1] if arguments and arguments[0] in COMMANDS else COMMANDS
