"""Producer id and epoch of a producer: requested at first use, renewed when they can no longer be used."""

import asyncio
from typing import Protocol

from tidelog.client.producer.producer_batch import ProducerIdAndEpoch
from tidelog.client.routing.cluster import Cluster
from tidelog.errors import NO_ERROR, error_of
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.protocol.messages.produce import ProduceRequest
from tidelog.types import TopicPartition

NO_TRANSACTION_TIMEOUT_MS = 2**31 - 1


class ProducerIdSource(Protocol):
    @property
    def transactional_id(self) -> str | None: ...

    @property
    def last_produce_version(self) -> int:
        """The newest version of Produce to use: newer ones add partitions implicitly (KIP-890)."""

    async def get(self, topic_partition: TopicPartition) -> ProducerIdAndEpoch:
        """The identity for a batch of this partition. Raises the broker's error or ConnectionLost."""

    def renew(self, spent: ProducerIdAndEpoch) -> None:
        """The identity must not be used any more: it is unknown whether its last batch was written."""


class IdempotentIdentity:
    """Identity of an idempotent producer without transactions; `renew` requests a new producer id."""

    transactional_id = None
    last_produce_version = ProduceRequest.__versions__.last

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._identity: ProducerIdAndEpoch | None = None
        self._initializing = asyncio.Lock()

    async def get(self, topic_partition: TopicPartition) -> ProducerIdAndEpoch:
        async with self._initializing:
            if self._identity is None:
                request = InitProducerIdRequest(transaction_timeout_ms=NO_TRANSACTION_TIMEOUT_MS)
                response = await self._cluster.ask_any(request, InitProducerIdResponse)
                if response.error_code != NO_ERROR:
                    raise error_of(response.error_code, "asking for a producer id")
                self._identity = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
            return self._identity

    def renew(self, spent: ProducerIdAndEpoch) -> None:
        if self._identity == spent:
            self._identity = None
