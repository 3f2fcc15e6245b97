"""Expiration of committed offsets and empty groups, and deletion of offsets of deleted topics."""

# Core that logs: no clock, no I/O, no await.

import logging
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

from tidelog.groups.committed_offsets import CommittedOffsets, Value
from tidelog.groups.group import Group, GroupSettings, offsets_retention_ms
from tidelog.groups.offset_records import decode_value, encode_key, times_of
from tidelog.groups.statistics import GroupCounts
from tidelog.replicated.machine import Effects
from tidelog.types import TopicPartition, Uuid

logger = logging.getLogger(__name__)

OWNER = "offsets"
EXPIRE_OFFSETS = (OWNER, "expire offsets")
DELETE_OFFSETS_OF_TOPICS = (OWNER, "delete offsets of topics")

MAX_TOMBSTONES = 1_000
"""Maximum per step: more would not fit into one batch, and other requests must get their turn."""

MAX_CHECKED = 2_000
"""Maximum number of offsets and groups checked per step."""
CONTINUE_AFTER_MS = 20
RETRY_AFTER_MS = 1_000


class Expiry:
    def __init__(
        self,
        groups: Mapping[str, Group],
        committed: CommittedOffsets,
        settings: Callable[[], GroupSettings],
        counts: GroupCounts,
    ) -> None:
        self._groups = groups
        self._committed = committed
        self._settings = settings
        self._deleted_topics: dict[str, Uuid] = {}
        """Deleted topics whose offsets may remain."""
        self._unchecked: list[str] = []
        """Groups not yet checked in this round."""
        self._counts = counts

    def on_loaded(self, effects: Effects) -> None:
        effects.set_timer(EXPIRE_OFFSETS, self._settings().offsets_retention_check_interval_ms)

    def on_timer(self, key: Any, effects: Effects) -> None:
        if key == EXPIRE_OFFSETS:
            self._expire_some(effects)
        elif key == DELETE_OFFSETS_OF_TOPICS:
            self._delete_some(effects)

    # ---- expiration

    def _expire_some(self, effects: Effects) -> None:
        """Check some groups per step: one round may cover a hundred thousand offsets."""
        if not self._unchecked:
            self._unchecked = list(self._groups)
        checked_count = 0
        while self._unchecked and checked_count < MAX_CHECKED and len(effects.records) < MAX_TOMBSTONES:
            group = self._groups.get(self._unchecked[-1])
            checked_count += 1 if group is None else self._expire(group, effects)
            if len(effects.records) < MAX_TOMBSTONES:
                self._unchecked.pop()
        interval_ms = self._settings().offsets_retention_check_interval_ms
        effects.set_timer(EXPIRE_OFFSETS, CONTINUE_AFTER_MS if self._unchecked else interval_ms)
        effects.on_rejected = lambda _, instead: instead.set_timer(EXPIRE_OFFSETS, interval_ms)

    def _expire(self, group: Group, effects: Effects) -> int:
        """Expire the group's offsets. Returns the number of checked items: its offsets, plus one for the group."""
        group_id, room = group.group_id, MAX_TOMBSTONES - len(effects.records)
        expired = list(islice(self._expired(group, effects.now_ms), room))
        for topic, partition in expired:
            effects.write(encode_key(group_id, topic, partition), None)
        self._counts.expirations += len(expired)
        stored_count = sum(len(partitions) for partitions in self._committed.of_group(group_id).values())
        is_unused = len(expired) == stored_count and not self._committed.has_transactions(group_id)
        if is_unused and group.is_empty:
            group.write_tombstones(effects)
            logger.info("group expired group=%s offsets=%d", group_id, len(expired))
        elif expired:
            left = stored_count - len(expired)
            logger.info("offsets expired group=%s offsets=%d left=%d", group_id, len(expired), left)
        return 1 + stored_count

    def _expired(self, group: Group, now_ms: int) -> Iterator[TopicPartition]:
        group_id, retention_ms = group.group_id, offsets_retention_ms(self._settings())
        for topic, partitions in self._committed.of_group(group_id).items():
            if group.is_subscribed_to(topic):
                continue
            for partition, value in partitions.items():
                if _is_expired(group, value, now_ms, retention_ms) and not self._committed.is_pending(
                    group_id, topic, partition
                ):
                    yield TopicPartition(topic, partition)

    # ---- deleted topics

    def delete_offsets_of_topics(self, deleted: Mapping[str, Uuid], effects: Effects) -> None:
        self._deleted_topics.update(deleted)
        self._delete_some(effects)

    def _delete_some(self, effects: Effects) -> None:
        found = list(islice(self._of_deleted_topics(), MAX_TOMBSTONES))
        if not found:
            self._deleted_topics.clear()
            return
        for group_id, topic_partition in found:
            effects.write(encode_key(group_id, topic_partition.topic, topic_partition.partition), None)
        logger.info(
            "deleting offsets of deleted topics topics=%s offsets=%d", ",".join(self._deleted_topics), len(found)
        )
        effects.set_timer(
            DELETE_OFFSETS_OF_TOPICS, CONTINUE_AFTER_MS if len(found) == MAX_TOMBSTONES else RETRY_AFTER_MS
        )

    def _of_deleted_topics(self) -> Iterator[tuple[str, TopicPartition]]:
        """Offsets of deleted topics, without those committed to a new topic of the same name."""
        for group_id in self._groups:
            stored = self._committed.of_group(group_id)
            for topic in self._deleted_topics.keys() & stored.keys():
                for partition, value in stored[topic].items():
                    if self._belongs_to_deleted(topic, value):
                        yield group_id, TopicPartition(topic, partition)
            for pending, value in self._committed.pending_values(group_id):
                if pending.topic in self._deleted_topics and self._belongs_to_deleted(pending.topic, value):
                    yield group_id, pending

    def _belongs_to_deleted(self, topic: str, value: Value) -> bool:
        return decode_value(value).is_of(self._deleted_topics[topic])


def _is_expired(group: Group, value: Value, now_ms: int, retention_ms: int) -> bool:
    committed_at_ms, expires_at_ms = times_of(value)
    unused_since_ms = group.offsets_unused_since_ms(committed_at_ms)
    if unused_since_ms is None:
        return False
    if expires_at_ms >= 0:
        return now_ms >= expires_at_ms
    return now_ms - unused_since_ms >= retention_ms
