"""Warm Python: Python processes of a local session are forked from one that has imported what they need.

A streaming query starts a Python process for its source, a first query four. Each imports PySpark, Arrow and kernels
for half a second or more; on a busy machine for longer than the ten seconds after which Spark gives up.
"""

import logging
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import NamedTuple

logger = logging.getLogger(__name__)

VARIABLE = "TIDELOG_FORK_SERVER"
"""The socket of the fork server, for the launcher of Python processes (`python_launcher.py`)."""
BACKLOG = 128
DEFAULTS = {"PYTHONHASHSEED": "0"}
"""As in PySpark, which distributes rows to workers by hashes."""
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
"""Else numpy and Arrow start threads when they are imported. PySpark limits numpy to the cores of a task, too."""


def switch_fork_server(environment: MutableMapping[str, str], *, is_on: bool) -> None:
    """Names the server of this process in the environment of what it starts, or none."""
    environment.pop(VARIABLE, None)
    if is_on and sys.platform == "linux":
        try:
            environment[VARIABLE] = str(_running_server(environment).path)
        except OSError as error:
            logger.info("fork server not available, Python processes start slower reason=%s", error)


class ForkServerProcess(NamedTuple):
    """Ends with this process, which holds the other end of its standard input."""

    process: subprocess.Popen[bytes]
    path: Path


_server: ForkServerProcess | None = None


def _running_server(environment: Mapping[str, str]) -> ForkServerProcess:
    global _server
    if _server is None or _server.process.poll() is not None:
        _server = start_fork_server(environment)
    return _server


def start_fork_server(environment: Mapping[str, str]) -> ForkServerProcess:
    """Requests may come at once: they wait until the server has imported everything."""
    path = Path(tempfile.mkdtemp(prefix="tidelog-forks-"), "socket")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(BACKLOG)
        process = subprocess.Popen(
            [sys.executable, "-m", "tidelog.spark.accelerators.fork_server", str(path), str(listener.fileno())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**DEFAULTS, **environment, **ONE_THREAD},
            pass_fds=[listener.fileno()],
            start_new_session=True,
        )
    return ForkServerProcess(process, path)
