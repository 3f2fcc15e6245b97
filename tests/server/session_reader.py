"""A reader with a fetch session, as a consumer or as a follower, made of the client's own core."""

import asyncio
from collections.abc import Mapping

from tests.server.harness import Client
from tidelog.client.consumer.fetch_session import FetchSessionHandler
from tidelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, PartitionData, ReplicaState
from tidelog.server.broker import Broker
from tidelog.types import ZERO_UUID, TopicPartition

NAMES_VERSION = 12
IDS_VERSION = 18


class SessionReader:
    """`wants` says what is asked for; `fetch` asks, and returns what the answer names, by partition."""

    def __init__(
        self, client: Client, *, version: int = NAMES_VERSION, replica_id: int = -1, replica_epoch: int = -1
    ) -> None:
        self.client = client
        self.version = version
        self.replica_id = replica_id
        self.replica_epoch = replica_epoch
        self.session = FetchSessionHandler()
        self.last_request: FetchRequest | None = None

    def wants(self, topic: str, index: int, offset: int, topic_id: bytes = ZERO_UUID, **fields: int) -> None:
        wanted = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1_000_000)
        for name, value in fields.items():
            setattr(wanted, name, value)
        self.session.set(TopicPartition(topic, index), topic_id, wanted)

    def request(self, *, max_wait_ms: int = 0, min_bytes: int = 1, max_bytes: int = 50_000_000) -> FetchRequest:
        asked = self.session.build(use_topic_ids=self.version >= 13)
        return FetchRequest(
            replica_id=self.replica_id if self.version < 15 else -1,
            replica_state=self._state(),
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            session_id=asked.session_id,
            session_epoch=asked.session_epoch,
            topics=asked.topics,
            forgotten_topics_data=asked.forgotten,
        )

    def _state(self) -> ReplicaState | None:
        if self.version < 15 or self.replica_id < 0:
            return None
        return ReplicaState(replica_id=self.replica_id, replica_epoch=self.replica_epoch)

    def start(self, **options: int) -> asyncio.Task[dict[int, PartitionData]]:
        return asyncio.get_running_loop().create_task(self.fetch(**options))

    async def fetch(self, **options: int) -> dict[int, PartitionData]:
        """The partitions of the answer, by index; tests use one topic at a time."""
        self.last_request = self.request(**options)
        response = await self.client.ask(self.last_request, self.version, FetchResponse)
        assert self.session.on_response(response), f"error {response.error_code}"
        return by_index(response)


def by_index(response: FetchResponse) -> dict[int, PartitionData]:
    return {data.partition_index: data for topic in response.responses for data in topic.partitions}


def topic_id_of(broker: Broker, topic: str) -> bytes:
    return broker._services.cluster.image.topics[topic].topic_id


def errors(responses: Mapping[int, PartitionData]) -> dict[int, int]:
    return {index: data.error_code for index, data in responses.items()}
