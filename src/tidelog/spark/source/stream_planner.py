"""Plans the micro-batches of one streaming query: keeps what must be remembered between them."""

from collections.abc import Mapping
from typing import Any

from tidelog.client.cluster import Cluster
from tidelog.spark import client_thread
from tidelog.spark.offset_json import Offsets, from_dict, to_dict
from tidelog.spark.options.query import ReadOptions
from tidelog.spark.source import offset_bounds
from tidelog.spark.source.batch_planning import Limits, OffsetRange, end_offsets, ranges_between, split
from tidelog.spark.source.cluster_queries import TopicWatch
from tidelog.spark.source.record_sizes import record_bytes
from tidelog.spark.source.stream_positions import Outlook, going_on, look_ahead
from tidelog.types import TopicPartition

NEVER_S = float("inf")


class StreamPlanner:
    """Positions come and go as Spark writes them into its checkpoint."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._watch = TopicWatch(options)
        self._fixed_end: Offsets | None = None
        """Of a query that ends when it has read what there was at its start."""
        self._initial: dict[str, Any] | None = None
        self._at_their_end: frozenset[TopicPartition] = frozenset()
        """Partitions that had nothing to read where the query starts; until the first micro-batch is planned."""
        self._latest: dict[str, Any] | None = None
        self._triggered_at_s = -NEVER_S

    def _cluster(self) -> Cluster:
        return client_thread.cluster_for(self._options.bootstrap, self._options.client)

    async def initial(self) -> dict[str, Any]:
        """Where a new query starts. Spark asks twice for it, and again after a failure in the first micro-batch."""
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
        """Where the next micro-batch ends; `start` if there is nothing new, or not yet enough."""
        outlook = await look_ahead(self._cluster(), self._options, from_dict(start), self._watch)
        self._latest = to_dict(outlook.available, outlook.topics.topic_ids)
        available = self._not_after_fixed_end(outlook)
        if start == self._initial:
            available |= self._to_be_written_down(outlook)
        if self._fixed_end is not None:
            # Nothing more will come: to wait for enough of it would be to wait forever.
            limits = Limits(max_offsets=limits.max_offsets, max_bytes=limits.max_bytes)
        sizes = None
        if limits.max_bytes is not None:
            sizes = await record_bytes(self._cluster(), self._options, outlook.topics, outlook.start, available)
        end = end_offsets(outlook.start, available, limits, now_s - self._triggered_at_s, sizes)
        if end != outlook.start:
            self._triggered_at_s = now_s
        return to_dict(end, outlook.topics.topic_ids)

    def _to_be_written_down(self, outlook: Outlook) -> Offsets:
        """Ends of the first micro-batch: Spark writes down where batches end, not where the first one starts.

        A query that starts at the end of a partition and fails in its first batch finds that end further on when it is
        started again, and would never read what came in between if it belonged to that batch.
        """
        ended, self._at_their_end = self._at_their_end, frozenset()
        return {key: outlook.start[key] for key in ended & outlook.start.keys()}

    def _not_after_fixed_end(self, outlook: Outlook) -> Offsets:
        fixed = self._fixed_end
        if fixed is None:
            return outlook.available
        start = outlook.start
        return {key: max(start[key], min(end, fixed.get(key, start[key]))) for key, end in outlook.available.items()}

    async def ranges(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[OffsetRange]:
        """What to read of a micro-batch that Spark has written down; after a restart perhaps long ago."""
        options, until = self._options, from_dict(end)
        partitions = offset_bounds.Topics(tuple(sorted(until.offsets)), until.topic_ids)
        begin = await going_on(self._cluster(), options, partitions, from_dict(start))
        found = ranges_between(begin, until.offsets, until.topic_ids)
        return split(found, options.min_partitions, options.max_records_per_partition)
