"""The requests of group members that the benchmark sends by hand, and what it reads from their answers."""

import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bench.wire import CORRELATION_BYTES, Reader, compact_array, compact_string, flexible_frame, frame, string

OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, JOIN_GROUP, HEARTBEAT, SYNC_GROUP = 8, 9, 10, 11, 12, 14
CONSUMER_GROUP_HEARTBEAT = 68
OFFSET_COMMIT_VERSION, OFFSET_FETCH_VERSION, FIND_COORDINATOR_VERSION = 5, 2, 1
JOIN_GROUP_VERSION = 3
"""The last in which a member joins without asking for an id first."""

HEARTBEAT_VERSION, SYNC_GROUP_VERSION, CONSUMER_GROUP_HEARTBEAT_VERSION = 1, 1, 0
GROUP, TRANSACTION = 0, 1
"""Types of keys that have a coordinator."""

SESSION_TIMEOUT_MS = 300_000
REBALANCE_TIMEOUT_MS = 300_000
ASSIGNOR = "range"
NO_GENERATION = -1
JOINING = 0
"""The epoch of a member that wants to join."""


class Joined(NamedTuple):
    error: int
    generation: int
    leader: str
    member_id: str
    members: list[str]
    """All of the group, for its leader; else none."""


class Coordinator(NamedTuple):
    error: int
    port: int


def blob(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def find_coordinator_frame(key: str, key_type: int = GROUP) -> bytes:
    return frame(FIND_COORDINATOR, FIND_COORDINATOR_VERSION, string(key) + struct.pack(">b", key_type))


def coordinator_of(response: bytes) -> Coordinator:
    reader = Reader(response, CORRELATION_BYTES)
    reader.take("i")
    error = reader.take("h")
    reader.take_string()
    reader.take("i")
    reader.take_string()
    return Coordinator(error, reader.take("i"))


def join_group_frame(group: str, topic: str) -> bytes:
    subscription = struct.pack(">hi", 0, 1) + string(topic) + struct.pack(">i", -1)
    body = string(group) + struct.pack(">ii", SESSION_TIMEOUT_MS, REBALANCE_TIMEOUT_MS) + string("")
    body += string("consumer") + struct.pack(">i", 1) + string(ASSIGNOR) + blob(subscription)
    return frame(JOIN_GROUP, JOIN_GROUP_VERSION, body)


def joined(response: bytes) -> Joined:
    reader = Reader(response, CORRELATION_BYTES)
    reader.take("i")
    error, generation = reader.take("h"), reader.take("i")
    reader.take_string()
    leader, member_id = reader.take_string() or "", reader.take_string() or ""
    members = [_take_member(reader) for _ in range(reader.take("i"))]
    return Joined(error, generation, leader, member_id, members)


def _take_member(reader: Reader) -> str:
    member_id = reader.take_string() or ""
    metadata_bytes = reader.take("i")
    reader.position += metadata_bytes
    return member_id


def sync_group_frame(group: str, member: Joined, assignments: Mapping[str, bytes]) -> bytes:
    body = string(group) + struct.pack(">i", member.generation) + string(member.member_id)
    body += struct.pack(">i", len(assignments))
    parts = (string(member_id) + blob(assignment) for member_id, assignment in assignments.items())
    return frame(SYNC_GROUP, SYNC_GROUP_VERSION, body + b"".join(parts))


def assignment(topic: str, partitions: Sequence[int]) -> bytes:
    """What a consumer's leader sends to a member."""
    numbers = struct.pack(f">i{len(partitions)}i", len(partitions), *partitions)
    return struct.pack(">hi", 0, 1) + string(topic) + numbers + struct.pack(">i", -1)


def heartbeat_frame(group: str, member: Joined) -> bytes:
    body = string(group) + struct.pack(">i", member.generation) + string(member.member_id)
    return frame(HEARTBEAT, HEARTBEAT_VERSION, body)


def error_after_throttle_time(response: bytes) -> int:
    """Of the answers to heartbeats, syncs and ends of transactions."""
    error: int = struct.unpack_from(">h", response, CORRELATION_BYTES + 4)[0]
    return error


def offset_commit_frame(
    group: str, topic: str, offsets: Mapping[int, int], member_id: str = "", generation: int = NO_GENERATION
) -> bytes:
    body = string(group) + struct.pack(">i", generation) + string(member_id)
    body += struct.pack(">i", 1) + string(topic) + struct.pack(">i", len(offsets))
    parts = (struct.pack(">iq", partition, offset) + string("") for partition, offset in offsets.items())
    return frame(OFFSET_COMMIT, OFFSET_COMMIT_VERSION, body + b"".join(parts))


def offset_commit_error(response: bytes) -> int:
    """Of the last partition."""
    error: int = struct.unpack_from(">h", response, len(response) - 2)[0]
    return error


def offset_fetch_frame(group: str) -> bytes:
    """Asks for all that the group has committed."""
    return frame(OFFSET_FETCH, OFFSET_FETCH_VERSION, string(group) + struct.pack(">i", -1))


def offsets_fetched(response: bytes) -> tuple[int, int]:
    """The error, and how many offsets there are of the first topic."""
    error: int = struct.unpack_from(">h", response, len(response) - 2)[0]
    reader = Reader(response, CORRELATION_BYTES)
    if reader.take("i") == 0:
        return error, 0
    reader.take_string()
    return error, reader.take("i")


# -- the consumer protocol (KIP-848)


class Member(NamedTuple):
    error: int
    member_id: str
    epoch: int


def consumer_join_frame(group: str, topic: str) -> bytes:
    return _consumer_heartbeat_frame(group, "", JOINING, REBALANCE_TIMEOUT_MS, [topic], partitions=b"\x01")


def consumer_heartbeat_frame(group: str, member_id: str, epoch: int) -> bytes:
    """A sign of life: nothing has changed."""
    return _consumer_heartbeat_frame(group, member_id, epoch, -1, None, partitions=b"\x00")


def _consumer_heartbeat_frame(
    group: str, member_id: str, epoch: int, rebalance_timeout_ms: int, topics: Sequence[str] | None, partitions: bytes
) -> bytes:
    body = compact_string(group) + compact_string(member_id) + struct.pack(">i", epoch)
    body += compact_string(None) * 2 + struct.pack(">i", rebalance_timeout_ms)
    body += compact_array(None if topics is None else [compact_string(topic) for topic in topics])
    body += compact_string(None) + partitions + b"\x00"
    return flexible_frame(CONSUMER_GROUP_HEARTBEAT, CONSUMER_GROUP_HEARTBEAT_VERSION, body)


def member_of(response: bytes) -> Member:
    reader = Reader(response, CORRELATION_BYTES + 1)
    reader.take("i")
    error = reader.take("h")
    reader.take_compact_string()
    return Member(error, reader.take_compact_string() or "", reader.take("i"))
