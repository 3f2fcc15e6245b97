"""Many connections with one unanswered request on each, as members of groups have them, or one with many."""

import select
import struct
import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Self

from bench import wire
from bench.wire import Connection

RECEIVE_BYTES = 65_536
RESPONSE_LIMIT_S = 120.0
NO_LIMIT = 10**9
UNACCEPTED = 25
"""Connections that a broker has time to accept while more come: it may lose those that exceed 50, for a second."""


class Exchange:
    def __init__(self, ports: Sequence[int]) -> None:
        """One connection for each port that is named."""
        self._connections = list(_connected(ports))
        self._poller = select.epoll()
        self._indexes = {connection.socket.fileno(): index for index, connection in enumerate(self._connections)}
        for descriptor in self._indexes:
            self._poller.register(descriptor, select.EPOLLIN)

    def ask_all(
        self, requests: Sequence[Sequence[bytes]], window: int = NO_LIMIT, rate_per_second: float = 0.0
    ) -> list[list[bytes]]:
        """The answers to the requests of each connection, with no more than `window` unanswered over all of them.

        With a rate, requests are sent at their times, the connections in turn, however long answers take.
        """
        run = _Run(self._connections, requests, window, rate_per_second)
        deadline = time.monotonic() + RESPONSE_LIMIT_S + run.planned_seconds
        while run.is_going_on:
            run.send()
            for descriptor, _event in self._poller.poll(run.seconds_to_next):
                run.receive(self._indexes[descriptor])
            if time.monotonic() > deadline:
                raise TimeoutError(f"{run.unanswered} requests were not answered in time")
        return run.responses

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._poller.close()
        for connection in self._connections:
            connection.__exit__()


def _connected(ports: Sequence[int]) -> Iterator[Connection]:
    for number, port in enumerate(ports, start=1):
        connection = Connection(port)
        if number % UNACCEPTED == 0:
            connection.ask(wire.frame(wire.API_VERSIONS, 0, b""))
        yield connection


def ask_pipelined(connection: Connection, requests: Sequence[bytes], window: int) -> list[bytes]:
    """All over one connection: so many go unanswered at first, and more follow when half of them are answered."""
    responses: list[bytes] = []
    sent = 0
    while len(responses) < len(requests):
        if sent - len(responses) <= window // 2:
            following = requests[sent : len(responses) + window]
            connection.send(b"".join(following))
            sent += len(following)
        responses.append(connection.receive())
    return responses


class _Run:
    def __init__(
        self,
        connections: Sequence[Connection],
        requests: Sequence[Sequence[bytes]],
        window: int,
        rate_per_second: float,
    ) -> None:
        self._connections = connections
        self._requests = requests
        self._window = window
        self._rate_per_second = rate_per_second
        self._started = time.monotonic()
        self._pending = [bytearray() for _ in connections]
        self._ready = deque(index for index, waiting in enumerate(requests) if waiting)
        self._sent_by = [0] * len(requests)
        self._sent = 0
        self._left = sum(map(len, requests))
        self.unanswered = 0
        self.responses: list[list[bytes]] = [[] for _ in requests]

    @property
    def planned_seconds(self) -> float:
        return self._left / self._rate_per_second if self._rate_per_second else 0.0

    @property
    def is_going_on(self) -> bool:
        return self._left > 0

    @property
    def seconds_to_next(self) -> float:
        if not self._rate_per_second or not self._ready:
            return 1.0
        return max(0.0, self._started + self._sent / self._rate_per_second - time.monotonic())

    def send(self) -> None:
        while self._ready and self.unanswered < self._window:
            if self._rate_per_second and self.seconds_to_next > 0:
                return
            index = self._ready.popleft()
            self._connections[index].socket.sendall(self._requests[index][self._sent_by[index]])
            self._sent_by[index] += 1
            self._sent += 1
            self.unanswered += 1

    def receive(self, index: int) -> None:
        data = self._connections[index].socket.recv(RECEIVE_BYTES)
        if not data:
            raise ConnectionResetError("the broker closed a connection")
        pending = self._pending[index]
        pending += data
        if len(pending) < 4:
            return
        (length,) = struct.unpack_from(">i", pending)
        if len(pending) < 4 + length:
            return
        self.responses[index].append(bytes(pending[4:]))
        pending.clear()
        self.unanswered -= 1
        self._left -= 1
        if self._sent_by[index] < len(self._requests[index]):
            self._ready.append(index)
