"""Entry point of `python -m tidelog.simulation`, the same as `tidelog simulate`."""

import argparse
import sys

from tidelog.simulation.command import run
from tidelog.simulation.options import DESCRIPTION, add_options


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tidelog.simulation", description=DESCRIPTION)
    add_options(parser)
    return run(parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
