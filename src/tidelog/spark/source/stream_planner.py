"""Planner of the micro-batches of one streaming query; keeps the state between batches."""

from collections.abc import Mapping
from typing import Any

from tidelog.client.routing.cluster import Cluster
from tidelog.spark import client_thread
from tidelog.spark.offset_json import Offsets, from_dict, to_dict
from tidelog.spark.options.query import ReadOptions
from tidelog.spark.source import offset_bounds
from tidelog.spark.source.batch_planning import Limits, OffsetRange, end_offsets, ranges_between, split
from tidelog.spark.source.cluster_queries import TopicWatch
from tidelog.spark.source.record_sizes import record_bytes
from tidelog.spark.source.stream_positions import NextOffsets, find_next_offsets, resume_offsets
from tidelog.types import TopicPartition

NEVER_S = float("inf")


class StreamPlanner:
    """Positions are passed as the JSON that Spark stores in its checkpoint."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._watch = TopicWatch(options)
        self._fixed_end: Offsets | None = None
        """End of a query with Trigger.AvailableNow, fixed at its start."""
        self._initial: dict[str, Any] | None = None
        self._at_their_end: frozenset[TopicPartition] = frozenset()
        """Partitions without records at the start of the query; kept until the first micro-batch is planned."""
        self._latest: dict[str, Any] | None = None
        self._triggered_at_s = -NEVER_S

    def _cluster(self) -> Cluster:
        return client_thread.cluster_for(self._options.bootstrap, self._options.client)

    async def initial(self) -> dict[str, Any]:
        """Start of a new query. Spark calls it twice, and again after a failure in the first micro-batch."""
        if self._initial is None:
            found = await offset_bounds.resolve(self._cluster(), self._options)
            ends = await offset_bounds.latest(self._cluster(), found, self._options)
            start = await offset_bounds.starting_offsets(self._cluster(), self._options, found)
            self._at_their_end = frozenset(key for key, offset in start.items() if offset >= ends.get(key, 0))
            self._initial = to_dict(start, found.topic_ids)
        return self._initial

    async def fix_end(self) -> None:
        found = await offset_bounds.resolve(self._cluster(), self._options)
        self._fixed_end = await offset_bounds.latest(self._cluster(), found, self._options)

    def latest_seen(self) -> dict[str, Any] | None:
        return self._latest

    async def next_end(self, start: Mapping[str, Any], limits: Limits, now_s: float) -> dict[str, Any]:
        """End of the next micro-batch; `start` if there are no new records, or not enough."""
        next_offsets = await find_next_offsets(self._cluster(), self._options, from_dict(start), self._watch)
        self._latest = to_dict(next_offsets.available, next_offsets.topics.topic_ids)
        available = self._bounded_by_fixed_end(next_offsets)
        if start == self._initial:
            available |= self._empty_at_start(next_offsets)
        if self._fixed_end is not None:
            # No more records will be read, so the minimum can never be reached.
            limits = Limits(max_offsets=limits.max_offsets, max_bytes=limits.max_bytes)
        sizes = None
        if limits.max_bytes is not None:
            sizes = await record_bytes(
                self._cluster(), self._options, next_offsets.topics, next_offsets.start, available
            )
        end = end_offsets(next_offsets.start, available, limits, now_s - self._triggered_at_s, sizes)
        if end != next_offsets.start:
            self._triggered_at_s = now_s
        return to_dict(end, next_offsets.topics.topic_ids)

    def _empty_at_start(self, next_offsets: NextOffsets) -> Offsets:
        """Ends of the first micro-batch in empty partitions: Spark stores ends of batches, not the start.

        A query that starts at the end of a partition and fails in its first batch finds a later end after a restart.
        It would skip the records in between if they belonged to that batch.
        """
        ended, self._at_their_end = self._at_their_end, frozenset()
        return {key: next_offsets.start[key] for key in ended & next_offsets.start.keys()}

    def _bounded_by_fixed_end(self, next_offsets: NextOffsets) -> Offsets:
        fixed = self._fixed_end
        if fixed is None:
            return next_offsets.available
        start = next_offsets.start
        return {
            key: max(start[key], min(end, fixed.get(key, start[key]))) for key, end in next_offsets.available.items()
        }

    async def ranges(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[OffsetRange]:
        """Ranges of a micro-batch in the checkpoint; after a restart it may be old."""
        options, until = self._options, from_dict(end)
        partitions = offset_bounds.Topics(tuple(sorted(until.offsets)), until.topic_ids)
        begin = await resume_offsets(self._cluster(), options, partitions, from_dict(start))
        found = ranges_between(begin, until.offsets, until.topic_ids)
        return split(found, options.min_partitions, options.max_records_per_partition)
