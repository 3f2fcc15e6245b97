"""Command lines in messages, ready to paste."""

import shlex
import shutil
import sys

from tidelog.cli.local_cluster.data_directory import DataDirectory, default_data_directory
from tidelog.cli.local_cluster.plan import DEFAULT_PORT, Plan


def hint(data: DataDirectory, command: str) -> str:
    """A command line for this data directory."""
    flags = "" if data.root == DataDirectory(default_data_directory()).root else f" --data {shlex.quote(data.name)}"
    return f"{program()} {command}{flags}"


def program() -> str:
    """How the user invokes `tidelog` here."""
    invoked = sys.argv[0]
    if invoked.endswith("__main__.py"):
        return f"{shlex.quote(sys.executable)} -m tidelog"
    return "tidelog" if shutil.which("tidelog") == invoked else shlex.quote(invoked)


def bootstrap_flag(plan: Plan) -> str:
    return "" if plan.port == DEFAULT_PORT else f" --bootstrap {plan.bootstrap}"
