"""Invariant of retention: no replica deletes records before the settings of their topic permit it (R4)."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from tidelog.cluster import znodes
from tidelog.protocol.record_batch import read_header
from tidelog.store.tree import StoredNode
from tidelog.types import Buffer, TopicPartition, Uuid

DEFAULT_RETENTION_MS = 86_400_000
"""The shortest one that the workload gives to brokers as a whole; their own default is a week."""
UNLIMITED = -1


class Retention(NamedTuple):
    """The settings of a topic, as the store has them."""

    is_deleting: bool = True
    retention_ms: int = DEFAULT_RETENTION_MS
    retention_bytes: int = UNLIMITED

    def permits(self, age_ms: int, kept_bytes: int) -> bool:
        """To delete records of which the youngest has this age, and leave so many bytes."""
        is_old = self.retention_ms >= 0 and age_ms > self.retention_ms
        is_large = self.retention_bytes >= 0 and kept_bytes >= self.retention_bytes
        return self.is_deleting and (is_old or is_large)


class Deletion(NamedTuple):
    """What retention has just done to the log of one replica."""

    topic_partition: TopicPartition
    topic_id: Uuid | None
    start_before: int
    start: int
    kept_bytes: int
    high_watermark: int
    now_ms: int
    """By the clock of the broker: it may be wrong, and is all that the broker has."""


class RetentionAudit:
    """Knows the timestamps of all batches that were written, and all settings that it has seen of a topic.

    A setting that was changed reaches brokers later: they may act on an earlier one.
    """

    def __init__(self) -> None:
        self._timestamps: dict[tuple[Uuid | None, TopicPartition], dict[int, int]] = defaultdict(dict)
        """By base offset."""
        self._seen: dict[tuple[Uuid | None, str], set[Retention]] = defaultdict(set)

    def on_appended(self, topic_partition: TopicPartition, topic_id: Uuid | None, batches: Sequence[Buffer]) -> None:
        known = self._timestamps[topic_id, topic_partition]
        for batch in batches:
            header = read_header(memoryview(batch))
            known[header.base_offset] = header.max_timestamp

    def on_deleted(self, deletion: Deletion, nodes: Mapping[str, StoredNode]) -> Iterator[str]:
        """What is wrong with it; `nodes` are those of the store."""
        if deletion.start > deletion.high_watermark:
            yield f"R4 retention has deleted up to {deletion.start}, above the high watermark {deletion.high_watermark}"
        topic = deletion.topic_partition.topic
        seen = self._seen[deletion.topic_id, topic]
        node = nodes.get(znodes.topic_config_path(topic))
        if node is not None:
            seen.add(retention_in(znodes.decode_config(node.data, topic)))
        youngest_ms = self._youngest(deletion)
        if youngest_ms is None or not seen:
            return
        age_ms = deletion.now_ms - youngest_ms
        if not any(retention.permits(age_ms, deletion.kept_bytes) for retention in seen):
            yield (
                f"R4 retention has deleted {deletion.start_before} to {deletion.start - 1} at an age of {age_ms} ms,"
                f" and kept {deletion.kept_bytes} bytes: too early for {sorted(seen)}"
            )

    def _youngest(self, deletion: Deletion) -> int | None:
        known = self._timestamps[deletion.topic_id, deletion.topic_partition]
        gone = (at for base, at in known.items() if deletion.start_before <= base < deletion.start)
        return max(gone, default=None)


def retention_in(configs: Mapping[str, str]) -> Retention:
    return Retention(
        "delete" in configs.get("cleanup.policy", "delete"),
        int(configs.get("retention.ms", DEFAULT_RETENTION_MS)),
        int(configs.get("retention.bytes", UNLIMITED)),
    )
