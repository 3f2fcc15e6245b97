"""The producer id of an idempotent producer, asked for when first needed and again when it is spent."""

import asyncio

from tidelog.client.cluster import Cluster
from tidelog.client.producer_batch import Identity
from tidelog.errors import NO_ERROR, error_of
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

NO_TRANSACTION_TIMEOUT_MS = 2**31 - 1


class ProducerIdentity:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._identity: Identity | None = None
        self._asking = asyncio.Lock()

    async def get(self) -> Identity:
        """Raises what the broker says, or ConnectionLost."""
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
