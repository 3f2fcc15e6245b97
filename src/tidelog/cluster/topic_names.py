"""Topic names: validation, and the names of internal topics."""

import re
from collections.abc import Iterable

from tidelog.errors import InvalidRequest, InvalidTopic

MAX_NAME_LENGTH = 249
"""With a dash and a partition number it must fit into the 255 bytes of a directory name."""

GROUP_TOPIC = "__consumer_offsets"
TRANSACTION_TOPIC = "__transaction_state"
INTERNAL_TOPICS = frozenset({GROUP_TOPIC, TRANSACTION_TOPIC, "__share_group_state"})

METADATA_TOPIC = "__cluster_metadata"
"""Topic of Kafka's KRaft quorum. It does not exist here, and no topic may have its name."""

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str) -> None:
    """Raises InvalidTopic with Kafka's message."""
    reason = _why_invalid(name)
    if reason is not None:
        raise InvalidTopic(f"Topic name is invalid: {reason}")


def prohibited_creation(name: str) -> InvalidRequest:
    return InvalidRequest(f"Creation of internal topic {name} is prohibited.")


def is_internal(name: str) -> bool:
    return name in INTERNAL_TOPICS


def collides(name: str, other: str) -> bool:
    """Metric names replace `.` by `_`, so that `a.b` and `a_b` would be the same."""
    return _collision_key(name) == _collision_key(other)


def colliding_topics(name: str, existing: Iterable[str]) -> list[str]:
    if "." not in name and "_" not in name:
        return []
    return [other for other in existing if collides(name, other)]


def _collision_key(name: str) -> str:
    return name.replace(".", "_")


def _why_invalid(name: str) -> str | None:
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > MAX_NAME_LENGTH:
        return f"the length of '{name}' is longer than the max allowed length {MAX_NAME_LENGTH}"
    if not _LEGAL.fullmatch(name):
        return f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None
