"""The command line: `tidelog COMMAND`. A mistake of the user ends in one clear sentence and exit code 1."""

import argparse
from collections.abc import Sequence

from tidelog import __version__
from tidelog.cli import (
    audit,
    broker,
    consume,
    down,
    group,
    kill,
    pipeline,
    produce,
    start,
    status,
    topic,
    transaction,
    up,
)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.command is None:
        parser.print_help()
        return 0
    exit_code: int = options.run(options)
    return exit_code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tidelog",
        description="A replicated event log that installs with pip and speaks Kafka.",
        epilog="`tidelog COMMAND --help` tells more about a command.",
    )
    parser.add_argument("--version", action="version", version=f"tidelog {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for command in (
        up,
        status,
        kill,
        start,
        down,
        topic,
        produce,
        consume,
        group,
        transaction,
        pipeline,
        audit,
        broker,
    ):
        command.add_command(commands)
    return parser
