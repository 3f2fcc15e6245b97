"""Command line `tidelog COMMAND`. A user error ends with one sentence on standard error and exit code 1."""

import argparse
import errno
import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

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


INTERRUPTED = 130
"""Exit code of shells after Ctrl-C."""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def main(arguments: Sequence[str] | None = None) -> int:
    try:
        exit_code = _run(arguments)
        if sys.stdout is not None:
            sys.stdout.flush()
        return exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _discard_output()
        return 0
    except OSError as error:
        if error.errno not in FULL:
            raise
        _discard_output()
        print(f"tidelog: cannot write standard output or a file: {error.strerror}", file=sys.stderr)
        return 1


def _discard_output() -> None:
    from tidelog.cli.client_command import discard_output

    discard_output()


def _run(arguments: Sequence[str] | None) -> int:
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
    if sys.stdout is None and options.command != "broker":  # closed by the parent process
        parser.exit(1, "tidelog: standard output is closed; redirect it to /dev/null if you do not need it\n")
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
    """A mistake is one sentence with the name of the subcommand. A screen of usage would hide it."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see `{self.prog} --help`\n")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        from tidelog.config.nearest import nearest_name

        found = nearest_name(str(value), map(str, action.choices))
        is_command = isinstance(action, argparse._SubParsersAction)
        others = "" if is_command else f"; choose from {', '.join(map(str, action.choices))}"
        meant = f"; did you mean {found!r}?" if found else others
        if is_command:
            raise argparse.ArgumentError(None, f"there is no command {value!r}{meant}")
        raise argparse.ArgumentError(action, f"{value!r} is not possible{meant}")

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
