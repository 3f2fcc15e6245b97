"""Loads for the hot paths of a broker (produce, replicate, fetch), each a fixed number of requests over raw sockets.

The number of requests is fixed, so that what the brokers did for them can be counted and compared between two commits
(`bench/before_and_after.py`, `bench/counts.py`) even while other work disturbs the machine.
"""

import contextlib
import select
import socket
import struct
import time
from collections.abc import Sequence
from itertools import cycle
from typing import NamedTuple

from bench import probes, wire
from bench.load import Answers, connect

RETENTION = {"retention.bytes": "50000000"}
RECEIVE_BYTES = 1_048_576
SYNC_LIMIT_S = 60.0


class HotPath(NamedTuple):
    """Requests of one kind. With three brokers every topic has three replicas, and produces wait for all in sync."""

    name: str
    unit: str
    requests: int
    records_per_request: int
    value_bytes: int
    window: int
    """Unanswered requests: on each connection if there are several."""
    partitions: int = 4
    connections: int = 1
    """To each broker that leads a partition."""
    brokers: int = 1
    is_consumed: bool = False
    """Fetches what was produced before, instead of producing."""

    @property
    def value_gigabytes(self) -> float:
        return self.requests * self.records_per_request * self.value_bytes / 1e9

    def scaled(self, amount: float) -> float:
        """An amount (seconds, calls) of all requests, per unit of work."""
        if self.unit == "s/GB":
            return amount / self.value_gigabytes
        records = self.requests * (self.records_per_request if self.unit == "us/record" else 1)
        return amount / records * 1e6

    def batch(self) -> bytes:
        return wire.record_batch([b"x" * self.value_bytes] * self.records_per_request, int(time.time() * 1000))


HOT_PATHS = (
    HotPath("1 KB, batches of 950", "s/GB", 60, 950, 1024, 5),
    HotPath("100 B, batches of 8,000", "us/record", 60, 8_000, 100, 5),
    HotPath("100 B, batches of 100", "us/record", 4_000, 100, 100, 5),
    HotPath("1 KB, one record per request, pipelined", "us/request", 15_000, 1, 1024, 64),
    HotPath("1 KB, one record per request, one in flight", "us/request", 5_000, 1, 1024, 1),
    HotPath("1 KB, one record per request, 100 connections", "us/request", 10_000, 1, 1024, 1, connections=100),
    HotPath("consume, 1 KB, batches of 60", "s/GB", 2_000, 60, 1024, 1, partitions=1, is_consumed=True),
    HotPath("three brokers, acks=all, batches of 64", "s/GB", 1_500, 64, 1024, 5, partitions=12, brokers=3),
    HotPath("three brokers, acks=all, one record per request", "us/request", 4_000, 1, 1024, 64, 1, brokers=3),
    HotPath("three brokers, acks=all, one in flight", "us/request", 1_000, 1, 1024, 1, 1, brokers=3),
)


def prepare(path: HotPath, ports: Sequence[int], topic: str) -> None:
    """Create the topic and, for a consumer, what it reads."""
    probes.create_topic(ports, topic, path.partitions, {} if path.is_consumed else RETENTION)
    probes.wait_until_in_sync(ports, topic, time.monotonic() + SYNC_LIMIT_S)
    if path.is_consumed:
        produce(path._replace(window=5, is_consumed=False), ports, topic)


def run(path: HotPath, ports: Sequence[int], topic: str) -> None:
    (consume if path.is_consumed else produce)(path, ports, topic)


def produce(path: HotPath, ports: Sequence[int], topic: str) -> None:
    """Send the requests, each to the leader of its partition, over the connections of that broker in turn."""
    state = probes.ask_topic(ports[0], topic)
    batch, acks = path.batch(), wire.ACKS_ALL if path.brokers > 1 else wire.ACKS_LEADER
    frames: dict[int, list[bytes]] = {}
    for partition in range(path.partitions):
        port = state.leader_port(partition)
        assert port is not None, "the partition has a leader"
        frames.setdefault(port, []).append(wire.produce_frame(topic, {partition: batch}, acks))
    with contextlib.ExitStack() as stack:
        connections = [
            _Producing(
                stack.enter_context(contextlib.closing(connect(port))), frames[port][index % len(frames[port]) :]
            )
            for port in frames
            for index in range(path.connections)
        ]
        _drive(connections, path.requests, path.window)


class _Producing:
    def __init__(self, connection: socket.socket, frames: list[bytes]) -> None:
        self.socket = connection
        self.answers = Answers()
        self._frames = cycle(frames)
        self.unanswered = 0

    def send(self) -> None:
        self.socket.sendall(next(self._frames))
        self.unanswered += 1


def _drive(connections: Sequence[_Producing], requests: int, window: int) -> None:
    poller = select.epoll()
    by_descriptor = {each.socket.fileno(): each for each in connections}
    for descriptor in by_descriptor:
        poller.register(descriptor, select.EPOLLIN)
    sent = answered = 0
    ready: list[_Producing] = list(connections)
    while answered < requests:
        for each in ready:
            while each.unanswered < window and sent < requests:
                each.send()
                sent += 1
        ready = []
        for descriptor, _event in poller.poll():
            each = by_descriptor[descriptor]
            data = each.socket.recv(RECEIVE_BYTES)
            if not data:
                raise ConnectionResetError("the broker closed a connection")
            count = each.answers.feed(data)
            each.unanswered -= count
            answered += count
            ready.append(each)
    poller.close()


def consume(path: HotPath, ports: Sequence[int], topic: str) -> None:
    """Fetch as many records as were produced, from the start, 1 MB at a time."""
    offset, end = 0, path.requests * path.records_per_request
    with wire.Connection(ports[0]) as connection:
        while offset < end:
            offset = end_of_fetched(connection.ask(wire.fetch_frame(topic, 0, offset)), topic)


def end_of_fetched(response: bytes, topic: str) -> int:
    """The offset after the last whole batch of a fetch response with one partition."""
    position = 4 + 4 + 4 + 2 + len(topic) + 4
    error, aborted = struct.unpack_from(">4xh16xi", response, position)
    assert error == wire.ERROR_NONE, f"fetch failed with error {error}"
    position += 4 + 2 + 16 + 4 + 16 * max(aborted, 0) + 4
    end = -1
    while len(response) - position >= 12:
        base, length, last_delta = struct.unpack_from(">qi11xi", response, position)
        if position + 12 + length > len(response):
            break
        end = base + last_delta + 1
        position += 12 + length
    assert end >= 0, "a fetch returns at least one batch"
    return end
