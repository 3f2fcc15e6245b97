"""Records of committed offsets in `__consumer_offsets`, as in Kafka 4.3."""

# Core: no clock, no I/O, no await.

import struct
from functools import lru_cache
from typing import NamedTuple

from tidelog.protocol.errors import MalformedMessage, UnencodableMessage
from tidelog.protocol.internal.offset_records import OffsetCommitValue
from tidelog.protocol.internal.versioned import decode_versioned, encode_versioned
from tidelog.types import NO_LEADER_EPOCH, NO_TIMESTAMP, ZERO_UUID, Uuid

KEY_VERSION = 1
VALUE_VERSION = 4
VALUE_VERSION_WITH_EXPIRY = 1
"""The only version with an expiration time, which old consumers send with their commits."""

_MAX_STRING_BYTES = 2**15 - 1
_KEY_START = struct.Struct(">hh")
_LENGTH = struct.Struct(">h")
_INDEX = struct.Struct(">i")
_PLAIN_VALUE = struct.Struct(">hqiBq")
_STRING_START = 4
_CACHED_NAMES = 4_096
"""Entries in the cache of decoded names."""
_MAX_CACHED_KEY_BYTES = 256
"""Longer keys are not cached, to bound memory."""
_PLAIN_VERSION = VALUE_VERSION.to_bytes(2, "big")
_NO_METADATA = b"\x01"
_NO_TAGS = b"\x00"
_TOPIC_ID_TAG = b"\x01\x00\x10"
_TAGS_BY_LENGTH = {24: _NO_TAGS, 42: _TOPIC_ID_TAG}
"""What follows the commit time in values without metadata, by the length of the whole."""


class CommittedOffset(NamedTuple):
    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    committed_at_ms: int = NO_TIMESTAMP
    expires_at_ms: int = NO_TIMESTAMP
    topic_id: Uuid = ZERO_UUID

    def is_of(self, topic_id: Uuid) -> bool:
        """True if the offset may belong to the topic with this id, and not to a deleted one of the same name."""
        return ZERO_UUID in (self.topic_id, topic_id) or self.topic_id == topic_id


def encode_key(group_id: str, topic: str, partition: int) -> bytes:
    return key_of(names_of_key(group_id, topic), partition)


def key_of(names: bytes, partition: int) -> bytes:
    return names + _INDEX.pack(partition)


def names_of_key(group_id: str, topic: str) -> bytes:
    """Common prefix of the keys of all partitions of a topic. Raises UnencodableMessage."""
    group, name = group_id.encode(), topic.encode()
    if len(group) > _MAX_STRING_BYTES or len(name) > _MAX_STRING_BYTES:
        raise UnencodableMessage(
            f"a key has names of {_MAX_STRING_BYTES} bytes at most, not {len(group)} and {len(name)}"
        )
    return _KEY_START.pack(KEY_VERSION, len(group)) + group + _LENGTH.pack(len(name)) + name


def encode_value(committed: CommittedOffset) -> bytes:
    """Encoded by hand if there is no metadata, which is the usual case: this path is hot."""
    if not committed.metadata and committed.expires_at_ms < 0:
        start = _PLAIN_VALUE.pack(VALUE_VERSION, committed.offset, committed.leader_epoch, 1, committed.committed_at_ms)
        return start + (_NO_TAGS if committed.topic_id == ZERO_UUID else _TOPIC_ID_TAG + committed.topic_id)
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.committed_at_ms,
        expire_timestamp=committed.expires_at_ms,
        topic_id=committed.topic_id,
    )
    return encode_versioned(value, VALUE_VERSION if committed.expires_at_ms < 0 else VALUE_VERSION_WITH_EXPIRY)


def decode_key(data: bytes) -> tuple[str, str, int]:
    """Group, topic and partition. Decoded by hand: it dominates the loading time. Raises MalformedMessage."""
    read = _read_remembered_names if len(data) <= _MAX_CACHED_KEY_BYTES else _read_names
    group_id, topic = read(data[:-4])
    return group_id, topic, int.from_bytes(data[-4:], "big", signed=True)


def _read_names(names: bytes) -> tuple[str, str]:
    topic_start = _STRING_START + int.from_bytes(names[2:4], "big")
    topic_end = topic_start + 2 + int.from_bytes(names[topic_start : topic_start + 2], "big")
    if len(names) != topic_end:
        raise MalformedMessage(f"the names in the key of an offset end after {topic_end} bytes, not {len(names)}")
    try:
        return str(names[4:topic_start], "utf-8"), str(names[topic_start + 2 : topic_end], "utf-8")
    except UnicodeDecodeError as error:
        raise MalformedMessage(str(error)) from error


_read_remembered_names = lru_cache(maxsize=_CACHED_NAMES)(_read_names)


def check_value(data: bytes) -> None:
    """Raises the errors of `decode_value`, without decoding most values."""
    if data.startswith(_PLAIN_VERSION) and data.startswith(_NO_METADATA, 14):
        tags = _TAGS_BY_LENGTH.get(len(data))
        if tags is not None and data.startswith(tags, 23):
            return
    decode_value(data)


def times_of(data: bytes) -> tuple[int, int]:
    """Commit time and expiration time. Fast, because expiration checks all unused offsets repeatedly."""
    if data[:2] == _PLAIN_VERSION and data[14:15] == _NO_METADATA:
        return int.from_bytes(data[15:23], "big", signed=True), NO_TIMESTAMP
    committed = decode_value(data)
    return committed.committed_at_ms, committed.expires_at_ms


def decode_value(data: bytes) -> CommittedOffset:
    value = decode_versioned(OffsetCommitValue, data)
    return CommittedOffset(
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        value.expire_timestamp,
        value.topic_id,
    )
