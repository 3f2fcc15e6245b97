"""Consumer of assigned partitions: `async for record in consumer`. It follows partitions to new leaders.

In a rack (`Cluster.client_rack`) it reads from the replicas that leaders prefer for it (KIP-392).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress

from tidelog.client.consumer.broker_fetcher import BrokerFetcher, Position
from tidelog.client.consumer.consumer_settings import AtTime, ConsumerSettings
from tidelog.client.consumer.fetched_records import ConsumedRecord, ConsumedRecords, FetchedBatches
from tidelog.client.consumer.offsets import BEGINNING, END, ends_of_epochs, list_offsets
from tidelog.client.network.in_flight import ConnectionLost
from tidelog.client.network.retries import Backoff, GaveUp, is_retriable
from tidelog.client.network.tasks import BackgroundTasks
from tidelog.client.routing.cluster import Cluster
from tidelog.client.routing.metadata import Leader
from tidelog.errors import KafkaError, OffsetOutOfRange, UnknownTopicOrPartition
from tidelog.types import NO_LEADER_EPOCH, NO_OFFSET, BrokerId, TopicPartition

__all__ = ["BEGINNING", "END", "AtTime", "ConsumedRecord", "Consumer", "ConsumerSettings"]

logger = logging.getLogger(__name__)

MAX_FETCHED_RESPONSES = 4
"""Fetched partition responses that are not read yet, above which fetching pauses."""

MAX_POLL_RECORDS = 10_000
"""Maximum records of one `poll`: a batch of a few kilobytes may hold millions of records."""

STABLE_LEADER_S = 5.0
"""If leaders are lost again within this time, the next lookup waits for a backoff."""


class Consumer:
    """`async with Consumer(cluster) as consumer`. Retriable errors are retried, others end the iteration."""

    def __init__(self, cluster: Cluster, settings: ConsumerSettings | None = None) -> None:
        self._cluster = cluster
        self.settings = settings or ConsumerSettings()
        self._tasks = BackgroundTasks()
        self._fetchers: dict[BrokerId, BrokerFetcher] = {}
        self._unplaced: dict[TopicPartition, Position] = {}
        self._has_unplaced = asyncio.Event()
        self._fetched: asyncio.Queue[FetchedBatches | Exception] = asyncio.Queue(MAX_FETCHED_RESPONSES)
        self._current: FetchedBatches | None = None
        self._slices: Iterator[ConsumedRecords] = iter(())
        self._buffer: deque[ConsumedRecords] = deque()
        """Decoded records of the current batches that are not returned yet."""
        self._reached: tuple[TopicPartition, int] | None = None
        """Position of that partition once the buffer has been returned."""
        self.positions: dict[TopicPartition, int] = {}
        """Next offset of each partition: after returned records, and after records that are never returned (markers,
        aborted ones). Advanced when all records that were decoded together have been returned."""

    async def __aenter__(self) -> "Consumer":
        await self._tasks.open()
        self._tasks.start(self._place_positions())
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        await self._tasks.close(error)

    async def assign(self, starts: Mapping[TopicPartition, int | AtTime]) -> dict[TopicPartition, int]:
        """Add partitions, each with an offset, a time, BEGINNING or END. Returns the offsets."""
        offsets = await self._find_offsets(starts)
        for topic_partition, offset in offsets.items():
            self._unplaced[topic_partition] = Position(topic_partition, offset)
        self.positions |= offsets
        self._has_unplaced.set()
        return offsets

    async def _find_offsets(self, starts: Mapping[TopicPartition, int | AtTime]) -> dict[TopicPartition, int]:
        await self._cluster.topics_in_use({topic for topic, _ in starts})
        found: dict[TopicPartition, int] = {}
        timestamps: dict[TopicPartition, int] = {}
        for topic_partition, start in starts.items():
            if isinstance(start, AtTime):
                timestamps[topic_partition] = start.timestamp_ms
            elif start in (BEGINNING, END):
                timestamps[topic_partition] = start
            else:
                found[topic_partition] = start
        found |= await self._look_up(timestamps)
        without_record = {key: END for key in timestamps if found[key] == NO_OFFSET}
        return found | await self._look_up(without_record)

    async def _look_up(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        if not timestamps:
            return {}
        responses = await list_offsets(
            self._cluster,
            timestamps,
            isolation_level=self.settings.isolation_level,
            timeout_s=self.settings.lookup_timeout_s,
        )
        return {key: response.offset for key, response in responses.items()}

    # ---- reading

    def __aiter__(self) -> "Consumer":
        return self

    async def __anext__(self) -> ConsumedRecord:
        while not self._buffer:
            await self._fill_buffer()
        first = self._buffer.popleft()
        if len(first) > 1:
            self._buffer.appendleft(first[1:])
        return first[0]

    async def poll(self, timeout_s: float | None = None) -> list[ConsumedRecord]:
        """The records of the next fetched batches, at most about MAX_POLL_RECORDS; empty after the timeout."""
        return list(await self.poll_batch(timeout_s))

    async def poll_batch(self, timeout_s: float | None = None) -> ConsumedRecords:
        """Like `poll`; all records are of one partition."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not self._buffer or (self._current is not None and self._buffered < MAX_POLL_RECORDS):
                    await self._fill_buffer()
        records = ConsumedRecords.joined(self._buffer)
        self._buffer.clear()
        self._advance_position()
        return records

    @property
    def _buffered(self) -> int:
        return sum(map(len, self._buffer))

    async def _fill_buffer(self) -> None:
        """Decode the next slice of the current batches. Yields to other tasks if the slice has no visible records.

        After a cancellation decoded records are still in the buffer, and positions are before them.
        """
        if not self._buffer:
            self._advance_position()
        if self._current is None:
            fetched = await self._fetched.get()
            if isinstance(fetched, Exception):
                raise fetched
            self._current, self._slices = fetched, fetched.slices()
        found = next(self._slices, None)
        if found is None:
            self._reached = self._current.topic_partition, self._current.next_offset
            self._current = None
        elif found:
            self._buffer.append(found)
            self._reached = self._current.topic_partition, found.columns.offsets[-1] + 1
        else:
            await asyncio.sleep(0)

    def _advance_position(self) -> None:
        if self._reached is not None:
            key, offset = self._reached
            self.positions[key], self._reached = offset, None

    # ---- finding leaders

    def _on_dropped(self, position: Position, error: KafkaError | ConnectionLost) -> None:
        logger.info(
            "lost partition leader partition=%s offset=%d reason=%s", position.topic_partition, position.offset, error
        )
        if not position.read_replica.is_leader:
            position.read_replica.on_failed(asyncio.get_running_loop().time())
            self._unplace(position)
        elif isinstance(error, OffsetOutOfRange):
            self._tasks.start(self._reset(position, error))
        elif is_retriable(error):
            self._unplace(position)
        else:
            self._tasks.start(self._fetched.put(error))

    def _on_moved(self, position: Position) -> None:
        if position.read_replica.is_leader:
            self._unplace(position)
        else:
            self._fetcher_of(position.read_replica.broker_id).add(position)

    def _unplace(self, position: Position) -> None:
        self._unplaced[position.topic_partition] = position
        self._has_unplaced.set()

    async def _place_positions(self) -> None:
        """Find leaders of partitions that have none, until cancelled."""
        backoff = Backoff(self._cluster.randomness)
        loop = asyncio.get_running_loop()
        seen_version, last_round_at = -1, -STABLE_LEADER_S
        while True:
            while not self._unplaced:
                self._has_unplaced.clear()
                await self._has_unplaced.wait()
            if loop.time() - last_round_at > STABLE_LEADER_S:
                backoff.reset()
            else:
                await asyncio.sleep(backoff.next_s())
            last_round_at = loop.time()
            try:
                await self._cluster.refresh(seen_version)
                seen_version = self._cluster.metadata.version
                await self._place_positions_with_leaders()
            except (KafkaError, ConnectionLost, GaveUp) as error:
                logger.info("cannot find leaders, retrying partitions=%d reason=%s", len(self._unplaced), error)

    async def _place_positions_with_leaders(self) -> None:
        leaders = {key: leader for key in list(self._unplaced) if (leader := self._leader_of(key)) is not None}
        await self._validate([self._unplaced[key] for key in leaders], leaders)
        for key, leader in leaders.items():
            position = self._unplaced.pop(key, None)
            if position is not None:
                self._place(position, leader)

    def _leader_of(self, key: TopicPartition) -> Leader | None:
        position, now = self._unplaced[key], asyncio.get_running_loop().time()
        position.lost_at = position.lost_at or now
        try:
            return self._cluster.metadata.leader_of(key)
        except KafkaError as error:
            is_missing = isinstance(error, UnknownTopicOrPartition)
            if not error.retriable or (is_missing and now - position.lost_at > self.settings.missing_topic_timeout_s):
                del self._unplaced[key]
                self._tasks.start(self._fetched.put(error))
            return None

    def _place(self, position: Position, leader: Leader) -> None:
        position.leader_epoch = leader.leader_epoch
        position.topic_id = self._cluster.metadata.topic(position.topic_partition.topic).topic_id
        position.lost_at = None
        self._fetcher_of(leader.broker.broker_id).add(position)

    def _fetcher_of(self, broker_id: BrokerId) -> BrokerFetcher:
        fetcher = self._fetchers.get(broker_id)
        if fetcher is None:
            fetcher = BrokerFetcher(
                broker_id, self._cluster, self.settings, self._fetched.put, self._on_dropped, self._on_moved
            )
            self._fetchers[broker_id] = fetcher
            self._tasks.start(fetcher.run())
        return fetcher

    async def _validate(self, positions: list[Position], leaders: Mapping[TopicPartition, Leader]) -> None:
        """Truncation detection (KIP-320): a position beyond the new leader's log moves back to the divergence."""
        moved = {
            position.topic_partition: position
            for position in positions
            if position.last_epoch != NO_LEADER_EPOCH
            and position.leader_epoch != leaders[position.topic_partition].leader_epoch
        }
        if not moved:
            return
        epochs = {key: position.last_epoch for key, position in moved.items()}
        ends = await ends_of_epochs(self._cluster, epochs, timeout_s=self.settings.lookup_timeout_s)
        for key, end in ends.items():
            position = moved[key]
            if NO_OFFSET < end.end_offset < position.offset:
                logger.warning(
                    "log truncation: records that were read are lost partition=%s from_offset=%d to_offset=%d",
                    key, end.end_offset, position.offset,
                )  # fmt: skip
                position.offset, position.last_epoch = end.end_offset, end.leader_epoch
                await self._fetched.put(FetchedBatches.none_at(key, end.end_offset))

    async def _reset(self, position: Position, error: OffsetOutOfRange) -> None:
        """The position is out of range: records were deleted, or never existed."""
        key, target = position.topic_partition, self.settings.reset_to
        try:
            if target is None:
                raise error
            position.offset = (await self._look_up({key: target}))[key]
            position.last_epoch = NO_LEADER_EPOCH
        except (KafkaError, ConnectionLost, GaveUp) as failure:
            await self._fetched.put(failure)
            return
        logger.warning("reset offset partition=%s offset=%d reason=%s", key, position.offset, error)
        await self._fetched.put(FetchedBatches.none_at(key, position.offset))
        self._unplace(position)
