"""Public consumer: of given partitions, of whole topics, or as a member of a group."""

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Literal, TypeAlias

from tidelog.client.api.arrow_tables import table_of
from tidelog.client.api.client_config import BOOLEAN, Parse, choice, number, open_cluster, parse_config
from tidelog.client.api.values import Record, RecordBatch
from tidelog.client.consumer.consumer import BEGINNING, END
from tidelog.client.consumer.consumer import Consumer as AssignedConsumer
from tidelog.client.consumer.consumer_settings import READ_COMMITTED, READ_UNCOMMITTED, AtTime, ConsumerSettings
from tidelog.client.consumer.fetched_records import NO_RECORDS, ConsumedRecords
from tidelog.client.groups.group_consumer import GroupConsumer
from tidelog.client.groups.group_member import GroupConsumerSettings
from tidelog.client.groups.group_offsets import GroupMember
from tidelog.client.routing.cluster import Cluster
from tidelog.types import TopicPartition

Start: TypeAlias = "int | Literal['earliest', 'latest']"
OnRevoked: TypeAlias = Callable[[frozenset[TopicPartition]], Awaitable[None]]

STARTS = {"earliest": BEGINNING, "latest": END}
ISOLATION = {"read_committed": READ_COMMITTED, "read_uncommitted": READ_UNCOMMITTED}
PROTOCOLS = {"consumer": False, "classic": True}

SETTINGS: Mapping[str, Parse] = {
    "group.id": str,
    "group.instance.id": str,
    "group.protocol": choice(PROTOCOLS),
    "auto.offset.reset": choice(STARTS),
    "isolation.level": choice(ISOLATION),
    "session.timeout.ms": number(1),
    "heartbeat.interval.ms": number(1),
    "max.poll.interval.ms": number(1),
    "fetch.min.bytes": number(),
    "fetch.max.bytes": number(1),
    "fetch.max.wait.ms": number(),
    "max.partition.fetch.bytes": number(1),
    "enable.auto.commit": BOOLEAN,
    "auto.commit.interval.ms": number(1),
}


class Consumer:
    """`async with Consumer("localhost:29092", "tides") as consumer:`, then `async for record in consumer`.

    With a group, its members share the partitions of the topics, `commit` keeps how far they are, and partitions come
    and go only while the consumer waits for records. Without one, all partitions are read, or those that are named. For
    one task.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        topics: "str | Sequence[str] | Mapping[TopicPartition, Start]",
        *,
        group: str | None = None,
        start: Literal["earliest", "latest"] | None = None,
        isolation: Literal["read_committed", "read_uncommitted"] | None = None,
        on_revoked: OnRevoked | None = None,
        client_id: str | None = None,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """`topics`: names; or partitions, each with an offset, "earliest" or "latest".

        `start`: where to begin without a committed offset; default: latest, as in Kafka.
        `isolation`: default read_committed: records of aborted and open transactions are not returned.
        `on_revoked`: called with partitions that another member gets; the last chance to commit their offsets.
        `config`: settings with the names of Kafka's clients; arguments come before them.
        """
        self._bootstrap_servers = bootstrap_servers
        self._topics = [topics] if isinstance(topics, str) else topics
        self._client_id = client_id
        self._config = found = parse_config(config, SETTINGS)
        self._group = found.get("group.id", group, "")
        if self._group and isinstance(self._topics, Mapping):
            raise ValueError("partitions are either named or shared by a group, not both")
        self._start = found.get("auto.offset.reset", None if start is None else choice(STARTS)(start), END)
        level = None if isolation is None else choice(ISOLATION)(isolation)
        defaults = ConsumerSettings()
        self._reading = ConsumerSettings(
            isolation_level=found.get("isolation.level", level, READ_COMMITTED),
            max_wait_ms=found.get("fetch.max.wait.ms", None, defaults.max_wait_ms),
            min_bytes=found.get("fetch.min.bytes", None, defaults.min_bytes),
            max_bytes=found.get("fetch.max.bytes", None, defaults.max_bytes),
            partition_max_bytes=found.get("max.partition.fetch.bytes", None, defaults.partition_max_bytes),
            reset_to=self._start,
        )
        self._on_revoked = on_revoked
        self._reader: AssignedConsumer | GroupConsumer | None = None
        self._last: Record | None = None
        """The last record that was returned of a batch that is returned one by one."""
        self._one_by_one(NO_RECORDS)
        self._commit_interval_s = found.get("auto.commit.interval.ms", None, 5000) / 1000
        self._commits_by_itself = bool(self._group) and found.get("enable.auto.commit", None, default=False)
        self._committed_at = 0.0
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> "Consumer":
        async with AsyncExitStack() as stack:
            cluster = await stack.enter_async_context(
                open_cluster(self._bootstrap_servers, self._client_id, self._config)
            )
            if self._group:
                self._reader = await stack.enter_async_context(self._group_consumer(cluster))
            else:
                reader = AssignedConsumer(cluster, self._reading)
                await reader.assign(await self._assignment(cluster))
                self._reader = await stack.enter_async_context(reader)
            self._committed_at = asyncio.get_running_loop().time()
            self._stack = stack.pop_all()
        return self

    def _group_consumer(self, cluster: Cluster) -> GroupConsumer:
        assert not isinstance(self._topics, Mapping)
        found, defaults = self._config, GroupConsumerSettings()
        settings = GroupConsumerSettings(
            is_classic=found.get("group.protocol", None, default=False),
            session_timeout_ms=found.get("session.timeout.ms", None, defaults.session_timeout_ms),
            heartbeat_interval_ms=found.get("heartbeat.interval.ms", None, defaults.heartbeat_interval_ms),
            max_poll_interval_ms=found.get("max.poll.interval.ms", None, defaults.max_poll_interval_ms),
            instance_id=found.get("group.instance.id", None, None),
            start_at=self._start,
            reading=self._reading,
        )
        return GroupConsumer(cluster, self._group, self._topics, settings, on_revoked=self._revoked)

    async def _assignment(self, cluster: Cluster) -> dict[TopicPartition, int | AtTime]:
        if isinstance(self._topics, Mapping):
            return {
                TopicPartition(*key): STARTS[start] if isinstance(start, str) else start
                for key, start in self._topics.items()
            }
        metadata = await cluster.topics_in_use(self._topics)
        return {
            TopicPartition(name, partition): self._start
            for name in self._topics
            for partition in metadata.topic(name).partitions
        }

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Leave the group, so that others get the partitions at once."""
        try:
            if self._commits_by_itself and error is None:
                await self.commit()
        finally:
            self._reader = None
            self._one_by_one(NO_RECORDS)
            await self._stack.__aexit__(None if error is None else type(error), error, None)

    # ---- reading

    def __aiter__(self) -> "Consumer":
        return self

    async def __anext__(self) -> Record:
        while (record := next(self._unread, None)) is None:
            self._one_by_one(await self._fetch(None))
        self._last = record
        return record

    def _one_by_one(self, batch: ConsumedRecords) -> None:
        """Return these records one by one."""
        self._batch = batch
        self._unread = iter(batch)
        self._last = None

    def _rest(self) -> ConsumedRecords:
        """Records that were fetched, and not returned yet."""
        if self._last is None:
            return self._batch
        return self._batch[bisect_right(self._batch.columns.offsets, self._last.offset) :]

    async def _next_batch(self, timeout_s: float | None = None) -> ConsumedRecords:
        rest = self._rest()
        if not rest:
            return await self._fetch(timeout_s)
        self._one_by_one(NO_RECORDS)
        return rest

    async def poll(self, timeout_s: float | None = None) -> list[Record]:
        """The next records, as many as are there; empty after the timeout."""
        return list(await self._next_batch(timeout_s))

    async def batches(self) -> AsyncIterator[RecordBatch]:
        """Records in groups of one partition, as they were fetched: much cheaper than one by one."""
        while True:
            records = await self._next_batch()
            yield RecordBatch(records.topic, records.partition, records)

    async def tables(self) -> AsyncIterator[Any]:
        """Records as `pyarrow.Table` with the columns topic, partition, offset, timestamp, key, value and headers.

        Needs `pip install 'tidelog[arrow]'`.
        """
        while True:
            yield table_of(await self._next_batch())

    async def _fetch(self, timeout_s: float | None) -> ConsumedRecords:
        if self._commits_by_itself:
            now = asyncio.get_running_loop().time()
            if now - self._committed_at >= self._commit_interval_s:
                self._committed_at = now
                await self.commit()
        return await self._open.poll_batch(timeout_s)

    # ---- positions

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """Offset of the next record of each partition."""
        positions = dict(self._open.positions)
        rest = self._rest()
        if rest:
            positions[TopicPartition(rest.topic, rest.partition)] = rest.columns.offsets[0]
        return positions

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """Partitions that are read now."""
        reader = self._open
        return reader.partitions if isinstance(reader, GroupConsumer) else frozenset(reader.positions)

    async def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Commit offsets of the group; by default of all records that were returned."""
        await self._in_group.commit(self.positions if offsets is None else offsets)

    async def _revoked(self, partitions: frozenset[TopicPartition]) -> None:
        if self._on_revoked is not None:
            await self._on_revoked(partitions)
        if self._commits_by_itself:
            await self.commit({key: offset for key, offset in self.positions.items() if key in partitions})

    def _group_state(self) -> tuple[GroupMember, dict[TopicPartition, int]]:
        """For transactions that commit offsets."""
        return self._in_group.member, self.positions

    @property
    def _open(self) -> "AssignedConsumer | GroupConsumer":
        if self._reader is None:
            raise RuntimeError("the consumer is not open: use it in `async with Consumer(...) as consumer:`")
        return self._reader

    @property
    def _in_group(self) -> GroupConsumer:
        if not isinstance(self._open, GroupConsumer):
            raise RuntimeError("the consumer is in no group: Consumer(..., group='name')")
        return self._open
