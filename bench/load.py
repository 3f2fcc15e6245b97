"""A load program with raw sockets: the same produce requests over any number of connections and partitions.

Its own process, so that its CPU time is not the broker's and a round can be repeated by hand:
`python -m bench.load --port 9092 --topic t --partitions 1 --connections 100 --window 100 --requests 100000`.
"""

import argparse
import json
import select
import socket
import struct
import time
from collections.abc import Iterator
from itertools import cycle
from typing import NamedTuple

from bench import wire

RECEIVE_BYTES = 65_536


class Load(NamedTuple):
    port: int
    topic: str
    partitions: int
    connections: int
    window: int
    requests: int
    records_per_request: int
    value_bytes: int


class Outcome(NamedTuple):
    seconds: float
    requests: int
    value_bytes: int


def frames(load: Load) -> list[bytes]:
    batch = wire.record_batch([b"x" * load.value_bytes] * load.records_per_request, int(time.time() * 1000))
    return [wire.produce_frame(load.topic, {partition: batch}) for partition in range(load.partitions)]


class Answers:
    """Counts the whole answers in what one connection received, and refuses a failed one."""

    def __init__(self) -> None:
        self._pending = b""

    def feed(self, data: bytes) -> int:
        received = self._pending + data
        position, count = 0, 0
        while len(received) - position >= 4:
            (length,) = struct.unpack_from(">i", received, position)
            if len(received) - position - 4 < length:
                break
            error = wire.produce_error(received[position + 4 : position + 4 + length])
            if error != wire.ERROR_NONE:
                raise wire.RequestRejected(f"a produce request failed with error {error}")
            position += 4 + length
            count += 1
        self._pending = received[position:]
        return count


def connect(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def run(load: Load) -> Outcome:
    """Sends the requests over the connections in turn, `window` of them unanswered at any time."""
    connections = {
        connection.fileno(): connection for connection in (connect(load.port) for _ in range(load.connections))
    }
    try:
        started = time.monotonic()
        _drive(load, connections)
        seconds = time.monotonic() - started
    finally:
        for connection in connections.values():
            connection.close()
    return Outcome(seconds, load.requests, load.requests * load.records_per_request * load.value_bytes)


def _drive(load: Load, connections: dict[int, socket.socket]) -> None:
    poller = select.epoll()
    responses = {descriptor: Answers() for descriptor in connections}
    for descriptor in connections:
        poller.register(descriptor, select.EPOLLIN)
    turns: Iterator[socket.socket] = cycle(connections.values())
    requests = cycle(frames(load))
    sent = answered = 0
    while answered < load.requests:
        while sent - answered < load.window and sent < load.requests:
            next(turns).sendall(next(requests))
            sent += 1
        for descriptor, _event in poller.poll():
            data = connections[descriptor].recv(RECEIVE_BYTES)
            if not data:
                raise ConnectionResetError("the broker closed a connection")
            answered += responses[descriptor].feed(data)
    poller.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--topic", required=True)
    for name, default in (("partitions", 1), ("connections", 1), ("window", 1), ("requests", 10_000)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--records-per-request", type=int, default=1)
    parser.add_argument("--value-bytes", type=int, default=1024)
    print(json.dumps(run(Load(**vars(parser.parse_args())))._asdict()))


if __name__ == "__main__":
    main()
