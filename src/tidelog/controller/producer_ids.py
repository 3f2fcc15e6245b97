"""Producer id manager: blocks of producer ids, claimed from the store and handed out one by one."""

import asyncio
from collections.abc import Awaitable, Callable

from tidelog.cluster import znodes
from tidelog.cluster.znodes import ProducerIdBlock
from tidelog.controller.store_errors import store_errors_for_clients
from tidelog.controller.takeover import read_store_state
from tidelog.errors import CoordinatorLoadInProgress, UnknownServerError
from tidelog.store.interface import BadVersion, Check, NoNode, Operation, Set, Store, StoreUnavailable
from tidelog.types import BrokerId

BLOCK_SIZE = 1000
LAST_PRODUCER_ID = 2**63 - 1
NOT_TAKEN_OVER = "producer ids cannot be claimed before the takeover of existing logs is done"


def next_block(latest: bytes, broker_id: BrokerId) -> ProducerIdBlock:
    first = znodes.decode_producer_id_block(latest).last + 1 if latest else 0
    if first > LAST_PRODUCER_ID - BLOCK_SIZE:
        raise UnknownServerError("all producer ids are used up")
    return ProducerIdBlock(broker_id, first, first + BLOCK_SIZE - 1)


class ProducerIds:
    def __init__(
        self,
        store: Store,
        broker_id: BrokerId,
        *,
        is_allowed: Callable[[], bool] = lambda: True,
        note: Callable[[int], Awaitable[None]] | None = None,
    ) -> None:
        """`note` is awaited with the last id of a block before any id of the block is handed out."""
        self._store = store
        self._broker_id = broker_id
        self._is_allowed = is_allowed
        self._note = note
        self._unused: range = range(0)
        self._claiming = asyncio.Lock()

    async def next(self) -> int:
        """A new producer id, unique in the cluster."""
        while not self._unused:
            await self.ensure()
        return self.take()

    async def ensure(self) -> None:
        """Claim a block if the current one is used up, so that `take` succeeds."""
        if self._unused:
            return
        async with self._claiming:
            if not self._unused:
                with store_errors_for_clients():
                    block = await self._claim_block(self._broker_id)
                self._unused = range(block.first, block.last + 1)

    def take(self) -> int:
        """A producer id without waiting. Raises CoordinatorLoadInProgress, as Kafka does, if the block is used up."""
        if not self._unused:
            raise CoordinatorLoadInProgress("the producer id block is used up")
        producer_id = self._unused[0]
        self._unused = self._unused[1:]
        return producer_id

    async def allocate(self, broker_id: BrokerId) -> ProducerIdBlock:
        """A block for another broker, which hands it out itself."""
        with store_errors_for_clients():
            return await self._claim_block(broker_id)

    async def _claim_block(self, broker_id: BrokerId) -> ProducerIdBlock:
        if not self._is_allowed():
            raise StoreUnavailable(reason=NOT_TAKEN_OVER)
        block = await self._take_block(broker_id)
        if self._note is not None:
            await self._note(block.last)
        return block

    async def _take_block(self, broker_id: BrokerId) -> ProducerIdBlock:
        while True:
            in_use = await self._check_in_use()
            node = await self._store.get(znodes.PRODUCER_ID_BLOCK)
            block = next_block(node.data, broker_id)
            claim = Set(znodes.PRODUCER_ID_BLOCK, znodes.encode_producer_id_block(block), node.version)
            try:
                await self._store.multi([*in_use, claim])
            except BadVersion:
                continue
            return block

    async def _check_in_use(self) -> list[Operation]:
        """An empty store in the place of a lost one would hand out ids again that producers use."""
        try:
            state = await read_store_state(self._store)
        except NoNode:  # so new that it has no cluster id yet
            raise StoreUnavailable(reason=NOT_TAKEN_OVER) from None
        if not state.is_in_use:
            raise StoreUnavailable(reason=NOT_TAKEN_OVER)
        return [Check(znodes.CLUSTER_ID, state.version)]
