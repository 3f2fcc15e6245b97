"""Reader of one offset range of a partition as raw batches; fetches ahead while the caller decodes."""

import asyncio
import logging
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tidelog.client.consumer.offsets import BEGINNING, END, ends_of_epochs, list_offsets
from tidelog.client.consumer.read_replica import ReadReplica
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
from tidelog.protocol.record_batch import HEADER_BYTES, LENGTH_OVERHEAD_BYTES, MAGIC, MAGIC_POSITION
from tidelog.runtime.disk import FileSlice
from tidelog.types import NO_BROKER, NO_LEADER_EPOCH, NO_OFFSET, ZERO_UUID, TopicPartition, Uuid, uuid_text

logger = logging.getLogger(__name__)

MAX_FETCH_BYTES = 2**31 - 1
MISSING_TOPIC_TIMEOUT_S = 10.0
"""A topic that is unknown for this long counts as deleted."""

EMPTY_RESPONSES_AT_END = 3
"""Consecutive empty responses that mean the end of a range. A single one may come from a broker whose read of tiered
storage timed out (KIP-405)."""

_HEADER_FIELDS = struct.Struct(">qiib6xi")  # base offset, length, leader epoch, magic, last offset delta


class TopicChanged(KafkaError):
    """The topic was deleted and recreated: its offsets are invalid."""


class OffsetsGone(OffsetOutOfRange):
    """Offsets of the range are not in the log (any more)."""

    def __init__(self, message: str, log_start_offset: int, log_end_offset: int) -> None:
        super().__init__(f"{message}; the log now begins at {log_start_offset} and ends at {log_end_offset}")
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset


class FetchedRange(NamedTuple):
    """Whole raw batches. The first may begin before `start_offset`, the last may end after the range."""

    records: memoryview
    """Owned by the receiver."""
    start_offset: int
    next_offset: int
    """The offset after the last batch."""
    aborted: Sequence[AbortedTransaction]


@dataclass(frozen=True)
class RangeSettings:
    max_bytes: int = 4 * 1024 * 1024
    """Maximum bytes of one fetch; a single batch may be larger."""
    max_wait_ms: int = 500
    isolation_level: int = 0
    timeout_s: float = 120.0
    """Time without data after which the reader gives up."""
    fetches_ahead: int = 1
    """Maximum responses in flight or waiting for the caller."""


class ScannedBatches(NamedTuple):
    size_bytes: int
    """Size of the whole batches that begin before the end of the range."""
    next_offset: int
    last_epoch: int
    is_past_end: bool
    """A batch, whole or partial, begins at or after the end of the range."""


def scan_batches(records: memoryview, end_offset: int) -> ScannedBatches:
    """Scan the batch headers. Raises CorruptMessage."""
    position, size_bytes = 0, len(records)
    next_offset, last_epoch = NO_OFFSET, NO_LEADER_EPOCH
    while size_bytes - position >= HEADER_BYTES:
        base_offset, length, leader_epoch, magic, last_delta = _HEADER_FIELDS.unpack_from(records, position)
        end = position + LENGTH_OVERHEAD_BYTES + length
        if magic != MAGIC or length < HEADER_BYTES - LENGTH_OVERHEAD_BYTES or last_delta < 0:
            raise CorruptMessage(_format_error(base_offset, length, magic, last_delta))
        if base_offset >= end_offset:
            return ScannedBatches(position, next_offset, last_epoch, True)
        if end > size_bytes:
            break
        next_offset, last_epoch, position = base_offset + last_delta + 1, leader_epoch, end
    if size_bytes - position > MAGIC_POSITION and records[position + MAGIC_POSITION] != MAGIC:
        # Messages of older formats may be shorter than a v2 batch header.
        raise CorruptMessage(_format_error(max(next_offset, 0), 0, records[position + MAGIC_POSITION], 0))
    return ScannedBatches(position, next_offset, last_epoch, next_offset >= end_offset)


def _format_error(base_offset: int, length: int, magic: int, last_delta: int) -> str:
    if magic != MAGIC:
        return f"the batch at offset {base_offset} has format version {magic}; only {MAGIC} is supported"
    return f"the batch at offset {base_offset} is malformed: length {length}, last offset delta {last_delta}"


class RangeReader:
    """`async with RangeReader(...) as reader: async for fetched in reader`; ends when the range has no more records.

    It follows new leaders. Raises OffsetsGone, TopicChanged, CorruptMessage, UnknownTopicOrPartition, GaveUp.
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
        self._topic_id = topic_id or ZERO_UUID  # if not given, the id of the first response
        self._max_bytes = self._settings.max_bytes
        self._offset = start_offset
        self._last_epoch = NO_LEADER_EPOCH  # of the last batch before `_offset`
        self._leader_epoch = NO_LEADER_EPOCH
        self._empty_responses = 0
        self._missing_since: float | None = None
        self._room = asyncio.Semaphore(max(1, self._settings.fetches_ahead))
        self._fetched: asyncio.Queue[FetchedRange | Exception | None] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self._connection: ClientConnection | None = None
        self._read_replica = ReadReplica()

    # ---- iterating

    async def __aenter__(self) -> "RangeReader":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    @property
    def fetched_ahead(self) -> int:
        """Responses that wait for the caller."""
        return self._fetched.qsize()

    async def aclose(self) -> None:
        """Stop fetching. A response in flight is dropped."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def __aiter__(self) -> "RangeReader":
        return self

    def start(self) -> None:
        """Send the first fetch now, instead of with the first `__anext__`."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._fetch_forever())

    async def __anext__(self) -> FetchedRange:
        self.start()
        fetched = await self._fetched.get()
        if isinstance(fetched, FetchedRange):
            self._room.release()
            return fetched
        self._fetched.put_nowait(fetched)  # for the next call
        raise fetched or StopAsyncIteration

    async def _fetch_forever(self) -> None:
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
            self._return_connection()

    # ---- one fetch

    async def _fetch_next(self) -> FetchedRange | None:
        """None at the end of the range."""
        what = f"reading {self._topic_partition} at offset {self._offset}"
        attempts = self._cluster.attempts(what, self._settings.timeout_s)
        while self._offset < self._end_offset:
            seen_version = self._cluster.metadata.version
            try:
                fetched = await self._try_to_fetch(attempts)
            except (CorruptMessage, OffsetsGone, TopicChanged):
                raise
            except (KafkaError, ConnectionLost) as error:
                if not self._read_replica.is_leader:
                    self._read_replica.on_failed(asyncio.get_running_loop().time())
                logger.info(
                    "fetch failed, retrying partition=%s offset=%d reason=%s",
                    self._topic_partition,
                    self._offset,
                    error,
                )
                await self._recover(error, seen_version, attempts)
            else:
                if fetched is not None:
                    return fetched
        return None

    async def _try_to_fetch(self, attempts: Attempts) -> FetchedRange | None:
        data = await self._ask_replica(attempts)
        if data.preferred_read_replica != NO_BROKER:
            self._read_replica.prefer(data.preferred_read_replica, asyncio.get_running_loop().time())
            return None
        if data.error_code != NO_ERROR and not self._read_replica.is_leader:
            raise error_of(data.error_code, f"{self._topic_partition} at broker {self._read_replica.broker_id}")
        if data.error_code == OffsetOutOfRange.code:
            await self._check_bounds(self._offset, attempts)
            raise OffsetNotAvailable(f"{self._topic_partition}: the leader does not have offset {self._offset} yet")
        if data.error_code == CorruptMessage.code:
            raise CorruptMessage(f"{self._topic_partition}: the broker found offset {self._offset} corrupt")
        if data.error_code != NO_ERROR:
            raise error_of(data.error_code, str(self._topic_partition))
        fetched = self._on_partition_data(data)
        if fetched is None and self._offset < self._end_offset and data.high_watermark < self._end_offset:
            await self._check_bounds(self._end_offset, attempts)
            raise OffsetNotAvailable(f"{self._topic_partition}: no records at offset {self._offset} yet")
        return fetched

    def _on_partition_data(self, data: PartitionData) -> FetchedRange | None:
        """Advance the position past the batches of a response, or past offsets that do not exist."""
        assert not isinstance(data.records, FileSlice)
        records, start_offset = memoryview(data.records or b""), self._offset
        try:
            scanned = scan_batches(records, self._end_offset)
        except CorruptMessage as error:
            raise CorruptMessage(f"{self._topic_partition}: {error}") from None
        if scanned.next_offset > start_offset:
            self._offset, self._last_epoch = scanned.next_offset, scanned.last_epoch
        if records:
            self._empty_responses = 0
        if scanned.is_past_end:
            self._offset = max(self._offset, self._end_offset)
        elif not records:
            self._on_empty_response(data)
        elif not scanned.size_bytes and self._max_bytes < MAX_FETCH_BYTES:
            self._max_bytes = min(2 * self._max_bytes, MAX_FETCH_BYTES)
        elif scanned.next_offset <= start_offset:
            raise OffsetNotAvailable(f"{self._topic_partition}: no complete batch for offset {start_offset}")
        if scanned.next_offset <= start_offset:
            return None
        return FetchedRange(
            records[: scanned.size_bytes], start_offset, scanned.next_offset, data.aborted_transactions or ()
        )

    def _on_empty_response(self, data: PartitionData) -> None:
        """An empty response although the log is longer: the rest of the range has no visible records."""
        if data.high_watermark < self._end_offset:
            return
        if self._settings.isolation_level and data.last_stable_offset < self._end_offset:
            # The transaction may still commit records of the range: do not end here.
            where = f"{self._topic_partition} at offset {data.last_stable_offset}"
            raise OffsetNotAvailable(f"an open transaction holds back {where}")
        self._empty_responses += 1
        if self._empty_responses >= EMPTY_RESPONSES_AT_END:
            self._offset = self._end_offset

    # ---- the leader, or the replica that it prefers

    async def _ask_replica(self, attempts: Attempts) -> PartitionData:
        await self._cluster.topics_in_use([self._topic_partition.topic])
        topic_id = self._topic_id_now()
        if topic_id != self._topic_id != ZERO_UUID:
            raise InconsistentTopicId(f"the id of topic {self._topic_partition.topic} has changed")
        leader = self._cluster.metadata.leader_of(self._topic_partition)
        if leader.leader_epoch != self._leader_epoch:
            await self._check_not_truncated(attempts)
            self._leader_epoch = leader.leader_epoch
        connection = await self._connect(self._address(leader))
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
        raise OffsetNotAvailable(f"{self._topic_partition}: not in the broker's response")

    def _address(self, leader: Leader) -> Address:
        if self._read_replica.is_expired(asyncio.get_running_loop().time()):
            self._read_replica.use_leader()
        if self._read_replica.is_leader:
            return leader.broker.address
        return self._cluster.address_of(self._read_replica.broker_id)

    async def _connect(self, address: Address) -> ClientConnection:
        """An exclusive connection: on a shared one other responses would wait for a delayed fetch."""
        connection = self._connection
        if connection is None or connection.is_closed or (connection.host, connection.port) != address:
            self._return_connection()
            connection = self._connection = await self._cluster.spare_connections.take(address)
        return connection

    def _return_connection(self) -> None:
        if self._connection is not None:
            self._cluster.spare_connections.give_back(self._connection)
            self._connection = None

    def _request(self, leader: Leader, topic_id: Uuid) -> FetchRequest:
        requested = FetchPartition(
            partition=self._topic_partition.partition,
            current_leader_epoch=leader.leader_epoch,
            fetch_offset=self._offset,
            partition_max_bytes=self._max_bytes,
        )
        topic = FetchTopic(topic=self._topic_partition.topic, topic_id=topic_id, partitions=[requested])
        return FetchRequest(
            max_wait_ms=self._settings.max_wait_ms,
            min_bytes=1,
            max_bytes=self._max_bytes,
            isolation_level=self._settings.isolation_level,
            topics=[topic],
            rack_id=self._read_replica.rack(self._cluster.client_rack, asyncio.get_running_loop().time()),
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

    # ---- checks of topic and log

    def _topic_id_now(self) -> Uuid:
        """The topic id in the metadata; the current one if brokers report no ids."""
        topic = self._cluster.metadata.topics.get(self._topic_partition.topic)
        return self._topic_id if topic is None or topic.topic_id == ZERO_UUID else topic.topic_id

    def _check_topic_id(self) -> None:
        topic_id = self._topic_id_now()
        if topic_id != self._topic_id != ZERO_UUID:
            raise TopicChanged(
                f"topic {self._topic_partition.topic} was deleted and recreated: its id is {uuid_text(topic_id)}, "
                f"the offsets belong to {uuid_text(self._topic_id)}"
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
        """Raises OffsetsGone unless the log of a leader that knows its high watermark (KIP-207) has the offsets."""
        start_offset, end_offset = await self._bounds(attempts)
        if not (start_offset <= self._offset and offset <= end_offset):
            raise OffsetsGone(
                f"{self._topic_partition}: offsets {self._offset} to {self._end_offset} are not in the log",
                start_offset,
                end_offset,
            )

    async def _check_not_truncated(self, attempts: Attempts) -> None:
        """After an unclean election the leader may have other records at offsets that were read (KIP-320)."""
        if self._last_epoch == NO_LEADER_EPOCH:
            return
        key = self._topic_partition
        ends = await ends_of_epochs(self._cluster, {key: self._last_epoch}, timeout_s=attempts.remaining_s)
        if NO_OFFSET < ends[key].end_offset < self._offset:
            message = f"{key}: records from offset {ends[key].end_offset} on were truncated, some of them after reading"
            raise OffsetsGone(message, *await self._bounds(attempts))

    async def _bounds(self, attempts: Attempts) -> tuple[int, int]:
        key, timeout_s = self._topic_partition, attempts.remaining_s
        start = await list_offsets(self._cluster, {key: BEGINNING}, timeout_s=timeout_s)
        end = await list_offsets(self._cluster, {key: END}, timeout_s=timeout_s)
        return start[key].offset, end[key].offset


def fetch_version(connection: ClientConnection, *, has_topic_ids: bool) -> int:
    """The newest common version; versions with topic ids only if the brokers report ids."""
    version = connection.version_of(FetchRequest)
    return version if has_topic_ids else min(version, TOPIC_IDS_FROM_VERSION - 1)
