"""Reads records of assigned partitions: `async for record in consumer`, wherever their leaders are."""

import asyncio
import logging
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress

from tidelog.client.consumer.broker_fetcher import BrokerFetcher, Position
from tidelog.client.consumer.consumer_settings import AtTime, ConsumerSettings
from tidelog.client.consumer.fetched_records import ConsumedRecord, FetchedBatches
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

MAX_WAITING_ANSWERS = 4
"""Partitions' worth of batches that were fetched and not read yet; then fetching pauses."""

MAX_POLL_RECORDS = 10_000
"""A batch of a few kilobytes may hold millions of records."""

CALM_S = 5.0
"""Leaders that were found so long ago were the right ones; when they are lost sooner, looking again takes a pause."""


class Consumer:
    """`async with Consumer(cluster) as consumer`; retriable errors are met with patience, others end the iteration."""

    def __init__(self, cluster: Cluster, settings: ConsumerSettings | None = None) -> None:
        self._cluster = cluster
        self.settings = settings or ConsumerSettings()
        self._tasks = BackgroundTasks()
        self._fetchers: dict[BrokerId, BrokerFetcher] = {}
        self._unplaced: dict[TopicPartition, Position] = {}
        self._has_unplaced = asyncio.Event()
        self._fetched: asyncio.Queue[FetchedBatches | Exception] = asyncio.Queue(MAX_WAITING_ANSWERS)
        self._current: FetchedBatches | None = None
        self._slices: Iterator[list[ConsumedRecord]] = iter(())
        self._buffer: deque[ConsumedRecord] = deque()
        """Of the current batches, decoded and not given yet."""
        self._reached: tuple[TopicPartition, int] | None = None
        """Where that partition stands when the buffer has been given."""
        self.positions: dict[TopicPartition, int] = {}
        """The ends of what was given, and of what was passed over because it is never shown; moved when all that was
        decoded together has been given."""

    async def __aenter__(self) -> "Consumer":
        await self._tasks.open()
        self._tasks.start(self._place_positions())
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        await self._tasks.close(error)

    async def assign(self, starts: Mapping[TopicPartition, int | AtTime]) -> dict[TopicPartition, int]:
        """Read these partitions too, each from an offset, a time, its BEGINNING or its END; returns the offsets."""
        offsets = await self._find_offsets(starts)
        for topic_partition, offset in offsets.items():
            self._unplaced[topic_partition] = Position(topic_partition, offset)
        self.positions |= offsets
        self._has_unplaced.set()
        return offsets

    async def _find_offsets(self, starts: Mapping[TopicPartition, int | AtTime]) -> dict[TopicPartition, int]:
        await self._cluster.topics_in_use({topic for topic, _ in starts})
        found: dict[TopicPartition, int] = {}
        to_look_up: dict[TopicPartition, int] = {}
        for topic_partition, start in starts.items():
            if isinstance(start, AtTime):
                to_look_up[topic_partition] = start.timestamp_ms
            elif start in (BEGINNING, END):
                to_look_up[topic_partition] = start
            else:
                found[topic_partition] = start
        found |= await self._look_up(to_look_up)
        too_young = {key: END for key in to_look_up if found[key] == NO_OFFSET}
        return found | await self._look_up(too_young)

    async def _look_up(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        if not timestamps:
            return {}
        answers = await list_offsets(
            self._cluster,
            timestamps,
            isolation_level=self.settings.isolation_level,
            timeout_s=self.settings.lookup_timeout_s,
        )
        return {key: answer.offset for key, answer in answers.items()}

    # -- reading

    def __aiter__(self) -> "Consumer":
        return self

    async def __anext__(self) -> ConsumedRecord:
        while not self._buffer:
            await self._fill_buffer()
        return self._buffer.popleft()

    async def poll(self, timeout_s: float | None = None) -> list[ConsumedRecord]:
        """The records that came together next, or the first MAX_POLL_RECORDS of them; none if nothing comes in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not self._buffer or (self._current is not None and len(self._buffer) < MAX_POLL_RECORDS):
                    await self._fill_buffer()
        records = list(self._buffer)
        self._buffer.clear()
        self._note_given()
        return records

    async def _fill_buffer(self) -> None:
        """Decode one slice more of what came together; if there is nothing to show in it, others have their turn.

        Whoever is cancelled here finds what was decoded in the buffer, and the positions before it.
        """
        if not self._buffer:
            self._note_given()
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
            self._buffer += found
            self._reached = self._current.topic_partition, found[-1].offset + 1
        else:
            await asyncio.sleep(0)

    def _note_given(self) -> None:
        if self._reached is not None:
            key, offset = self._reached
            self.positions[key], self._reached = offset, None

    # -- finding leaders

    def _give_back(self, position: Position, error: KafkaError | ConnectionLost) -> None:
        logger.info(
            "lost the leader: partition=%s offset=%d reason=%s", position.topic_partition, position.offset, error
        )
        if isinstance(error, OffsetOutOfRange):
            self._tasks.start(self._reset(position, error))
        elif is_retriable(error):
            self._unplaced[position.topic_partition] = position
            self._has_unplaced.set()
        else:
            self._tasks.start(self._fetched.put(error))

    async def _place_positions(self) -> None:
        """Whenever there are partitions without a leader, look for it. Until cancelled."""
        backoff = Backoff(self._cluster.randomness)
        loop = asyncio.get_running_loop()
        seen_version, last_round_at = -1, -CALM_S
        while True:
            while not self._unplaced:
                self._has_unplaced.clear()
                await self._has_unplaced.wait()
            if loop.time() - last_round_at > CALM_S:
                backoff.reset()
            else:
                await asyncio.sleep(backoff.next_s())
            last_round_at = loop.time()
            try:
                await self._cluster.refresh(seen_version)
                seen_version = self._cluster.metadata.version
                await self._place_those_with_leaders()
            except (KafkaError, ConnectionLost, GaveUp) as error:
                logger.info("cannot find leaders: partitions=%d reason=%s", len(self._unplaced), error)

    async def _place_those_with_leaders(self) -> None:
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
        broker_id = leader.broker.broker_id
        fetcher = self._fetchers.get(broker_id)
        if fetcher is None:
            fetcher = BrokerFetcher(broker_id, self._cluster, self.settings, self._fetched.put, self._give_back)
            self._fetchers[broker_id] = fetcher
            self._tasks.start(fetcher.run())
        fetcher.add(position)

    async def _validate(self, positions: list[Position], leaders: Mapping[TopicPartition, Leader]) -> None:
        """A new leader may lack what the old one had: a position beyond that is moved back to where they part."""
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
                    "records that were read are gone: partition=%s from_offset=%d to_offset=%d",
                    key, end.end_offset, position.offset,
                )  # fmt: skip
                position.offset, position.last_epoch = end.end_offset, end.leader_epoch
                await self._fetched.put(FetchedBatches.none_at(key, end.end_offset))

    async def _reset(self, position: Position, error: OffsetOutOfRange) -> None:
        """The records at the position were deleted, or never were."""
        key, target = position.topic_partition, self.settings.reset_to
        try:
            if target is None:
                raise error
            position.offset = (await self._look_up({key: target}))[key]
            position.last_epoch = NO_LEADER_EPOCH
        except (KafkaError, ConnectionLost, GaveUp) as failure:
            await self._fetched.put(failure)
            return
        logger.warning("went on at another offset: partition=%s offset=%d reason=%s", key, position.offset, error)
        await self._fetched.put(FetchedBatches.none_at(key, position.offset))
        self._unplaced[key] = position
        self._has_unplaced.set()
