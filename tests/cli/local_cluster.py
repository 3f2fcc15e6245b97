"""A cluster of `tidelog up` in a directory of its own, on ports that nobody uses."""

import json
import os
import signal
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.cli.process import tidelog
from tools.ports import free_ports


class LocalCluster:
    def __init__(self, data: Path, brokers: int) -> None:
        self.data = data
        self.brokers = brokers
        self.port = free_ports(brokers)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{self.port + number}" for number in range(self.brokers))

    def up(self, *flags: str) -> str:
        ended = tidelog(*self.up_arguments("--detach", *flags))
        assert ended.returncode == 0, ended
        assert "Traceback" not in ended.stderr
        return ended.stdout

    def up_arguments(self, *flags: str) -> list[str]:
        return ["up", "--data", str(self.data), "--brokers", str(self.brokers), "--port", str(self.port), *flags]

    def run(self, command: str, *arguments: str) -> str:
        ended = tidelog(command, *arguments, "--data", str(self.data))
        assert ended.returncode == 0, ended
        return ended.stdout

    def rejection(self, command: str, *arguments: str) -> str:
        """The one sentence of a command that must not do anything."""
        ended = tidelog(command, *arguments, "--data", str(self.data))
        assert (ended.returncode, ended.stdout) == (1, ""), ended
        (line,) = ended.stderr.splitlines()
        assert line.startswith(f"tidelog {command}: ")
        return line.removeprefix(f"tidelog {command}: ")

    def status(self) -> dict[str, Any]:
        ended = tidelog("status", "--json", "--data", str(self.data))
        assert ended.returncode in (0, 1, 2), ended
        found: dict[str, Any] = json.loads(ended.stdout)
        return found

    def report(self) -> str:
        """What `tidelog status` prints; its exit code is the health."""
        ended = tidelog("status", "--data", str(self.data))
        assert ended.returncode in (0, 1, 2), ended
        return ended.stdout

    def states(self) -> dict[int, str]:
        return {broker["id"]: broker["state"] for broker in self.status()["brokers"]}

    def pid(self, broker_id: int) -> int:
        return int(json.loads((self.data / f"broker-{broker_id}.json").read_text())["pid"])

    def log(self, broker_id: int) -> str:
        return (self.data / f"broker-{broker_id}.log").read_text()

    def end(self) -> None:
        """Leaves no process behind, whatever the test did."""
        for file in [self.data / ".supervisor.lock", *self.data.glob("broker-*.json")]:
            try:
                found = json.loads(file.read_text())
            except (FileNotFoundError, ValueError):
                continue
            _kill_if_ours(int(found["pid"]), str(found["started"]))


def _kill_if_ours(pid: int, started: str) -> None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return
    if started.endswith(f" {fields[19]}"):
        os.kill(pid, signal.SIGKILL)


@contextmanager
def local_cluster(data: Path, brokers: int) -> Generator[LocalCluster]:
    cluster = LocalCluster(data, brokers)
    try:
        yield cluster
    finally:
        cluster.end()
