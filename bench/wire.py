"""The few Kafka requests that the benchmark sends by hand, written apart from the product that it measures."""

import socket
import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

import cramjam
from crc32c import crc32c

PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS, CREATE_TOPICS = 0, 1, 2, 3, 18, 19
PRODUCE_VERSION, FETCH_VERSION, LIST_OFFSETS_VERSION, METADATA_VERSION, CREATE_TOPICS_VERSION = 7, 4, 1, 4, 4
LATEST = -1
CLIENT_ID = b"bench"
CORRELATION_BYTES = 4
ERROR_NONE = 0
ACKS_LEADER, ACKS_ALL = 1, -1
DEFAULT_REPLICATION_FACTOR = -1
LZ4, TRANSACTIONAL = 3, 0x10
"""In the attributes of a batch."""

CRC_AT, CHECKED_FROM, PRODUCER_ID_AT = 17, 21, 43
"""In a batch."""


class RequestRejected(Exception):
    """The broker answered with an error code."""


def string(value: str | None) -> bytes:
    if value is None:
        return struct.pack(">h", -1)
    encoded = value.encode()
    return struct.pack(">h", len(encoded)) + encoded


def frame(api_key: int, version: int, body: bytes, correlation_id: int = 1) -> bytes:
    header = struct.pack(">hhih", api_key, version, correlation_id, len(CLIENT_ID)) + CLIENT_ID
    return struct.pack(">i", len(header) + len(body)) + header + body


def flexible_frame(api_key: int, version: int, body: bytes, correlation_id: int = 1) -> bytes:
    """In versions from which on lengths are varints and structures end with tagged fields."""
    return frame(api_key, version, b"\x00" + body, correlation_id)


def compact_string(value: str | None) -> bytes:
    return b"\x00" if value is None else compact_bytes(value.encode())


def compact_bytes(value: bytes) -> bytes:
    return unsigned_varint(len(value) + 1) + value


def compact_array(items: Sequence[bytes] | None) -> bytes:
    return b"\x00" if items is None else unsigned_varint(len(items) + 1) + b"".join(items)


def varint(value: int) -> bytes:
    """A zigzag varint, as record fields are written."""
    return unsigned_varint((value << 1) ^ (value >> 63))


def unsigned_varint(value: int) -> bytes:
    rest, encoded = value, bytearray()
    while rest >= 0x80:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def record_batch(
    values: Sequence[bytes], timestamp_ms: int, keys: Sequence[bytes | None] = (), *, lz4: bool = False
) -> bytes:
    """A batch of records; without keys if none are given."""
    pairs = enumerate(zip(keys or [None] * len(values), values, strict=True))
    records = b"".join(_record(delta, key, value) for delta, (key, value) in pairs)
    fixed = (LZ4 if lz4 else 0, len(values) - 1, timestamp_ms, timestamp_ms, -1, -1, -1, len(values))
    checked = struct.pack(">hiqqqhii", *fixed) + (_compress_lz4(records) if lz4 else records)
    covered = struct.pack(">ibI", -1, 2, crc32c(checked)) + checked
    return struct.pack(">qi", 0, len(covered)) + covered


def transactional(batch: bytes, producer_id: int, producer_epoch: int, sequence: int) -> bytes:
    """The same batch as part of a transaction."""
    checked = bytearray(batch[CHECKED_FROM:])
    struct.pack_into(">h", checked, 0, struct.unpack_from(">h", checked)[0] | TRANSACTIONAL)
    struct.pack_into(">qhi", checked, PRODUCER_ID_AT - CHECKED_FROM, producer_id, producer_epoch, sequence)
    return batch[:CRC_AT] + struct.pack(">I", crc32c(bytes(checked))) + bytes(checked)


def _compress_lz4(data: bytes) -> bytes:
    # Java's clients read no frames but those of independent blocks.
    compressor = cramjam.lz4.Compressor(1, content_checksum=False, block_linked=False)
    compressor.compress(data)
    return bytes(compressor.finish())


def _record(delta: int, key: bytes | None, value: bytes) -> bytes:
    key_field = varint(-1) if key is None else varint(len(key)) + key
    content = b"\x00" + varint(0) + varint(delta) + key_field + varint(len(value)) + value + varint(0)
    return varint(len(content)) + content


def produce_frame(
    topic: str,
    batches: Mapping[int, bytes],
    acks: int = ACKS_LEADER,
    timeout_ms: int = 30_000,
    transactional_id: str | None = None,
) -> bytes:
    body = (
        string(transactional_id)
        + struct.pack(">hii", acks, timeout_ms, 1)
        + string(topic)
        + struct.pack(">i", len(batches))
    )
    parts = (struct.pack(">ii", partition, len(batch)) + batch for partition, batch in batches.items())
    return frame(PRODUCE, PRODUCE_VERSION, body + b"".join(parts))


def produce_error(response: bytes) -> int:
    """The error code of the first partition in a produce response (behind its correlation id)."""
    (name_length,) = struct.unpack_from(">h", response, 8)
    error: int = struct.unpack_from(">h", response, 10 + name_length + 8)[0]
    return error


def metadata_frame(topic: str) -> bytes:
    return frame(METADATA, METADATA_VERSION, struct.pack(">i", 1) + string(topic) + b"\x01")


def fetch_frame(topic: str, partition: int, offset: int, max_bytes: int = 1_000_000) -> bytes:
    """Answered at once, with what is there."""
    body = struct.pack(">iiiib", -1, 0, 1, max_bytes, 0) + struct.pack(">i", 1) + string(topic)
    return frame(FETCH, FETCH_VERSION, body + struct.pack(">iiqi", 1, partition, offset, max_bytes))


def list_offsets_frame(topic: str, partitions: int) -> bytes:
    body = struct.pack(">ii", -1, 1) + string(topic) + struct.pack(">i", partitions)
    wanted = (struct.pack(">iq", partition, LATEST) for partition in range(partitions))
    return frame(LIST_OFFSETS, LIST_OFFSETS_VERSION, body + b"".join(wanted))


def create_topic_frame(topic: str, partitions: int, configs: Mapping[str, str]) -> bytes:
    body = (
        struct.pack(">i", 1)
        + string(topic)
        + struct.pack(">ihii", partitions, DEFAULT_REPLICATION_FACTOR, 0, len(configs))
    )
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

    def take_unsigned_varint(self) -> int:
        value = shift = 0
        while (byte := self.take("B")) & 0x80:
            value |= (byte & 0x7F) << shift
            shift += 7
        return value | byte << shift

    def take_compact_string(self) -> str | None:
        length = self.take_unsigned_varint() - 1
        if length < 0:
            return None
        self.position += length
        return self.data[self.position - length : self.position].decode()

    def take_int_array(self) -> list[int]:
        return [self.take("i") for _ in range(self.take("i"))]


class PartitionState(NamedTuple):
    leader: int
    replicas: list[int]
    in_sync: list[int]


class TopicState(NamedTuple):
    """What one broker says of one topic: nothing of its partitions while the topic is not there yet."""

    ports: dict[int, int]
    """Of the brokers, by their ids."""
    partitions: dict[int, PartitionState]
    """Those that have a leader."""

    def leader_port(self, partition: int) -> int | None:
        state = self.partitions.get(partition)
        return None if state is None else self.ports.get(state.leader)

    @property
    def in_sync_everywhere(self) -> bool:
        return bool(self.partitions) and all(
            len(partition.in_sync) == len(partition.replicas) for partition in self.partitions.values()
        )


def topic_state(response: bytes) -> TopicState:
    """From the answer to a metadata request that names one topic."""
    reader = Reader(response, 8)
    ports = dict(_take_broker(reader) for _ in range(reader.take("i")))
    reader.take_string()
    reader.take("i")
    assert reader.take("i") == 1, "one topic was asked for"
    if reader.take("h") != ERROR_NONE:
        return TopicState(ports, {})
    reader.take_string()
    reader.take("b")
    taken = [_take_partition(reader) for _ in range(reader.take("i"))]
    return TopicState(
        ports, {index: state for error, index, state in taken if error == ERROR_NONE and state.leader >= 0}
    )


def _take_broker(reader: Reader) -> tuple[int, int]:
    broker_id = reader.take("i")
    reader.take_string()
    port = reader.take("i")
    reader.take_string()
    return broker_id, port


def _take_partition(reader: Reader) -> tuple[int, int, PartitionState]:
    error, index, leader = reader.take("h"), reader.take("i"), reader.take("i")
    return error, index, PartitionState(leader, reader.take_int_array(), reader.take_int_array())


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


class Connection:
    """A blocking connection that sends one request and waits for its answer."""

    def __init__(self, port: int, timeout_seconds: float = 60.0) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout_seconds)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, request: bytes) -> bytes:
        self.send(request)
        return self.receive()

    def send(self, request: bytes) -> None:
        self.socket.sendall(request)

    def receive(self) -> bytes:
        """The next answer."""
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
