"""Requests as plain Python values, with the topics, partitions, groups and transactional ids that they name."""

# Core: no clock, no I/O, no await.

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tidelog.protocol.apis import APIS, Api
from tidelog.protocol.fields import Array, Fixed, Nested
from tidelog.protocol.structs import Struct
from tidelog.types import ZERO_UUID, Uuid

TOPIC_FIELDS = ("name", "topic", "topic_name")
TOPIC_ARRAYS = ("topics", "topic_data", "topic_states", "topic_partitions", "v3_and_below_topics")
NAME_ARRAYS = {"topic_names": "topic", "groups": "group", "groups_names": "group", "group_ids": "group"}
PARTITION_ARRAYS = ("partitions", "partition_data", "partition_states", "partition_indexes")
PARTITION_FIELDS = ("partition_index", "partition", "index")
TRANSACTIONAL_ID_FIELDS = ("transactional_id", "v3_and_below_transactional_id")

TOPIC_RESOURCE = 2
"""Resource type of topics."""
GROUP_KEY, TRANSACTION_KEY = 0, 1
"""Key types of FindCoordinator."""


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """One request that a broker received. Times are those of the cluster's clock."""

    api: str
    version: int
    client_id: str | None
    broker: int
    """The broker that received it."""
    at_ms: int
    from_broker: int | None = None
    """The broker that sent it; None: a client."""
    topics: tuple[str, ...] = ()
    partitions: tuple[tuple[str, int], ...] = ()
    groups: tuple[str, ...] = ()
    transactional_ids: tuple[str, ...] = ()
    fault: str | None = None
    """What `on(...)` has done with it, such as `fail NOT_ENOUGH_REPLICAS`."""
    body: dict[str, Any] = field(default_factory=dict, repr=False)
    """All fields of this version by their names in Kafka's protocol, in snake_case. A record batch is its size."""


@dataclass(slots=True)
class RequestParts:
    """Partitions, groups and transactional ids that a request names."""

    partitions: dict[str, list[int]] = field(default_factory=dict)
    """Partition indexes by topic; empty if the request names only the topic."""
    groups: list[str] = field(default_factory=list)
    transactional_ids: list[str] = field(default_factory=list)


def api_named(name: str) -> Api:
    """API with this name; case and underscores do not matter. Raises ValueError."""
    wanted = name.replace("_", "").lower()
    for api in APIS:
        if api.name.lower() == wanted:
            return api
    raise ValueError(
        f"there is no request {name!r}; names are those of Kafka's protocol: Produce, Fetch, Metadata, ..."
    )


def parts_of(request: Struct, version: int, topic_name: Callable[[Uuid], str | None]) -> RequestParts:
    """`topic_name` finds the topic with an id."""
    parts = RequestParts()
    _collect(request, version, topic_name, parts)
    return parts


def _collect(struct: Struct, version: int, topic_name: Callable[[Uuid], str | None], parts: RequestParts) -> None:
    for each in struct.__fields__:
        if version not in each.versions:
            continue
        value = getattr(struct, each.name)
        if each.name in TOPIC_ARRAYS:
            for topic in value or ():
                _collect_topic(topic, topic_name, parts)
        elif each.name == "group_id" and value:
            parts.groups.append(value)
        elif each.name in TRANSACTIONAL_ID_FIELDS and value:
            parts.transactional_ids.append(value)
        elif isinstance(value, list) and value and isinstance(value[0], Struct):
            for element in value:
                _collect(element, version, topic_name, parts)
        else:
            _collect_name(struct, each.name, value, parts)


def _collect_topic(topic: Struct, topic_name: Callable[[Uuid], str | None], parts: RequestParts) -> None:
    name = topic_of(topic, topic_name)
    if name is not None:
        parts.partitions.setdefault(name, []).extend(_partitions_of(topic))


def topic_of(topic: Struct, topic_name: Callable[[Uuid], str | None]) -> str | None:
    """Name of a topic in a request, which may have only its id."""
    name: str | None = next((getattr(topic, each.name) for each in topic.__fields__ if each.name in TOPIC_FIELDS), None)
    topic_id = getattr(topic, "topic_id", ZERO_UUID)
    return name or (topic_name(topic_id) if topic_id != ZERO_UUID else None)


def _partitions_of(topic: Struct) -> Iterator[int]:
    for each in topic.__fields__:
        if each.name in PARTITION_ARRAYS:
            for partition in getattr(topic, each.name):
                yield partition if isinstance(partition, int) else _index_of(partition)


def _index_of(partition: Struct) -> int:
    index: int = next(getattr(partition, each.name) for each in partition.__fields__ if each.name in PARTITION_FIELDS)
    return index


def _collect_name(struct: Struct, name: str, value: Any, parts: RequestParts) -> None:
    if name == "resource_name":
        if getattr(struct, "resource_type", None) == TOPIC_RESOURCE:
            parts.partitions.setdefault(value, [])
    elif name in NAME_ARRAYS:
        for text in value or ():
            if NAME_ARRAYS[name] == "group":
                parts.groups.append(text)
            else:
                parts.partitions.setdefault(text, [])
    elif name == "transactional_ids":
        parts.transactional_ids.extend(value)
    elif name in ("key", "coordinator_keys") and value:
        keys = [value] if isinstance(value, str) else value
        kind = getattr(struct, "key_type", GROUP_KEY)
        (parts.transactional_ids if kind == TRANSACTION_KEY else parts.groups).extend(keys)


def as_plain(struct: Struct, version: int) -> dict[str, Any]:
    """Nested dicts and lists. Record batches, whose memory is reused, are replaced by their size."""
    return {
        each.name: _plain(getattr(struct, each.name), each.type, version)
        for each in struct.__fields__
        if version in each.versions
    }


def _plain(value: Any, type_: Any, version: int) -> Any:
    if value is None:
        return None
    if isinstance(type_, Nested):
        return as_plain(value, version)
    if isinstance(type_, Array):
        return [_plain(element, type_.element, version) for element in value]
    if isinstance(type_, Fixed) and type_.code == "16s":
        return value.hex()
    return len(value) if isinstance(value, memoryview) else value
