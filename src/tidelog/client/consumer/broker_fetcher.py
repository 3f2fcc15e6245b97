"""Fetcher of a consumer for one broker: fetches the partitions that the broker leads, or is preferred for."""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from tidelog.client.consumer.consumer_settings import ConsumerSettings
from tidelog.client.consumer.fetch_session import FetchSessionHandler
from tidelog.client.consumer.fetched_records import FetchedBatches
from tidelog.client.consumer.read_replica import ReadReplica
from tidelog.client.network.connection import ClientConnection
from tidelog.client.network.in_flight import ConnectionLost
from tidelog.client.network.retries import Backoff
from tidelog.client.routing.cluster import Cluster
from tidelog.errors import NO_ERROR, CorruptMessage, KafkaError, error_of
from tidelog.protocol.messages.fetch import (
    TOPIC_IDS_FROM_VERSION,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from tidelog.runtime.disk import FileSlice
from tidelog.types import NO_BROKER, NO_LEADER_EPOCH, ZERO_UUID, BrokerId, TopicPartition, Uuid

logger = logging.getLogger(__name__)

GRACE_S = 10.0


class Position:
    """Fetch position of one partition: next offset, leader and read replica."""

    __slots__ = ("last_epoch", "leader_epoch", "lost_at", "offset", "read_replica", "topic_id", "topic_partition")

    def __init__(self, topic_partition: TopicPartition, offset: int) -> None:
        self.topic_partition = topic_partition
        self.offset = offset
        self.last_epoch = NO_LEADER_EPOCH  # of the last batch before `offset`
        self.leader_epoch = NO_LEADER_EPOCH  # expected epoch of the leader
        self.topic_id: Uuid = ZERO_UUID
        self.lost_at: float | None = None  # loop time since which it has no leader
        self.read_replica = ReadReplica()


class OnFetched(Protocol):
    """Receives fetched batches; waits while the reader is behind."""

    async def __call__(self, fetched: FetchedBatches, /) -> None: ...


OnDropped = Callable[[Position, KafkaError | ConnectionLost], None]
"""Called with the error when this broker can no longer be fetched from."""


OnMoved = Callable[[Position], None]
"""Called when another broker is to be fetched from: the position's read replica has changed."""


class BrokerFetcher:
    def __init__(
        self,
        broker_id: BrokerId,
        cluster: Cluster,
        settings: ConsumerSettings,
        on_fetched: OnFetched,
        on_dropped: OnDropped,
        on_moved: OnMoved,
    ) -> None:
        self._broker_id = broker_id
        self._cluster = cluster
        self._connections = cluster.new_connections()
        self._settings = settings
        self._on_fetched = on_fetched
        self._on_dropped = on_dropped
        self._on_moved = on_moved
        self._session = FetchSessionHandler()
        self._positions: dict[TopicPartition, Position] = {}
        self._has_work = asyncio.Event()
        self._backoff = Backoff(cluster.randomness)

    def add(self, position: Position) -> None:
        self._positions[position.topic_partition] = position
        self._request(position)
        self._has_work.set()

    def _request(self, position: Position) -> None:
        requested = FetchPartition(
            partition=position.topic_partition.partition,
            current_leader_epoch=position.leader_epoch,
            fetch_offset=position.offset,
            partition_max_bytes=self._settings.partition_max_bytes,
        )
        self._session.set(position.topic_partition, position.topic_id, requested)

    def _drop(self, position: Position, error: KafkaError | ConnectionLost) -> None:
        del self._positions[position.topic_partition]
        self._session.remove(position.topic_partition)
        self._on_dropped(position, error)

    def _move(self, position: Position) -> None:
        del self._positions[position.topic_partition]
        self._session.remove(position.topic_partition)
        self._on_moved(position)

    def _return_expired(self) -> None:
        """Ask leaders again where to read after some time."""
        now = asyncio.get_running_loop().time()
        for position in list(self._positions.values()):
            if position.read_replica.is_expired(now):
                position.read_replica.use_leader()
                self._move(position)

    async def run(self) -> None:
        """Fetch until cancelled."""
        try:
            await self._fetch_forever()
        finally:
            self._connections.close()

    async def _fetch_forever(self) -> None:
        while True:
            self._return_expired()
            while not self._positions:
                self._has_work.clear()
                await self._has_work.wait()
            try:
                response = await self._fetch()
            except (KafkaError, ConnectionLost) as error:
                self._session.on_lost()
                for position in list(self._positions.values()):
                    self._drop(position, error)
                continue
            if self._session.on_response(response):
                self._backoff.reset()
                await self._on_response(response)
            else:
                await asyncio.sleep(self._backoff.next_s())

    async def _fetch(self) -> FetchResponse:
        connection = await self._connections.to(self._cluster.address_of(self._broker_id))
        version = self._version(connection)
        parts = self._session.build(use_topic_ids=version >= TOPIC_IDS_FROM_VERSION)
        request = FetchRequest(
            max_wait_ms=self._settings.max_wait_ms,
            min_bytes=self._settings.min_bytes,
            max_bytes=self._settings.max_bytes,
            isolation_level=self._settings.isolation_level,
            session_id=parts.session_id,
            session_epoch=parts.session_epoch,
            topics=parts.topics,
            forgotten_topics_data=parts.forgotten,
            rack_id=self._rack(),
        )
        timeout_s = self._settings.max_wait_ms / 1000 + GRACE_S
        return await connection.ask(request, FetchResponse, timeout_s=timeout_s, version=version)

    def _rack(self) -> str:
        """Of the request as a whole: empty if one of its partitions avoids followers."""
        rack, now = self._cluster.client_rack, asyncio.get_running_loop().time()
        return rack if rack and all(each.read_replica.rack(rack, now) for each in self._positions.values()) else ""

    def _version(self, connection: ClientConnection) -> int:
        version = connection.version_of(FetchRequest)
        if any(position.topic_id == ZERO_UUID for position in self._positions.values()):
            return min(version, TOPIC_IDS_FROM_VERSION - 1)
        return version

    async def _on_response(self, response: FetchResponse) -> None:
        names = {position.topic_id: key.topic for key, position in self._positions.items()}
        for topic in response.responses:
            name = topic.topic or names.get(topic.topic_id, "")
            for data in topic.partitions:
                position = self._positions.get(TopicPartition(name, data.partition_index))
                if position is not None:
                    await self._on_partition_data(position, data)

    async def _on_partition_data(self, position: Position, data: PartitionData) -> None:
        key = position.topic_partition
        if data.error_code != NO_ERROR:
            self._drop(position, error_of(data.error_code, str(key)))
            return
        if data.preferred_read_replica not in (NO_BROKER, self._broker_id):
            position.read_replica.prefer(data.preferred_read_replica, asyncio.get_running_loop().time())
            self._move(position)
            return
        if not data.records:
            return
        assert not isinstance(data.records, FileSlice)
        try:
            fetched = FetchedBatches.of(key, position.offset, data.records, data.aborted_transactions or ())
        except CorruptMessage as error:
            self._drop(position, error)
            return
        if fetched.batches:
            last, _ = fetched.batches[-1]
            position.offset, position.last_epoch = last.end_offset, last.leader_epoch
            self._request(position)
            await self._on_fetched(fetched)
