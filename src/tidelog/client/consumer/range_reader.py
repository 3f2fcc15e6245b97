"""Reads one range of offsets of one partition as raw batches, the next fetch under way while the last is decoded."""

import asyncio
import logging
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tidelog.client.consumer.offsets import BEGINNING, END, ends_of_epochs, list_offsets
from tidelog.client.network.bootstrap import Address
from tidelog.client.network.connection import ClientConnection
from tidelog.client.network.in_flight import ConnectionLost
from tidelog.client.network.retries import Attempts
from tidelog.client.routing.cluster import Cluster
from tidelog.client.routing.metadata import Leader
from tidelog.errors import (
    NO_ERROR,
    CorruptMessage,
    InconsistentTopicId,
    KafkaError,
    OffsetNotAvailable,
    OffsetOutOfRange,
    UnknownTopicOrPartition,
    error_of,
)
from tidelog.protocol.messages.fetch import (
    TOPIC_IDS_FROM_VERSION,
    AbortedTransaction,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from tidelog.protocol.record_batch import HEADER_BYTES, LENGTH_OVERHEAD_BYTES, MAGIC
from tidelog.runtime.disk import FileSlice
from tidelog.types import NO_LEADER_EPOCH, NO_OFFSET, ZERO_UUID, TopicPartition, Uuid, uuid_text

logger = logging.getLogger(__name__)

LARGEST_FETCH_BYTES = 2**31 - 1
MISSING_TOPIC_TIMEOUT_S = 10.0
"""A topic that brokers do not know for so long has been deleted."""

EMPTY_ANSWERS_AT_THE_END = 3
"""So many in a row mean that a range has no more records. One alone may come from a broker that reads old records
from afar and ran out of time (KIP-405)."""

_FACTS = struct.Struct(">qiib6xi")  # base offset, length, leader epoch, magic, last offset delta
_MAGIC_POSITION = 16


class TopicChanged(KafkaError):
    """The topic was deleted and made again: what its offsets meant is gone."""


class OffsetsGone(OffsetOutOfRange):
    """The log no longer has, or never had, the offsets of a range."""

    def __init__(self, message: str, log_start_offset: int, log_end_offset: int) -> None:
        super().__init__(f"{message}; the log begins at {log_start_offset} and ends at {log_end_offset} now")
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset


class FetchedRange(NamedTuple):
    """Whole batches, as they came. The first may begin before `start_offset`, the last end after the range."""

    records: memoryview
    """Owned by whoever receives it."""
    start_offset: int
    next_offset: int
    """After the last batch."""
    aborted: Sequence[AbortedTransaction]


@dataclass(frozen=True)
class RangeSettings:
    max_bytes: int = 4 * 1024 * 1024
    """Of one fetch; a single batch may be larger."""
    max_wait_ms: int = 500
    isolation_level: int = 0
    timeout_s: float = 120.0
    """How long to go on trying while nothing comes."""
    fetches_ahead: int = 1
    """How many answers may be under way or wait to be taken."""


class Walked(NamedTuple):
    size_bytes: int
    """Of the whole batches that begin before the end of the range."""
    next_offset: int
    last_epoch: int
    is_past_end: bool
    """A batch, whole or cut off, begins at the end of the range or after it."""


def walk(records: memoryview, end_offset: int) -> Walked:
    """What the headers tell; raises CorruptMessage."""
    position, size_bytes = 0, len(records)
    next_offset, last_epoch = NO_OFFSET, NO_LEADER_EPOCH
    while size_bytes - position >= HEADER_BYTES:
        base_offset, length, leader_epoch, magic, last_delta = _FACTS.unpack_from(records, position)
        end = position + LENGTH_OVERHEAD_BYTES + length
        if magic != MAGIC or length < HEADER_BYTES - LENGTH_OVERHEAD_BYTES or last_delta < 0:
            raise CorruptMessage(_complaint(base_offset, length, magic, last_delta))
        if base_offset >= end_offset:
            return Walked(position, next_offset, last_epoch, True)
        if end > size_bytes:
            break
        next_offset, last_epoch, position = base_offset + last_delta + 1, leader_epoch, end
    if size_bytes - position > _MAGIC_POSITION and records[position + _MAGIC_POSITION] != MAGIC:
        # Messages of the older formats may be shorter than a header of ours.
        raise CorruptMessage(_complaint(max(next_offset, 0), 0, records[position + _MAGIC_POSITION], 0))
    return Walked(position, next_offset, last_epoch, next_offset >= end_offset)


def _complaint(base_offset: int, length: int, magic: int, last_delta: int) -> str:
    if magic != MAGIC:
        return f"the batch at offset {base_offset} has format version {magic}, only {MAGIC} can be read"
    return f"the batch at offset {base_offset} is malformed: length {length}, last offset delta {last_delta}"


class RangeReader:
    """`async with RangeReader(...) as reader: async for fetched in reader`; ends when the range has no more records.

    Leaders that move are followed. Raises OffsetsGone, TopicChanged, CorruptMessage, UnknownTopicOrPartition, GaveUp.
    """

    def __init__(
        self,
        cluster: Cluster,
        topic_partition: TopicPartition,
        start_offset: int,
        end_offset: int,
        settings: RangeSettings | None = None,
        *,
        topic_id: Uuid | None = None,
    ) -> None:
        self._cluster = cluster
        self._topic_partition = topic_partition
        self._end_offset = end_offset
        self._settings = settings or RangeSettings()
        self._topic_id = topic_id or ZERO_UUID  # if none was given, that of the topic that is read first
        self._max_bytes = self._settings.max_bytes
        self._offset = start_offset
        self._last_epoch = NO_LEADER_EPOCH  # of the last batch before `_offset`
        self._leader_epoch = NO_LEADER_EPOCH
        self._empty_answers = 0
        self._missing_since: float | None = None
        self._room = asyncio.Semaphore(max(1, self._settings.fetches_ahead))
        self._fetched: asyncio.Queue[FetchedRange | Exception | None] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self._connection: ClientConnection | None = None

    # -- iterating

    async def __aenter__(self) -> "RangeReader":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    @property
    def fetched_ahead(self) -> int:
        """Answers that wait to be taken."""
        return self._fetched.qsize()

    async def aclose(self) -> None:
        """Nothing is under way any more; an answer that still comes is dropped."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def __aiter__(self) -> "RangeReader":
        return self

    def start(self) -> None:
        """Send the first fetch now, and not only when somebody waits for its answer."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._fetch_on_and_on())

    async def __anext__(self) -> FetchedRange:
        self.start()
        fetched = await self._fetched.get()
        if isinstance(fetched, FetchedRange):
            self._room.release()
            return fetched
        self._fetched.put_nowait(fetched)  # for whoever asks again
        raise fetched or StopAsyncIteration

    async def _fetch_on_and_on(self) -> None:
        try:
            while True:
                await self._room.acquire()
                fetched = await self._fetch_next()
                self._fetched.put_nowait(fetched)
                if fetched is None:
                    return
        except Exception as error:  # noqa: BLE001 - raised where the records are awaited
            self._fetched.put_nowait(error)
        finally:
            self._give_connection_back()

    # -- one fetch

    async def _fetch_next(self) -> FetchedRange | None:
        """Returns None at the end of the range."""
        what = f"reading {self._topic_partition} at offset {self._offset}"
        attempts = self._cluster.attempts(what, self._settings.timeout_s)
        while self._offset < self._end_offset:
            seen_version = self._cluster.metadata.version
            try:
                fetched = await self._try_to_fetch(attempts)
            except (CorruptMessage, OffsetsGone, TopicChanged):
                raise
            except (KafkaError, ConnectionLost) as error:
                logger.info(
                    "fetch failed: partition=%s offset=%d reason=%s", self._topic_partition, self._offset, error
                )
                await self._recover(error, seen_version, attempts)
            else:
                if fetched is not None:
                    return fetched
        return None

    async def _try_to_fetch(self, attempts: Attempts) -> FetchedRange | None:
        data = await self._ask_leader(attempts)
        if data.error_code == OffsetOutOfRange.code:
            await self._check_bounds(self._offset, attempts)
            raise OffsetNotAvailable(f"{self._topic_partition}: the leader does not have offset {self._offset} yet")
        if data.error_code == CorruptMessage.code:
            raise CorruptMessage(f"{self._topic_partition}: the broker found offset {self._offset} corrupt")
        if data.error_code != NO_ERROR:
            raise error_of(data.error_code, str(self._topic_partition))
        fetched = self._take(data)
        if fetched is None and self._offset < self._end_offset and data.high_watermark < self._end_offset:
            await self._check_bounds(self._end_offset, attempts)
            raise OffsetNotAvailable(f"{self._topic_partition}: nothing comes from offset {self._offset}")
        return fetched

    def _take(self, data: PartitionData) -> FetchedRange | None:
        """Go past what the answer holds, or what it shows not to exist."""
        assert not isinstance(data.records, FileSlice)
        records, start_offset = memoryview(data.records or b""), self._offset
        try:
            walked = walk(records, self._end_offset)
        except CorruptMessage as error:
            raise CorruptMessage(f"{self._topic_partition}: {error}") from None
        if walked.next_offset > start_offset:
            self._offset, self._last_epoch = walked.next_offset, walked.last_epoch
        if records:
            self._empty_answers = 0
        if walked.is_past_end:
            self._offset = max(self._offset, self._end_offset)
        elif not records:
            self._note_empty(data)
        elif not walked.size_bytes and self._max_bytes < LARGEST_FETCH_BYTES:
            self._max_bytes = min(2 * self._max_bytes, LARGEST_FETCH_BYTES)
        elif walked.next_offset <= start_offset:
            raise OffsetNotAvailable(f"{self._topic_partition}: no whole batch comes for offset {start_offset}")
        if walked.next_offset <= start_offset:
            return None
        return FetchedRange(
            records[: walked.size_bytes], start_offset, walked.next_offset, data.aborted_transactions or ()
        )

    def _note_empty(self, data: PartitionData) -> None:
        """An answer without batches although the log is longer: the rest of the range holds nothing to be read."""
        if data.high_watermark < self._end_offset:
            return
        if self._settings.isolation_level and data.last_stable_offset < self._end_offset:
            # To end here would be to leave out what that transaction may yet commit.
            where = f"{self._topic_partition} at offset {data.last_stable_offset}"
            raise OffsetNotAvailable(f"an open transaction holds back {where}")
        self._empty_answers += 1
        if self._empty_answers >= EMPTY_ANSWERS_AT_THE_END:
            self._offset = self._end_offset

    # -- the leader

    async def _ask_leader(self, attempts: Attempts) -> PartitionData:
        await self._cluster.topics_in_use([self._topic_partition.topic])
        topic_id = self._topic_id_now()
        if topic_id != self._topic_id != ZERO_UUID:
            raise InconsistentTopicId(f"topic {self._topic_partition.topic} has another id")
        leader = self._cluster.metadata.leader_of(self._topic_partition)
        if leader.leader_epoch != self._leader_epoch:
            await self._check_not_truncated(attempts)
            self._leader_epoch = leader.leader_epoch
        connection = await self._connect(leader.broker.address)
        timeout_s = self._settings.max_wait_ms / 1000 + self._cluster.request_timeout_s
        version = fetch_version(connection, has_topic_ids=topic_id != ZERO_UUID)
        response = await connection.ask(
            self._request(leader, topic_id), FetchResponse, timeout_s=timeout_s, version=version
        )
        if response.error_code != NO_ERROR:
            raise error_of(response.error_code, str(self._topic_partition))
        for topic in response.responses:
            for data in topic.partitions:
                self._topic_id = topic_id if data.error_code == NO_ERROR else self._topic_id
                return data
        raise OffsetNotAvailable(f"{self._topic_partition}: the broker answers without it for now")

    async def _connect(self, address: Address) -> ClientConnection:
        """A connection of our own: on a shared one, answers to others would wait until a broker has records for us."""
        connection = self._connection
        if connection is None or connection.is_closed or (connection.host, connection.port) != address:
            self._give_connection_back()
            connection = self._connection = await self._cluster.spare_connections.take(address)
        return connection

    def _give_connection_back(self) -> None:
        if self._connection is not None:
            self._cluster.spare_connections.give_back(self._connection)
            self._connection = None

    def _request(self, leader: Leader, topic_id: Uuid) -> FetchRequest:
        wanted = FetchPartition(
            partition=self._topic_partition.partition,
            current_leader_epoch=leader.leader_epoch,
            fetch_offset=self._offset,
            partition_max_bytes=self._max_bytes,
        )
        topic = FetchTopic(topic=self._topic_partition.topic, topic_id=topic_id, partitions=[wanted])
        return FetchRequest(
            max_wait_ms=self._settings.max_wait_ms,
            min_bytes=1,
            max_bytes=self._max_bytes,
            isolation_level=self._settings.isolation_level,
            topics=[topic],
        )

    async def _recover(self, error: Exception, seen_version: int, attempts: Attempts) -> None:
        await attempts.after(error)
        try:
            await self._cluster.refresh(seen_version)
        except (KafkaError, ConnectionLost) as failure:
            await attempts.after(failure)
            return
        self._check_topic_id()
        self._check_topic_exists()

    # -- is it still what we were to read?

    def _topic_id_now(self) -> Uuid:
        """As far as we know; where brokers give no ids, it has not changed."""
        topic = self._cluster.metadata.topics.get(self._topic_partition.topic)
        return self._topic_id if topic is None or topic.topic_id == ZERO_UUID else topic.topic_id

    def _check_topic_id(self) -> None:
        topic_id = self._topic_id_now()
        if topic_id != self._topic_id != ZERO_UUID:
            raise TopicChanged(
                f"topic {self._topic_partition.topic} was deleted and made again: its id is {uuid_text(topic_id)}, "
                f"the offsets are those of {uuid_text(self._topic_id)}"
            )

    def _check_topic_exists(self) -> None:
        why = self._cluster.metadata.errors.get(self._topic_partition.topic)
        if not isinstance(why, UnknownTopicOrPartition):
            self._missing_since = None
            return
        now = asyncio.get_running_loop().time()
        self._missing_since = now if self._missing_since is None else self._missing_since
        if now - self._missing_since >= MISSING_TOPIC_TIMEOUT_S:
            raise UnknownTopicOrPartition(f"topic {self._topic_partition.topic} does not exist")

    async def _check_bounds(self, offset: int, attempts: Attempts) -> None:
        """Raises OffsetsGone, or returns if a leader that knows its high watermark (KIP-207) has a log that far."""
        start_offset, end_offset = await self._bounds(attempts)
        if not (start_offset <= self._offset and offset <= end_offset):
            raise OffsetsGone(
                f"{self._topic_partition}: offsets {self._offset} to {self._end_offset} are not all there",
                start_offset,
                end_offset,
            )

    async def _check_not_truncated(self, attempts: Attempts) -> None:
        """A leader that was elected uncleanly may hold other records at the offsets that were read (KIP-320)."""
        if self._last_epoch == NO_LEADER_EPOCH:
            return
        key = self._topic_partition
        ends = await ends_of_epochs(self._cluster, {key: self._last_epoch}, timeout_s=attempts.remaining_s)
        if NO_OFFSET < ends[key].end_offset < self._offset:
            message = f"{key}: records from offset {ends[key].end_offset} on, some of them read, are lost"
            raise OffsetsGone(message, *await self._bounds(attempts))

    async def _bounds(self, attempts: Attempts) -> tuple[int, int]:
        key, timeout_s = self._topic_partition, attempts.remaining_s
        start = await list_offsets(self._cluster, {key: BEGINNING}, timeout_s=timeout_s)
        end = await list_offsets(self._cluster, {key: END}, timeout_s=timeout_s)
        return start[key].offset, end[key].offset


def fetch_version(connection: ClientConnection, *, has_topic_ids: bool) -> int:
    """The newest that both sides know; those that name topics by their ids only where brokers give them some."""
    version = connection.version_of(FetchRequest)
    return version if has_topic_ids else min(version, TOPIC_IDS_FROM_VERSION - 1)
