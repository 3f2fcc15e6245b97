"""Command lines in messages, ready to paste."""

import shlex
import shutil
import sys

from tidelog.cli.local_cluster.data_directory import DataDirectory
from tidelog.cli.local_cluster.plan import Plan
from tidelog.runtime.cluster_choice import default_data_directory


def _is_default(data: DataDirectory) -> bool:
    return data.root == DataDirectory(default_data_directory()).root


def hint(data: DataDirectory, command: str) -> str:
    """A command line for this data directory."""
    flags = "" if _is_default(data) else f" --data {shlex.quote(data.name)}"
    return f"{program()} {command}{flags}"


def program() -> str:
    """How the user invokes `tidelog` here."""
    invoked = sys.argv[0]
    if invoked.endswith("__main__.py"):
        return f"{shlex.quote(sys.executable)} -m tidelog"
    return "tidelog" if shutil.which("tidelog") == invoked else shlex.quote(invoked)


def bootstrap_flag(data: DataDirectory, plan: Plan) -> str:
    """Commands find only the cluster of the default data directory by themselves."""
    return "" if _is_default(data) else f" --bootstrap {plan.bootstrap}"
