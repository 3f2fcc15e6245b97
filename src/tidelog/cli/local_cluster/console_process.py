"""Process of the console next to the cluster of `tidelog up`."""

import importlib.util
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager

from tidelog.cli.console import DEFAULT_PORT
from tidelog.cli.local_cluster.data_directory import DataDirectory
from tidelog.cli.local_cluster.plan import HOST, Plan

STOP_S = 10.0
NEEDED = ("starlette", "uvicorn")


@contextmanager
def running_console(data: DataDirectory, plan: Plan) -> Generator[str]:
    """Yields the line for the user: the address of the console, or why there is none."""
    if not all(importlib.util.find_spec(name) for name in NEEDED):
        yield "console: not installed; `pip install 'tidelog[console]'` adds it"
        return
    port = _free_port()
    arguments = ["console", "--bootstrap", plan.bootstrap, "--data", str(data.root), "--manage", "--port", str(port)]
    if data.command_config is not None:
        arguments += ["--command-config", data.command_config]
    with (data.root / "console.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tidelog", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C is for the cluster, which ends the console last
        )
    try:
        yield f"console: http://{HOST}:{port}/"
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _free_port() -> int:
    for port in (DEFAULT_PORT, 0):
        try:
            with socket.create_server((HOST, port)) as listener:
                found: int = listener.getsockname()[1]
                return found
        except OSError:
            continue
    raise AssertionError("port 0 is always free")
