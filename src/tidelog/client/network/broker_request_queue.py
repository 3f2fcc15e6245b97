"""Lanes to other brokers: one request to a broker is under way, everything else is gathered for the next one."""

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
    """What lanes need of `BrokerLinks`. Raises ConnectionLost, whatever it was that kept the broker from answering."""

    async def ask(
        self, broker_id: BrokerId, request: Request, answer_type: type[ResponseT], timeout_s: float
    ) -> ResponseT: ...


class BrokerRequestQueue(Generic[Item, Parts]):
    """What one broker is to be asked: items, such as transactions, each with the partitions that it is about."""

    def __init__(
        self,
        send: Callable[[], Awaitable[None]],
        *,
        key: Callable[[Item], Hashable],
        parts: Callable[[], Parts],
        max_items: int,
    ) -> None:
        """`send` takes some of the queue and asks the broker; it is called until nothing is left."""
        self._send = send
        self._key = key
        self._max_items = max_items
        self._task: asyncio.Task[None] | None = None
        self.queue: dict[Item, Parts] = defaultdict(parts)

    def run(self) -> None:
        """Something was queued: it is sent now, or after what is under way."""
        if self._task is None and self.queue:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            while self.queue:
                await self._send()
        finally:
            self._task = None

    def take(self) -> dict[Item, Parts]:
        """For one request. A response tells items apart by their key, so that each key is there once."""
        taken: dict[Hashable, Item] = {}
        for item in self.queue:
            if len(taken) < self._max_items:
                taken.setdefault(self._key(item), item)
        return {item: self.queue.pop(item) for item in taken.values()}

    def cancel(self) -> "asyncio.Task[None] | None":
        """The task that ends now, if there is one."""
        if self._task is not None:
            self._task.cancel()
        return self._task


async def close_queues(broker_request_queue: Iterable[BrokerRequestQueue[Item, Parts]]) -> None:
    """Returns when nothing is under way."""
    tasks = [task for lane in broker_request_queue if (task := lane.cancel()) is not None]
    await asyncio.gather(*tasks, return_exceptions=True)
