"""Small transactions over raw sockets: one record for each of some partitions, then a commit, again and again.

In version 2 (KIP-890) a leader adds its partitions by itself and every transaction has an epoch of its own; in version
1 the producer names the partitions first. What cannot be answered yet is asked again, as clients do.
"""

import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Self

from bench import probes, wire
from bench.group_load import find_coordinator
from bench.group_wire import TRANSACTION
from bench.wire import (
    CORRELATION_BYTES,
    ERROR_NONE,
    Connection,
    Reader,
    RequestRejected,
    compact_array,
    compact_bytes,
    compact_string,
    flexible_frame,
    frame,
    string,
)

INIT_PRODUCER_ID, ADD_PARTITIONS_TO_TXN, END_TXN = 22, 24, 26
INIT_PRODUCER_ID_VERSION, ADD_PARTITIONS_TO_TXN_VERSION = 1, 1
PRODUCE_VERSION_2, END_TXN_VERSIONS = 12, {1: 1, 2: 5}
"""By transaction version."""

TIMEOUT_MS = 60_000
COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR = 14, 15, 16
NOT_ENOUGH_REPLICAS, CONCURRENT_TRANSACTIONS = 19, 51
PASSING = {
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    NOT_COORDINATOR,
    NOT_ENOUGH_REPLICAS,
    CONCURRENT_TRANSACTIONS,
}
"""What goes by. That replicas are lacking is also said while a coordinator cannot be asked."""
RETRY_S = 0.002
LIMIT_S = 60.0


class Producer:
    def __init__(self, ports: Sequence[int], topic: str, partitions: int, transactional_id: str, version: int) -> None:
        self._stack = ExitStack()
        self._id = transactional_id
        self._topic = topic
        self._partitions = range(partitions)
        self._version = version
        self._coordinator = self._connect(find_coordinator(ports, transactional_id, TRANSACTION))
        self._leaders = self._connect_to_leaders(ports)
        self._batch = wire.record_batch([b"x" * 100], int(time.time() * 1000))
        self._sequence = 0
        self._producer_id, self._epoch = self._begin()

    def _connect(self, port: int) -> Connection:
        return self._stack.enter_context(Connection(port))

    def _connect_to_leaders(self, ports: Sequence[int]) -> list[tuple[Connection, list[int]]]:
        state = probes.ask_topic(ports[0], self._topic)
        by_port: dict[int, list[int]] = {}
        for partition in self._partitions:
            port = state.leader_port(partition)
            assert port is not None
            by_port.setdefault(port, []).append(partition)
        return [(self._connect(port), partitions) for port, partitions in by_port.items()]

    def _begin(self) -> tuple[int, int]:
        request = frame(INIT_PRODUCER_ID, INIT_PRODUCER_ID_VERSION, string(self._id) + struct.pack(">i", TIMEOUT_MS))
        reader = Reader(self._ask(self._coordinator, request, _error_of_init), CORRELATION_BYTES + 6)
        return reader.take("q"), reader.take("h")

    def commit_one(self) -> None:
        """One transaction, from its first request to the answer to its last."""
        if self._version == 1:
            self._ask(self._coordinator, self._add_partitions_frame(), _error_of_first_partition)
        requests = [(connection, self._produce_frame(partitions)) for connection, partitions in self._leaders]
        for connection, request in requests:
            connection.send(request)
        for connection, request in requests:
            self._insist(connection, request, self._produce_error)
        response = self._ask(self._coordinator, self._end_frame(), self._end_error)
        if self._version == 1:
            self._sequence += 1
        else:
            reader = Reader(response, CORRELATION_BYTES + 1 + 6)
            self._producer_id, self._epoch = reader.take("q"), reader.take("h")

    def _add_partitions_frame(self) -> bytes:
        numbers = struct.pack(f">i{len(self._partitions)}i", len(self._partitions), *self._partitions)
        body = string(self._id) + struct.pack(">qhi", self._producer_id, self._epoch, 1) + string(self._topic)
        return frame(ADD_PARTITIONS_TO_TXN, ADD_PARTITIONS_TO_TXN_VERSION, body + numbers)

    def _produce_frame(self, partitions: Sequence[int]) -> bytes:
        batch = wire.transactional(self._batch, self._producer_id, self._epoch, self._sequence)
        batches = dict.fromkeys(partitions, batch)
        if self._version == 1:
            return wire.produce_frame(self._topic, batches, wire.ACKS_ALL, transactional_id=self._id)
        return flexible_produce_frame(self._topic, batches, self._id)

    def _produce_error(self, response: bytes) -> int:
        return wire.produce_error(response) if self._version == 1 else flexible_produce_error(response)

    def _end_frame(self) -> bytes:
        version = END_TXN_VERSIONS[self._version]
        fields = struct.pack(">qhb", self._producer_id, self._epoch, 1)
        if self._version == 1:
            return frame(END_TXN, version, string(self._id) + fields)
        return flexible_frame(END_TXN, version, compact_string(self._id) + fields + b"\x00")

    def _end_error(self, response: bytes) -> int:
        return Reader(response, CORRELATION_BYTES + (0 if self._version == 1 else 1) + 4).take("h")

    def _ask(self, connection: Connection, request: bytes, error_of: Callable[[bytes], int]) -> bytes:
        connection.send(request)
        return self._insist(connection, request, error_of)

    def _insist(self, connection: Connection, request: bytes, error_of: Callable[[bytes], int]) -> bytes:
        """The answer to a request that was sent, and is sent again while it cannot be answered yet."""
        deadline = time.monotonic() + LIMIT_S
        while True:
            response = connection.receive()
            error = error_of(response)
            if error == ERROR_NONE:
                return response
            if error not in PASSING:
                raise RequestRejected(f"a request of transaction {self._id} failed with error {error}")
            probes.check(deadline, f"transaction {self._id} did not go on, error {error}")
            time.sleep(RETRY_S)
            connection.send(request)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def _error_of_init(response: bytes) -> int:
    return Reader(response, CORRELATION_BYTES + 4).take("h")


def _error_of_first_partition(response: bytes) -> int:
    """All have the same fate."""
    reader = Reader(response, CORRELATION_BYTES + 8)
    reader.take_string()
    reader.take("i")
    reader.take("i")
    return reader.take("h")


def flexible_produce_frame(topic: str, batches: Mapping[int, bytes], transactional_id: str) -> bytes:
    parts = [struct.pack(">i", partition) + compact_bytes(batch) + b"\x00" for partition, batch in batches.items()]
    topics = compact_array([compact_string(topic) + compact_array(parts) + b"\x00"])
    body = compact_string(transactional_id) + struct.pack(">hi", wire.ACKS_ALL, 30_000) + topics + b"\x00"
    return flexible_frame(wire.PRODUCE, PRODUCE_VERSION_2, body)


def flexible_produce_error(response: bytes) -> int:
    """The first that a partition of the first topic has; what follows an error is not read."""
    reader = Reader(response, CORRELATION_BYTES + 1)
    reader.take_unsigned_varint()
    reader.take_compact_string()
    for _ in range(reader.take_unsigned_varint() - 1):
        reader.take("i")
        if (error := reader.take("h")) != ERROR_NONE:
            return error
        reader.position += 3 * 8
        assert reader.take_unsigned_varint() == 1, "no record was refused"
        reader.take_compact_string()
        assert reader.take_unsigned_varint() == 0, "no leader but this one is named"
    return ERROR_NONE


def latencies_ms(producer: Producer, transactions: int) -> list[float]:
    """Of one transaction after the other, sorted."""
    found = []
    for _ in range(transactions):
        started = time.monotonic()
        producer.commit_one()
        found.append(1000 * (time.monotonic() - started))
    return sorted(found)


def commit_at_once(producers: Sequence[Producer], transactions_each: int) -> float:
    """All producers at the same time; how many seconds it took."""
    failures: list[Exception] = []

    def run(producer: Producer) -> None:
        try:
            for _ in range(transactions_each):
                producer.commit_one()
        except (RequestRejected, OSError, TimeoutError) as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(producer,)) for producer in producers]
    started = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return time.monotonic() - started
