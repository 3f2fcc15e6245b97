"""Invariant of retention: no replica deletes records before the settings of their topic permit it (R4)."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from tidelog.cluster import znodes
from tidelog.protocol.record_batch import read_header
from tidelog.store.tree import StoredNode
from tidelog.types import Buffer, TopicPartition, Uuid

DEFAULT_RETENTION_MS = 86_400_000
"""Shortest cluster-wide retention that the workload sets; the default is a week."""
UNLIMITED = -1


class Retention(NamedTuple):
    """Retention settings of a topic in the store."""

    is_deleting: bool = True
    retention_ms: int = DEFAULT_RETENTION_MS
    retention_bytes: int = UNLIMITED

    def permits(self, age_ms: int, kept_bytes: int) -> bool:
        """True if records with this minimum age may be deleted, leaving `kept_bytes`."""
        is_old = self.retention_ms >= 0 and age_ms > self.retention_ms
        is_large = self.retention_bytes >= 0 and kept_bytes >= self.retention_bytes
        return self.is_deleting and (is_old or is_large)


class Deletion(NamedTuple):
    """Deletion by retention in the log of one replica."""

    topic_partition: TopicPartition
    topic_id: Uuid | None
    start_before: int
    start: int
    kept_bytes: int
    high_watermark: int
    now_ms: int
    """Time of the broker's own clock, which may be wrong."""


class RetentionAudit:
    """Keeps the timestamps of all written batches and all settings that a topic ever had.

    A changed setting reaches brokers later: they may use an earlier one.
    """

    def __init__(self) -> None:
        self._timestamps: dict[tuple[Uuid | None, TopicPartition], dict[int, int]] = defaultdict(dict)
        """Timestamps by base offset."""
        self._seen: dict[tuple[Uuid | None, str], set[Retention]] = defaultdict(set)

    def on_appended(self, topic_partition: TopicPartition, topic_id: Uuid | None, batches: Sequence[Buffer]) -> None:
        timestamps = self._timestamps[topic_id, topic_partition]
        for batch in batches:
            header = read_header(memoryview(batch))
            timestamps[header.base_offset] = header.max_timestamp

    def on_deleted(self, deletion: Deletion, nodes: Mapping[str, StoredNode]) -> Iterator[str]:
        """Violations of a deletion; `nodes` are the nodes of the store."""
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
        timestamps = self._timestamps[deletion.topic_id, deletion.topic_partition]
        gone = (at for base, at in timestamps.items() if deletion.start_before <= base < deletion.start)
        return max(gone, default=None)


def retention_in(configs: Mapping[str, str]) -> Retention:
    return Retention(
        "delete" in configs.get("cleanup.policy", "delete"),
        int(configs.get("retention.ms", DEFAULT_RETENTION_MS)),
        int(configs.get("retention.bytes", UNLIMITED)),
    )
