"""Request queue to one broker: one request in flight, further items are collected for the next one.

Used for transaction markers and verification (Kafka's InterBrokerSendThread and TxnMarkerQueue).
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Hashable, Iterable
from typing import Generic, Protocol, TypeVar

from tidelog.protocol.structs import Request, Response
from tidelog.types import BrokerId

Item = TypeVar("Item", bound=Hashable)
Parts = TypeVar("Parts")
ResponseT = TypeVar("ResponseT", bound=Response)


class Links(Protocol):
    """The part of `BrokerLinks` that queues need. Raises ConnectionLost for any reason without a response."""

    async def ask(
        self, broker_id: BrokerId, request: Request, response_type: type[ResponseT], timeout_s: float
    ) -> ResponseT: ...


class BrokerRequestQueue(Generic[Item, Parts]):
    """Queued items for one broker, such as transactions, each with its partitions."""

    def __init__(
        self,
        send: Callable[[], Awaitable[None]],
        *,
        key: Callable[[Item], Hashable],
        parts: Callable[[], Parts],
        max_items: int,
    ) -> None:
        """`send` takes items off the queue and sends one request. It is called until the queue is empty."""
        self._send = send
        self._key = key
        self._max_items = max_items
        self._task: asyncio.Task[None] | None = None
        self.queue: dict[Item, Parts] = defaultdict(parts)

    def run(self) -> None:
        """Call after queueing: items are sent now, or after the request in flight."""
        if self._task is None and self.queue:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            while self.queue:
                await self._send()
        finally:
            self._task = None

    def take(self) -> dict[Item, Parts]:
        """Items for one request. Responses identify items by key, so each key occurs once."""
        taken: dict[Hashable, Item] = {}
        for item in self.queue:
            if len(taken) < self._max_items:
                taken.setdefault(self._key(item), item)
        return {item: self.queue.pop(item) for item in taken.values()}

    def cancel(self) -> "asyncio.Task[None] | None":
        """Cancel the request in flight; returns its task."""
        if self._task is not None:
            self._task.cancel()
        return self._task


async def close_queues(queues: Iterable[BrokerRequestQueue[Item, Parts]]) -> None:
    """Cancel all requests in flight and wait for them."""
    tasks = [task for queue in queues if (task := queue.cancel()) is not None]
    await asyncio.gather(*tasks, return_exceptions=True)
