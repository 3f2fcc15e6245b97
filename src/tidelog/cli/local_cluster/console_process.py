"""Process of the console next to the cluster of `tidelog up`."""

import importlib.util
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager

from tidelog.cli.console import DEFAULT_PORT, TOKEN_VARIABLE
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
    listener = _listen()
    port = listener.getsockname()[1]
    arguments = ["console", "--bootstrap", plan.bootstrap, "--data", str(data.root), "--manage"]
    arguments += ["--listener", str(listener.fileno())]
    environment, query = os.environ.copy(), ""
    if data.command_config is not None:
        arguments += ["--command-config", data.command_config]
        # Others on this machine may reach the page, but must not act as the administrator. `ps` shows arguments to all.
        environment[TOKEN_VARIABLE] = secrets.token_urlsafe(24)
        query = f"?token={environment[TOKEN_VARIABLE]}"
    with listener, (data.root / "console.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tidelog", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            pass_fds=[listener.fileno()],
            start_new_session=True,  # Ctrl-C is for the cluster, which ends the console last
        )
    try:
        yield f"console: http://{HOST}:{port}/{query}"
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _listen() -> socket.socket:
    """The usual port, or any other if it is taken. The console inherits it, so that nobody takes it meanwhile."""
    try:
        return socket.create_server((HOST, DEFAULT_PORT))
    except OSError:
        return socket.create_server((HOST, 0))
