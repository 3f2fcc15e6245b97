"""Three brokers of `tidelog up` for the time of the tour."""

import signal
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from demo.commands import CommandFailed, Commands
from demo.time_limits import time_limit_s
from tidelog.cli.local_cluster.data_directory import DataDirectory
from tidelog.runtime.process_identity import send

BROKERS = 3
IN_SYNC_LIMIT_S = 60.0
LEADER_LIMIT_S = 30.0
LOOK_S = 0.2


class Leadership(NamedTuple):
    topic: str
    partition: int
    leader: int | None
    high_watermark: int

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"


def bootstrap_of(port: int) -> str:
    """All of them: any one may be away."""
    return ",".join(f"127.0.0.1:{port + number}" for number in range(BROKERS))


class Cluster:
    def __init__(self, data: Path, commands: Commands, port: int) -> None:
        self.data = data
        self.port = port
        self._commands = commands

    @property
    def bootstrap(self) -> str:
        return bootstrap_of(self.port)

    def busiest(self, topic: str) -> Leadership:
        return max(self._leaderships(topic), key=lambda found: found.high_watermark)

    def wait_for_new_leader(self, of: Leadership) -> int | None:
        """None if nobody came."""
        deadline_s = time.monotonic() + time_limit_s(LEADER_LIMIT_S)
        while time.monotonic() < deadline_s:
            found = next(found for found in self._leaderships(of.topic) if found.partition == of.partition)
            if found.leader not in (None, of.leader):
                return found.leader
            time.sleep(LOOK_S)
        return None

    def wait_until_in_sync(self) -> float:
        """How long it took."""
        began_s = time.monotonic()
        while time.monotonic() < began_s + time_limit_s(IN_SYNC_LIMIT_S):
            partitions = self._status()["partitions"]
            if all(set(found["isr"]) == set(found["replicas"]) for found in partitions):
                return time.monotonic() - began_s
            time.sleep(LOOK_S)
        raise CommandFailed(f"not all replicas were in sync within {IN_SYNC_LIMIT_S:.0f} s; `tidelog status` says why")

    def _leaderships(self, topic: str) -> Iterator[Leadership]:
        for found in self._status()["partitions"]:
            if found["topic"] == topic:
                yield Leadership(topic, found["partition"], found["leader"], found["high_watermark"] or 0)

    def _status(self) -> Any:
        return self._commands.ask("status", good_codes=(0, 1, 2))  # the code is its health


@contextmanager
def ended_at_last(data: Path) -> Generator[None]:
    """Brokers that still run at the end are killed: only a tour that was broken off leaves any."""
    try:
        yield
    finally:
        directory = DataDirectory(str(data))
        plan = directory.stored_plan()
        if plan is not None:
            for process in directory.running_brokers(plan).values():
                send(process.identity, signal.SIGKILL)
