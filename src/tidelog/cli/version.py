"""`tidelog version`: the version, that of Python, and whether the kernels are compiled."""

import argparse
import json
import platform

from tidelog import __version__


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser("version", help="print the version", description="Print the version of Tidelog.")
    parser.add_argument("--json", action="store_true", help="print JSON, with the version of Python and more")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    if not options.json:
        print(f"tidelog {__version__}")
        return 0
    from tidelog.kernels import is_compiled

    found = {"tidelog": __version__, "python": platform.python_version(), "has_compiled_kernels": is_compiled}
    print(json.dumps(found))
    return 0
