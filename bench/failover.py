"""kill -9 of a leader while clients write: how long until a write is acknowledged again.

Two clients write at once. One speaks over raw sockets and asks for the new leader every few milliseconds, so that the
cluster alone decides; the other is librdkafka with its own defaults, as most programs have it, which looks for a leader
that it has lost at once and then, if it was not lucky, once a second.
A trial begins when all replicas are in sync, and ends when the killed broker is back among them.
"""

import contextlib
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from confluent_kafka import KafkaError, Message, Producer

from bench import probes, wire
from bench.clusters import Cluster

SEND_EVERY_S = 0.01
ASK_EVERY_S = 0.005
STEADY_S = 1.0
"""Of writing before a kill, so that a trial does not start in the aftermath of the one before."""

TRIAL_LIMIT_S = 90.0


@dataclass(frozen=True)
class Trial:
    seconds: float
    """From the kill to the acknowledgement."""
    after_election_seconds: float
    """From the moment at which a surviving broker names the new leader."""
    client_seconds: float
    """From the kill to the acknowledgement that librdkafka reports."""


@dataclass(frozen=True)
class Ack:
    sent: float
    acknowledged: float


def first_acknowledged(acks: Iterable[Ack], killed: float) -> float | None:
    """When a record that was sent after the kill was first acknowledged: no answer of the dead leader can be meant."""
    return min((ack.acknowledged for ack in acks if ack.sent > killed), default=None)


class SteadyProducer:
    """Sends a small record every few milliseconds and notes when it is acknowledged."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, "log_level": 0}
        self._producer = Producer(settings)
        self._topic = topic
        self._is_ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="steady-producer")
        self.acks: list[Ack] = []

    def _run(self) -> None:
        while not self._is_ending.is_set():
            sent = time.monotonic()
            report = DeliveryReport(self.acks, sent)
            self._producer.produce(self._topic, b"x" * 100, partition=0, on_delivery=report)
            while (left := sent + SEND_EVERY_S - time.monotonic()) > 0:
                self._producer.poll(left)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_ending.set()
        self._thread.join()
        self._producer.purge()


@dataclass(frozen=True)
class DeliveryReport:
    acks: list[Ack]
    sent: float

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acks.append(Ack(self.sent, time.monotonic()))


def run_trial(cluster: Cluster, topic: str) -> Trial:
    deadline = time.monotonic() + TRIAL_LIMIT_S
    probes.wait_until_in_sync(cluster.ports, topic, deadline)
    with SteadyProducer(cluster.bootstrap, topic) as producer:
        time.sleep(STEADY_S)
        leader = probes.ask_topic(cluster.ports[0], topic).partitions[0].leader
        survivors = [port for port in cluster.ports if port not in cluster.members[leader].ports]
        killed = time.monotonic()
        cluster.members[leader].kill()
        named, acknowledged = _write_to_successor(survivors, topic, leader, deadline)
        while (client_acknowledged := first_acknowledged(producer.acks, killed)) is None:
            probes.check(deadline, "librdkafka had no write acknowledged after the kill of a leader")
            time.sleep(ASK_EVERY_S)
    cluster.members[leader].launch()
    probes.wait_until_in_sync(cluster.ports, topic, time.monotonic() + TRIAL_LIMIT_S)
    return Trial(acknowledged - killed, acknowledged - named, client_acknowledged - killed)


def _write_to_successor(ports: list[int], topic: str, dead_leader: int, deadline: float) -> tuple[float, float]:
    """When one of the brokers first named another leader, and when a write was acknowledged."""
    named: float | None = None
    request = wire.produce_frame(topic, {0: wire.record_batch([b"x" * 100], int(time.time() * 1000))}, wire.ACKS_ALL)
    while True:
        for port in ports:
            with contextlib.suppress(OSError):
                state = probes.ask_topic(port, topic)
                successor = state.leader_port(0)
                if successor is None or state.partitions[0].leader == dead_leader:
                    continue
                named = named or time.monotonic()
                if probes.is_acknowledged(request, successor):
                    return named, time.monotonic()
        probes.check(deadline, "no write was acknowledged after the kill of a leader")
        time.sleep(ASK_EVERY_S)
