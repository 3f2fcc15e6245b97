"""`tidelog version`: the same as `tidelog --version`."""

import argparse

from tidelog import __version__


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser("version", help="print the version", description="Print the version of Tidelog.")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    print(f"tidelog {__version__}")
    return 0
