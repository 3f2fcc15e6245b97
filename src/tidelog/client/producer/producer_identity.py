"""Who a producer is to the brokers, asked for when first needed and again when it is spent."""

import asyncio
from typing import Protocol

from tidelog.client.producer.producer_batch import Identity
from tidelog.client.routing.cluster import Cluster
from tidelog.errors import NO_ERROR, error_of
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.protocol.messages.produce import ProduceRequest
from tidelog.types import TopicPartition

NO_TRANSACTION_TIMEOUT_MS = 2**31 - 1


class ProducerIdentity(Protocol):
    @property
    def transactional_id(self) -> str | None: ...

    @property
    def last_produce_version(self) -> int:
        """The newest version of Produce to write with: newer ones may promise more."""

    async def get(self, topic_partition: TopicPartition) -> Identity:
        """For a batch of this partition; raises what the broker says, or ConnectionLost."""

    def renew(self, spent: Identity) -> None:
        """Whether its last batch was written is not known: it must not number any more."""


class IdempotentIdentity:
    """A producer without transactions: begins again as somebody else when it has to."""

    transactional_id = None
    last_produce_version = ProduceRequest.__versions__.last

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._identity: Identity | None = None
        self._asking = asyncio.Lock()

    async def get(self, topic_partition: TopicPartition) -> Identity:
        async with self._asking:
            if self._identity is None:
                request = InitProducerIdRequest(transaction_timeout_ms=NO_TRANSACTION_TIMEOUT_MS)
                response = await self._cluster.ask_any(request, InitProducerIdResponse)
                if response.error_code != NO_ERROR:
                    raise error_of(response.error_code, "asking for a producer id")
                self._identity = Identity(response.producer_id, response.producer_epoch)
            return self._identity

    def renew(self, spent: Identity) -> None:
        if self._identity == spent:
            self._identity = None
