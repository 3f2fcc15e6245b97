"""Moves of replicas and their throttles over raw sockets, for either peer; and the wait for the end of a move."""

import struct
import time
from collections.abc import Mapping, Sequence

from bench import probes, wire
from bench.wire import ERROR_NONE, Connection, Reader, RequestRejected

INCREMENTAL_ALTER_CONFIGS, ALTER_REASSIGNMENTS, LIST_REASSIGNMENTS = 44, 45, 46
TOPIC, BROKER = 2, 4
"""Kinds of resources that have settings."""
SET = 0
ALL_BROKERS = ""
NOT_CONTROLLER = 41
TIMEOUT_MS = 60_000
POLL_S = 0.05
MOVE_LIMIT_S = 900.0

Places = Mapping[int, Sequence[int]]
"""The replicas of each partition, the preferred leader first."""


def create_placed_topic(ports: Sequence[int], topic: str, places: Places, configs: Mapping[str, str]) -> None:
    probes.create_topic_by(ports, _create_frame(topic, places, configs), topic, len(places))


def _create_frame(topic: str, places: Places, configs: Mapping[str, str]) -> bytes:
    body = struct.pack(">i", 1) + wire.string(topic) + struct.pack(">ihi", -1, -1, len(places))
    for partition, replicas in places.items():
        body += struct.pack(f">ii{len(replicas)}i", partition, len(replicas), *replicas)
    body += struct.pack(">i", len(configs))
    body += b"".join(wire.string(key) + wire.string(value) for key, value in configs.items())
    return wire.frame(wire.CREATE_TOPICS, wire.CREATE_TOPICS_VERSION, body + struct.pack(">ib", TIMEOUT_MS, 0))


def alter_reassignments(ports: Sequence[int], topic: str, places: Places) -> None:
    partitions = [
        struct.pack(">i", partition) + wire.compact_array([struct.pack(">i", each) for each in replicas]) + b"\x00"
        for partition, replicas in places.items()
    ]
    one = wire.compact_string(topic) + wire.compact_array(partitions) + b"\x00"
    body = struct.pack(">i", TIMEOUT_MS) + wire.compact_array([one]) + b"\x00"
    reader = ask_controller(ports, wire.flexible_frame(ALTER_REASSIGNMENTS, 0, body))
    for _ in range(reader.take_unsigned_varint() - 1):
        reader.take_compact_string()
        for _ in range(reader.take_unsigned_varint() - 1):
            partition, error, message = reader.take("i"), reader.take("h"), reader.take_compact_string()
            if error != ERROR_NONE:
                raise RequestRejected(f"moving {topic}-{partition} failed with error {error}: {message}")
            reader.take("B")
        reader.take("B")


def topics_under_reassignment(ports: Sequence[int]) -> int:
    body = struct.pack(">i", TIMEOUT_MS) + wire.compact_array(None) + b"\x00"
    return ask_controller(ports, wire.flexible_frame(LIST_REASSIGNMENTS, 0, body)).take_unsigned_varint() - 1


def ask_controller(ports: Sequence[int], request: bytes) -> Reader:
    """The response after its error. Brokers of KRaft pass such requests on; others say that they are not it."""
    for port in ports:
        with Connection(port) as connection:
            reader = Reader(connection.ask(request), 9)
        error, message = reader.take("h"), reader.take_compact_string()
        if error == ERROR_NONE:
            return reader
        if error != NOT_CONTROLLER:
            raise RequestRejected(f"a reassignment failed with error {error}: {message}")
    raise RequestRejected("no broker is the controller")


def wait_until_moved(ports: Sequence[int], topic: str, places: Places) -> None:
    """Until no move is listed and every broker names the new replicas."""
    deadline = time.monotonic() + MOVE_LIMIT_S
    while topics_under_reassignment(ports) or any(not _is_moved(port, topic, places) for port in ports):
        probes.check(deadline, f"{topic} did not move in time")
        time.sleep(POLL_S)


def _is_moved(port: int, topic: str, places: Places) -> bool:
    found = probes.ask_topic(port, topic).partitions
    return {partition: state.replicas for partition, state in found.items()} == {
        partition: list(replicas) for partition, replicas in places.items()
    }


def alter_settings(port: int, kind: int, name: str, settings: Mapping[str, str]) -> None:
    configs = b"".join(
        wire.string(key) + struct.pack(">b", SET) + wire.string(value) for key, value in settings.items()
    )
    body = struct.pack(">ib", 1, kind) + wire.string(name) + struct.pack(">i", len(settings)) + configs + b"\x00"
    with Connection(port) as connection:
        reader = Reader(connection.ask(wire.frame(INCREMENTAL_ALTER_CONFIGS, 0, body)), 12)
    error, message = reader.take("h"), reader.take_string()
    if error != ERROR_NONE:
        raise RequestRejected(f"altering {name or 'all brokers'} failed with error {error}: {message}")
