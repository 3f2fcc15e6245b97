"""One attack on three real brokers, and what it did to everybody else."""

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

from tests.certificates import Authority
from tests.clients.broker import BROKER_IDS, TidelogCluster
from tests.siege.attacks import Target
from tests.siege.bystanders import Bystanders, Place
from tests.siege.measured_broker import REPORT_VARIABLE
from tests.siege.wire import Asking
from tidelog.cli.local_cluster.plan import default_settings
from tidelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tidelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from tidelog.protocol.records import Record, build_batch
from tools.apache_kafka import free_port

SESSION_MS = 6000
MAX_P99_S = 0.25
MAX_WAIT_S = 1.0
MAX_GROWTH_BYTES = 200_000_000
MAX_KEPT_BYTES = 60_000_000
"""What may still be there afterwards: interpreters do not give back every page."""
REST_S = 12.0
SAMPLE_S = 0.05
NORMAL, BESIEGED = "normal", "besieged"
PARTITIONS = 6
BESIEGED_BYTES = 20_000_000
SIGNS_OF_LOSS = (
    "session of coordination store ended",
    "session may have expired: leadership suspended",
    "ended session of dead process",
)


class Outcome(NamedTuple):
    name: str
    p50_s: float
    p99_s: float
    longest_s: float
    leaders_moved: int
    sessions_lost: int
    before_bytes: int
    peak_bytes: int
    after_bytes: int
    failures: list[str]
    longest: str = ""
    step_ms: int = 0
    """Processor time of the longest step of a broker's event loop; 0 if none was long."""
    step: str = ""
    """Where it was."""

    @property
    def problems(self) -> list[str]:
        found = [*self.failures]
        if self.p99_s > MAX_P99_S:
            found.append(f"p99 of {self.p99_s * 1000:.0f} ms")
        if self.longest_s > MAX_WAIT_S:
            found.append(f"waited {self.longest_s:.1f} s: {self.longest}")
        if self.leaders_moved:
            found.append(f"{self.leaders_moved} leaders moved")
        if self.sessions_lost:
            found.append(f"{self.sessions_lost} sessions lost")
        if self.peak_bytes - self.before_bytes > MAX_GROWTH_BYTES:
            found.append(f"grew by {(self.peak_bytes - self.before_bytes) / 1e6:.0f} MB")
        if self.after_bytes - self.before_bytes > MAX_KEPT_BYTES:
            found.append(f"kept {(self.after_bytes - self.before_bytes) / 1e6:.0f} MB")
        return found


class BesiegedCluster:
    """Three brokers as `tidelog up` runs them, with a partition of a normal topic on each."""

    def __init__(self, directory: Path) -> None:
        self.metrics = {broker_id: f"127.0.0.1:{free_port()}" for broker_id in BROKER_IDS}
        self.tls = {broker_id: f"127.0.0.1:{free_port()}" for broker_id in BROKER_IDS}
        directory.mkdir(parents=True, exist_ok=True)
        certificate = Authority(directory).sign("broker")
        self._directory = directory
        self._cluster = TidelogCluster(
            directory,
            default_settings(len(BROKER_IDS))
            | {"broker.session.timeout.ms": str(SESSION_MS), "log.segment.bytes": "104857600"},
        )
        for broker_id, process in self._cluster.brokers.items():
            process._settings["metrics.listener"] = self.metrics[broker_id]
            process._settings["listeners"] += f",SSL://{self.tls[broker_id]}"
            for name, value in certificate.ssl_settings.items():
                process._settings[name.replace("_", ".")] = str(value)
            process.module = "tests.siege.measured_broker"
            process.environment = {REPORT_VARIABLE: str(self._steps_file(broker_id))}

    def start(self) -> None:
        self._cluster.start()
        with Asking(self.addresses[0]) as asking:
            topics = [CreatableTopic(name, PARTITIONS, 3, [], []) for name in (NORMAL, BESIEGED)]
            asking.ask(CreateTopicsRequest(topics=topics, timeout_ms=30_000), 5, CreateTopicsResponse)
        time.sleep(1)
        self._fill()

    def close(self) -> None:
        self._cluster.kill()

    @property
    def addresses(self) -> list[str]:
        return [process.bootstrap for process in self._cluster.brokers.values()]

    def _metadata(self) -> MetadataResponse:
        with Asking(self.addresses[-1], 60) as asking:
            return asking.ask(MetadataRequest(topics=None), 9, MetadataResponse)

    def leaders(self) -> dict[tuple[str, int], tuple[int, int]]:
        return {
            (topic.name or "", each.partition_index): (each.leader_id, each.leader_epoch)
            for topic in self._metadata().topics
            for each in topic.partitions
        }

    def places(self, topic: str) -> dict[int, Place]:
        """One partition of each broker."""
        addresses = dict(zip(BROKER_IDS, self.addresses, strict=True))
        found = {leader: (name, index) for (name, index), (leader, _) in self.leaders().items() if name == topic}
        return {leader: Place(name, index, addresses[leader]) for leader, (name, index) in found.items()}

    def _fill(self) -> None:
        """Something to fetch, on each broker."""
        for place in self.places(BESIEGED).values():
            with Asking(place.address) as asking:
                for _ in range(BESIEGED_BYTES // 500_000):
                    batch = build_batch([Record(0, int(time.time() * 1000), None, b"x" * 500_000)])
                    data = PartitionProduceData(index=place.partition, records=memoryview(batch))
                    topics = [TopicProduceData(name=place.topic, partition_data=[data])]
                    asking.ask(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topics), 9, ProduceResponse)

    def resident_bytes(self) -> int:
        """Of the largest broker."""
        pages = (Path(f"/proc/{each.pid}/statm").read_text().split()[1] for each in self._cluster.brokers.values())
        return max(map(int, pages)) * 4096

    def losses(self) -> int:
        return sum(
            any(sign in line for sign in SIGNS_OF_LOSS)
            for process in self._cluster.brokers.values()
            for line in process.output().splitlines()
        )

    def _steps_file(self, broker_id: int) -> Path:
        return self._directory / f"steps-{broker_id}"

    def forget_steps(self) -> None:
        for broker_id in BROKER_IDS:
            self._steps_file(broker_id).write_text("")

    def longest_step(self) -> tuple[int, str]:
        """Since they were forgotten: milliseconds of processor time, and where."""
        lines = (line for broker_id in BROKER_IDS for line in self._steps_file(broker_id).read_text().splitlines())
        steps = [(int(spent_ms), where) for spent_ms, _, where in (line.partition(" ") for line in lines)]
        return max(steps, default=(0, ""))

    def errors(self) -> list[str]:
        return [
            line
            for process in self._cluster.brokers.values()
            for line in process.output().splitlines()
            if " ERROR " in line or "Traceback" in line
        ]


class _Memory:
    def __init__(self, cluster: BesiegedCluster) -> None:
        self._cluster = cluster
        self._is_over = threading.Event()
        self.peak_bytes = cluster.resident_bytes()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._is_over.wait(SAMPLE_S):
            self.peak_bytes = max(self.peak_bytes, self._cluster.resident_bytes())

    def __enter__(self) -> "_Memory":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()


def carry_out(
    name: str, cluster: BesiegedCluster, seconds: float, scale: float = 1.0, rest_s: float = REST_S
) -> Outcome:
    """The attack goes to the first broker that leads something of the besieged topic."""
    victim_id, victim = min(cluster.places(BESIEGED).items())
    target = Target(
        victim.address,
        cluster.metrics[victim_id],
        victim.topic,
        victim.partition,
        seconds,
        cluster.tls[victim_id],
        scale,
    )
    leaders, losses, errors = cluster.leaders(), cluster.losses(), len(cluster.errors())
    before_bytes = cluster.resident_bytes()
    cluster.forget_steps()
    with _Memory(cluster) as memory, Bystanders(list(cluster.places(NORMAL).values()), cluster.metrics) as bystanders:
        _attack(name, target)
        time.sleep(min(rest_s, 2.0))
    after_bytes = _settled(cluster, before_bytes, rest_s)
    moved = [key for key, leader in cluster.leaders().items() if key in leaders and leaders[key] != leader]
    step_ms, step = cluster.longest_step()
    waits = bystanders.produce
    waits.seconds += bystanders.consume.seconds
    failures = bystanders.produce.failures + bystanders.consume.failures + bystanders.scrape.failures
    return Outcome(
        name,
        waits.quantile(0.5),
        waits.quantile(0.99),
        max(waits.seconds, default=float("inf")),
        len(moved),
        cluster.losses() - losses,
        before_bytes,
        memory.peak_bytes,
        after_bytes,
        failures[:3] + cluster.errors()[errors:][:3],
        max(bystanders.produce.longest, bystanders.consume.longest)[1],
        step_ms,
        step,
    )


def _attack(name: str, target: Target) -> None:
    command = [sys.executable, "-m", "tests.siege.catalogue", name, json.dumps(target._asdict())]
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    try:
        _, errors = process.communicate(timeout=target.seconds * 3 + 120)
    except BaseException:
        process.kill()
        process.communicate()
        raise
    if process.returncode:
        raise AssertionError(f"the attack itself failed: {errors.decode()}")


def _settled(cluster: BesiegedCluster, before_bytes: int, rest_s: float) -> int:
    deadline_s = time.monotonic() + rest_s
    while cluster.resident_bytes() - before_bytes > MAX_KEPT_BYTES and time.monotonic() < deadline_s:
        time.sleep(SAMPLE_S)
    return cluster.resident_bytes()
