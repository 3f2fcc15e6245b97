"""Scenario: steps on one fresh peer, driven through a session that runs the client programs."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bench import probes, rdkafka
from bench.measures import Sizes
from bench.page_cache import PageCache
from bench.peers import Peer, Peers
from bench.processes import CpuMeter
from bench.rdkafka import Transfer

Figures = Mapping[str, float | Sequence[float]]
"""By measure: one value, or one for each trial."""

PARTITIONS = 4


@dataclass
class Session:
    """One peer in one round, and what has been done to it."""

    peer: Peer
    sizes: Sizes
    page_cache: PageCache
    start_seconds: float = 0.0
    most_records_per_second: float = 0.0
    _topics: int = 0

    def new_topic(self, partitions: int = PARTITIONS) -> str:
        self._topics += 1
        topic = f"bench-{self._topics}"
        probes.create_topic(self.peer.ports, topic, partitions)
        return topic

    def produce(
        self, records: int, value_bytes: int, options: dict[str, str], topic: str = ""
    ) -> tuple[Transfer, CpuMeter]:
        topic = topic or self.new_topic()
        self.write_back()
        with CpuMeter(self.peer.pids) as cpu:
            transfer = rdkafka.produce(self.peer.bootstrap, topic, records, value_bytes, options, self.peer.acks)
        return transfer, cpu

    def consume(self, topic: str, partitions: int, records: int) -> tuple[Transfer, CpuMeter]:
        self.write_back()
        with CpuMeter(self.peer.pids) as cpu:
            transfer = rdkafka.consume(self.peer.bootstrap, topic, partitions, records)
        return transfer, cpu

    def load(self, topic: str, requests: int, **options: int) -> tuple[Transfer, CpuMeter]:
        """Runs the load program with raw sockets."""
        command = [sys.executable, "-m", "bench.load", "--port", str(self.peer.ports[0]), "--topic", topic]
        command += ["--requests", str(requests)]
        for key, value in options.items():
            command += [f"--{key.replace('_', '-')}", str(value)]
        self.write_back()
        with CpuMeter(self.peer.pids) as cpu:
            done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=rdkafka.REPOSITORY)
        if done.returncode != 0:
            raise rdkafka.ClientFailed(done.stderr.strip().rpartition("\n")[2])
        outcome = json.loads(done.stdout)
        return Transfer(outcome["requests"], outcome["value_bytes"], outcome["seconds"]), cpu

    def write_back(self) -> None:
        """What earlier runs left must not be written, nor memory be found for it, at the expense of the next one."""
        os.sync()
        if self.sizes.fills_page_cache:
            self.page_cache.fill()


@dataclass(frozen=True)
class Step:
    title: str
    work: Callable[[Session], Figures]


def nothing() -> None:
    """Where nothing is left to be done."""


@dataclass(frozen=True)
class Scenario:
    """Steps on one fresh peer of each kind."""

    name: str
    steps: tuple[Step, ...]
    peers: Peers
    end: Callable[[], None] = nothing
    """Does away with what peers share, after the last round."""


def on_shared_peers(scenarios: Sequence[Scenario]) -> list[Scenario]:
    """One scenario for each kind of peer, with the steps of all; what several begin with is done once."""
    found: dict[int, Scenario] = {}
    for scenario in scenarios:
        earlier = found.get(id(scenario.peers), Scenario("", (), scenario.peers, scenario.end))
        name = f"{earlier.name}+{scenario.name}".removeprefix("+")
        steps = tuple(dict.fromkeys((*earlier.steps, *scenario.steps)))
        found[id(scenario.peers)] = Scenario(name, steps, scenario.peers, earlier.end)
    return list(found.values())
