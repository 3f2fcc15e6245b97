"""Inventories of log directories: one per broker, for the controller of an empty store (R44)."""

import json
import zlib
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tidelog.cluster.znodes import DECODING_ERRORS, MalformedNode
from tidelog.types import NO_LEADER_EPOCH, NO_PRODUCER_ID, BrokerId, TopicPartition, Uuid, uuid_from_text, uuid_text

INVENTORIES = "/takeover"
"""One ephemeral node per part of an inventory, `3-0-of-2`: part 0 of the two parts of broker 3."""

MAX_PART_BYTES = 512 * 1024
"""Well below the 1 MB that ZooKeeper accepts in a request (jute.maxbuffer)."""


class FoundLog(NamedTuple):
    """Log of one replica, as found in a log directory."""

    topic_partition: TopicPartition
    topic_id: Uuid | None
    last_epoch: int
    """Leader epoch of the last record. An epoch without records says nothing about the log (R3)."""
    log_start_offset: int
    log_end_offset: int
    high_watermark: int = 0
    """High watermark from the checkpoint: the records below it are committed."""
    epochs: Sequence[tuple[int, int]] = ()
    """Leader epochs of the log with their start offsets."""

    @property
    def completeness(self) -> tuple[int, int]:
        """Of two logs of one partition, the one with the greater value has all committed records of the other."""
        return self.last_epoch, self.log_end_offset

    @property
    def latest_epoch(self) -> int:
        """The newest leader epoch that the log knows of, with or without records."""
        return max(self.last_epoch, *(epoch for epoch, _ in self.epochs[-1:]), NO_LEADER_EPOCH)

    def shared_end(self, other: "FoundLog") -> int:
        """Offset up to which this log has the same records as a more complete one, by log matching (I3)."""
        following = bisect_right(other.epochs, self.last_epoch, key=lambda start: start[0])
        if following == len(other.epochs):
            return min(self.log_end_offset, other.log_end_offset)
        return min(self.log_end_offset, other.epochs[following][1])


class Backup(NamedTuple):
    """A broker's backup of cluster metadata, for the case that the coordination store is lost."""

    members: frozenset[BrokerId] = frozenset()
    """Ids of the brokers that have replicas."""
    controller_epoch: int = 0
    leader_epoch: int = NO_LEADER_EPOCH
    """Highest leader epoch of all partitions. The logs lack epochs without records, which clients may know."""
    last_producer_id: int = NO_PRODUCER_ID
    """Highest producer id of the blocks that this broker allocated."""
    topic_configs: Mapping[str, Mapping[str, str]] = {}
    """Topic-level settings. The settings of a topic that is not listed are unknown."""
    written_ms: int = 0
    store_id: str = ""
    """The coordination store in which `store_changes` were counted."""
    store_changes: int = 0
    """Number of changes that this broker had counted in the store. An older copy of the store has a lower number."""
    directory_ids: frozenset[str] = frozenset()
    """Ids of all log directories of the broker."""
    broker_configs: Mapping[str, Mapping[str, str]] = {}
    """Dynamic settings, by broker id or DEFAULT_ENTITY_NAME."""
    group_configs: Mapping[str, Mapping[str, str]] = {}
    security_nodes: Mapping[str, str] = {}
    """Users, client quotas and ACLs: content by path in the store."""


class Inventory(NamedTuple):
    broker_id: BrokerId
    logs: Sequence[FoundLog] = ()
    backup: Backup | None = None
    """None: this broker has never held a replica, or its log directories are new."""
    controller_epoch: int = 0
    """Highest controller epoch that this broker has seen since it started."""
    last_producer_id: int = NO_PRODUCER_ID
    """Highest producer id in its logs and producer snapshots."""
    empty_directories: Sequence[str] = ()
    """Log directories without a backup, while another directory of the broker has one."""
    offline_directories: Sequence[str] = ()
    missing_directories: Sequence[str] = ()
    """Ids of log directories that the broker had and that log.dirs no longer lists."""


def encode_inventory(inventory: Inventory) -> list[bytes]:
    """Encoded inventory, in as many parts as the size limit requires."""
    content = {
        "version": 1,
        "broker": inventory.broker_id,
        "logs": [
            [
                *log.topic_partition,
                None if log.topic_id is None else uuid_text(log.topic_id),
                log.last_epoch,
                log.log_start_offset,
                log.log_end_offset,
            ]
            for log in inventory.logs
        ],
        "high_watermarks": [log.high_watermark for log in inventory.logs],
        "epochs": [log.epochs for log in inventory.logs],
        "backup": None if inventory.backup is None else backup_content(inventory.backup),
        "controller_epoch": inventory.controller_epoch,
        "last_producer_id": inventory.last_producer_id,
        "empty_directories": list(inventory.empty_directories),
        "offline_directories": list(inventory.offline_directories),
        "missing_directories": list(inventory.missing_directories),
    }
    packed = zlib.compress(json.dumps(content, separators=(",", ":")).encode())
    return [packed[start : start + MAX_PART_BYTES] for start in range(0, len(packed), MAX_PART_BYTES)]


def decode_inventory(parts: Sequence[bytes]) -> Inventory:
    try:
        content = json.loads(zlib.decompress(b"".join(parts)))
        backup = content["backup"]
        entries = content["logs"]
        high_watermarks = content.get("high_watermarks", [0] * len(entries))  # earlier versions have none
        epochs = content.get("epochs", [()] * len(entries))
        return Inventory(
            broker_id=int(content["broker"]),
            logs=[_found_log(*each) for each in zip(entries, high_watermarks, epochs, strict=True)],
            backup=None if backup is None else backup_of(backup),
            controller_epoch=int(content["controller_epoch"]),
            last_producer_id=int(content["last_producer_id"]),
            empty_directories=content["empty_directories"],
            offline_directories=content["offline_directories"],
            missing_directories=tuple(content.get("missing_directories", ())),
        )
    except (*DECODING_ERRORS, zlib.error) as error:
        raise MalformedNode(f"{INVENTORIES}: {error!r}") from error


def _found_log(entry: list[Any], high_watermark: int, epochs: list[list[int]]) -> FoundLog:
    topic, partition, topic_id, last_epoch, log_start_offset, log_end_offset = entry
    return FoundLog(
        TopicPartition(topic, partition),
        None if topic_id is None else uuid_from_text(topic_id),
        last_epoch,
        log_start_offset,
        log_end_offset,
        high_watermark,
        tuple((epoch, start_offset) for epoch, start_offset in epochs),
    )


def backup_content(backup: Backup) -> dict[str, object]:
    """The backup as JSON content."""
    return {
        "version": 1,
        **backup._asdict(),
        "members": sorted(backup.members),
        "topic_configs": _plain(backup.topic_configs),
        "directory_ids": sorted(backup.directory_ids),
        "broker_configs": _plain(backup.broker_configs),
        "group_configs": _plain(backup.group_configs),
        "security_nodes": dict(backup.security_nodes),
    }


def backup_of(content: Mapping[str, Any]) -> Backup:
    """Raises one of DECODING_ERRORS for anything that `backup_content` does not produce."""
    return Backup(
        members=frozenset(map(int, content["members"])),
        controller_epoch=int(content["controller_epoch"]),
        leader_epoch=int(content["leader_epoch"]),
        last_producer_id=int(content["last_producer_id"]),
        topic_configs=_plain(content["topic_configs"]),
        written_ms=int(content["written_ms"]),
        store_id=str(content.get("store_id", "")),  # earlier versions lack this field and the following ones
        store_changes=int(content.get("store_changes", 0)),
        directory_ids=frozenset(map(str, content.get("directory_ids", ()))),
        broker_configs=_plain(content.get("broker_configs", {})),
        group_configs=_plain(content.get("group_configs", {})),
        security_nodes={str(path): str(data) for path, data in content.get("security_nodes", {}).items()},
    )


def _plain(configs: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
    return {str(name): dict(found) for name, found in configs.items()}


def part_name(broker_id: BrokerId, index: int, count: int) -> str:
    return f"{broker_id}-{index}-of-{count}"


def parts_by_broker(names: Sequence[str]) -> dict[BrokerId, list[str]]:
    """Part names in order, for the brokers whose parts are complete."""
    found: dict[BrokerId, dict[int, str]] = {}
    counts: dict[BrokerId, int] = {}
    for name in names:
        broker, index, _, count = name.split("-")
        found.setdefault(int(broker), {})[int(index)] = name
        counts[int(broker)] = int(count)
    return {
        broker_id: [parts[index] for index in range(counts[broker_id])]
        for broker_id, parts in found.items()
        if len(parts) == counts[broker_id]
    }
