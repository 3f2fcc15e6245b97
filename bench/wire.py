"""The few Kafka requests that the benchmark sends by hand, written apart from the product that it measures."""

import contextlib
import socket
import struct
import time
from collections.abc import Iterable, Mapping
from typing import Self

from crc32c import crc32c

PRODUCE, LIST_OFFSETS, METADATA, CREATE_TOPICS = 0, 2, 3, 19
PRODUCE_VERSION, LIST_OFFSETS_VERSION, METADATA_VERSION, CREATE_TOPICS_VERSION = 7, 1, 4, 4
LATEST = -1
CLIENT_ID = b"bench"
ERROR_NONE = 0


class RequestRefused(Exception):
    """The broker answered with an error code."""


def string(value: str | None) -> bytes:
    if value is None:
        return struct.pack(">h", -1)
    encoded = value.encode()
    return struct.pack(">h", len(encoded)) + encoded


def frame(api_key: int, version: int, body: bytes, correlation_id: int = 1) -> bytes:
    header = struct.pack(">hhih", api_key, version, correlation_id, len(CLIENT_ID)) + CLIENT_ID
    return struct.pack(">i", len(header) + len(body)) + header + body


def varint(value: int) -> bytes:
    """A zigzag varint, as record fields are written."""
    rest = (value << 1) ^ (value >> 63)
    encoded = bytearray()
    while rest >= 0x80:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def record_batch(values: Iterable[bytes], timestamp_ms: int) -> bytes:
    """An uncompressed batch of records without keys."""
    records = [_record(delta, value) for delta, value in enumerate(values)]
    fixed = (0, len(records) - 1, timestamp_ms, timestamp_ms, -1, -1, -1, len(records))
    checked = struct.pack(">hiqqqhii", *fixed) + b"".join(records)
    covered = struct.pack(">ibI", -1, 2, crc32c(checked)) + checked
    return struct.pack(">qi", 0, len(covered)) + covered


def _record(delta: int, value: bytes) -> bytes:
    content = b"\x00" + varint(0) + varint(delta) + varint(-1) + varint(len(value)) + value + varint(0)
    return varint(len(content)) + content


def produce_frame(topic: str, batches: Mapping[int, bytes], acks: int = 1, timeout_ms: int = 30_000) -> bytes:
    body = string(None) + struct.pack(">hii", acks, timeout_ms, 1) + string(topic) + struct.pack(">i", len(batches))
    parts = (struct.pack(">ii", partition, len(batch)) + batch for partition, batch in batches.items())
    return frame(PRODUCE, PRODUCE_VERSION, body + b"".join(parts))


def produce_error(response: bytes) -> int:
    """The error code of the first partition in a produce response (behind its correlation id)."""
    (name_length,) = struct.unpack_from(">h", response, 8)
    error: int = struct.unpack_from(">h", response, 10 + name_length + 8)[0]
    return error


def metadata_frame(topic: str) -> bytes:
    return frame(METADATA, METADATA_VERSION, struct.pack(">i", 1) + string(topic) + b"\x01")


def list_offsets_frame(topic: str, partitions: int) -> bytes:
    body = struct.pack(">ii", -1, 1) + string(topic) + struct.pack(">i", partitions)
    wanted = (struct.pack(">iq", partition, LATEST) for partition in range(partitions))
    return frame(LIST_OFFSETS, LIST_OFFSETS_VERSION, body + b"".join(wanted))


def create_topic_frame(topic: str, partitions: int, configs: Mapping[str, str]) -> bytes:
    body = struct.pack(">i", 1) + string(topic) + struct.pack(">ihii", partitions, 1, 0, len(configs))
    body += b"".join(string(key) + string(value) for key, value in configs.items())
    return frame(CREATE_TOPICS, CREATE_TOPICS_VERSION, body + struct.pack(">ib", 30_000, 0))


class Reader:
    """Takes fields from a response one after the other."""

    def __init__(self, data: bytes, position: int = 0) -> None:
        self.data = data
        self.position = position

    def take(self, layout: str) -> int:
        value: int = struct.unpack_from(">" + layout, self.data, self.position)[0]
        self.position += struct.calcsize(">" + layout)
        return value

    def take_string(self) -> str | None:
        length = self.take("h")
        if length < 0:
            return None
        self.position += length
        return self.data[self.position - length : self.position].decode()

    def skip_int_array(self) -> None:
        count = self.take("i")
        self.position += 4 * count


def partitions_with_leader(response: bytes) -> int:
    """How many partitions of the one topic asked for have a leader; 0 while the topic is not there yet."""
    reader = Reader(response, 8)
    for _ in range(reader.take("i")):
        reader.take("i")
        reader.take_string()
        reader.take("i")
        reader.take_string()
    reader.take_string()
    reader.take("i")
    assert reader.take("i") == 1, "one topic was asked for"
    if reader.take("h") != ERROR_NONE:
        return 0
    reader.take_string()
    reader.take("b")
    return sum(_has_leader(reader) for _ in range(reader.take("i")))


def partitions_served(response: bytes) -> int:
    """How many partitions of a list-offsets response came without an error: their leader has taken up its work."""
    reader = Reader(response, 8)
    reader.take_string()
    return sum(_is_served(reader) for _ in range(reader.take("i")))


def _is_served(reader: Reader) -> bool:
    _partition, error = reader.take("i"), reader.take("h")
    reader.take("q")
    reader.take("q")
    return error == ERROR_NONE


def _has_leader(reader: Reader) -> bool:
    error, _partition, leader = reader.take("h"), reader.take("i"), reader.take("i")
    reader.skip_int_array()
    reader.skip_int_array()
    return error == ERROR_NONE and leader >= 0


class Connection:
    """A blocking connection that sends one request and waits for its answer."""

    def __init__(self, port: int, timeout_seconds: float = 60.0) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout_seconds)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, request: bytes) -> bytes:
        self.socket.sendall(request)
        (length,) = struct.unpack(">i", self._receive(4))
        return self._receive(length)

    def _receive(self, length: int) -> bytes:
        parts = bytearray()
        while len(parts) < length:
            part = self.socket.recv(length - len(parts))
            if not part:
                raise ConnectionResetError("the broker closed the connection")
            parts += part
        return bytes(parts)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()


def create_topic(port: int, topic: str, partitions: int, configs: Mapping[str, str] | None = None) -> None:
    """Creates a topic and waits until every partition is served; Kafka names leaders before they know of it."""
    with Connection(port) as connection:
        reader = Reader(connection.ask(create_topic_frame(topic, partitions, configs or {})), 12)
        reader.take_string()
        if (error := reader.take("h")) != ERROR_NONE:
            raise RequestRefused(f"creating topic {topic} failed with error {error}: {reader.take_string()}")
        while partitions_served(connection.ask(list_offsets_frame(topic, partitions))) < partitions:
            time.sleep(0.01)


def wait_for_first_acknowledged_produce(port: int, topic: str, deadline: float) -> None:
    """Connects, has the topic made, and produces one record, trying again at once until it is acknowledged."""
    request = produce_frame(topic, {0: record_batch([b"first"], int(time.time() * 1000))})
    while True:
        with contextlib.suppress(OSError), Connection(port, timeout_seconds=5.0) as connection:
            while partitions_with_leader(connection.ask(metadata_frame(topic))) == 0:
                _check(deadline)
            while produce_error(connection.ask(request)) != ERROR_NONE:
                _check(deadline)
            return
        _check(deadline)


def _check(deadline: float) -> None:
    if time.monotonic() > deadline:
        raise TimeoutError("no produce was acknowledged in time")
    time.sleep(0.001)
