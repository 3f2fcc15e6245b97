"""The shop's servers: a thread that writes orders at a steady rate and knows which of them were acknowledged."""

import asyncio
import threading
import time
from collections.abc import Sequence
from typing import TypeAlias

from demo.events import Event, Shop
from demo.time_limits import time_limit_s
from tidelog.client.network.bootstrap import parse_bootstrap
from tidelog.client.network.in_flight import ConnectionLost
from tidelog.client.network.retries import GaveUp
from tidelog.client.producer.partitioner import partition_of_key
from tidelog.client.producer.producer import Delivery, Producer, ProducerSettings
from tidelog.client.producer.producer_settings import ACKS_ALL
from tidelog.client.routing.cluster import Cluster
from tidelog.errors import KafkaError
from tidelog.runtime.clock import SystemClock
from tidelog.runtime.randomness import SystemRandomness
from tidelog.runtime.socket_network import SocketNetwork

MAX_FRAME_BYTES = 16 * 1024 * 1024
TICK_S = 0.02
END_LIMIT_S = 60.0
MAX_BURST = 200
"""Orders of one tick."""
MAX_UNACKNOWLEDGED = 5_000

Deliveries: TypeAlias = "asyncio.Queue[tuple[Event, Delivery] | None]"
"""Of one partition; None ends them."""


class WritingFailed(Exception):
    """The message says why."""


class Writer:
    """Counts may be read from any thread."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, shop: Shop, events_per_second: int) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._partitions = partitions
        self._shop = shop
        self._events_per_second = events_per_second
        self._is_ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="shop", daemon=True)
        self._failure: Exception | None = None
        self._is_complete = False
        self.good_ids: list[int] = []
        self.malformed = 0
        self._acknowledged_at_s: dict[int, float] = {}
        self.longest_pause_s: dict[int, float] = {}
        """By partition: the longest time between two acknowledgements."""

    @property
    def acknowledged(self) -> int:
        return len(self.good_ids) + self.malformed

    def start(self) -> None:
        self._thread.start()

    def request_end(self) -> None:
        self._is_ended.set()

    def finish(self) -> None:
        """Waits until all that was written is acknowledged; raises WritingFailed."""
        self.request_end()
        limit_s = time_limit_s(END_LIMIT_S)
        self._thread.join(limit_s)
        if self._thread.is_alive():
            raise WritingFailed(f"not all orders were acknowledged within {limit_s:.0f} s")
        self.raise_failure()
        if not self._is_complete:
            raise WritingFailed("the shop broke down")

    def raise_failure(self) -> None:
        if self._failure is not None:
            raise WritingFailed(f"an order was not acknowledged: {self._failure}") from self._failure

    def _run(self) -> None:
        try:
            asyncio.run(self._write())
            self._is_complete = True
        except* (KafkaError, ConnectionLost, GaveUp) as errors:
            self._failure = errors.exceptions[0]

    async def _write(self) -> None:
        network, randomness = SocketNetwork(MAX_FRAME_BYTES), SystemRandomness()
        async with (
            Cluster(network, parse_bootstrap(self._bootstrap), randomness) as cluster,
            Producer(cluster, SystemClock(), ProducerSettings(acks=ACKS_ALL)) as producer,
            asyncio.TaskGroup() as followers,
        ):
            under_way: list[Deliveries] = [asyncio.Queue() for _ in range(self._partitions)]
            for partition, deliveries in enumerate(under_way):
                followers.create_task(self._follow(partition, deliveries))
            await self._write_until_ended(producer, under_way)
            for deliveries in under_way:
                deliveries.put_nowait(None)

    async def _write_until_ended(self, producer: Producer, under_way: "Sequence[Deliveries]") -> None:
        began_s, written = time.monotonic(), 0
        while not self._is_ended.is_set():
            due = int((time.monotonic() - began_s) * self._events_per_second)
            room = max(MAX_UNACKNOWLEDGED - (written - self.acknowledged), 0)
            if due - written > min(room, MAX_BURST):
                # A busy machine: fewer orders a second, instead of a backlog that leaves no time for acknowledgements.
                due = written + min(room, MAX_BURST)
                began_s = time.monotonic() - due / self._events_per_second
            for _ in range(due - written):
                event = self._shop.next_event(time.time())
                delivery = await producer.enqueue(self._topic, event.value, key=event.key)
                under_way[partition_of_key(event.key, self._partitions)].put_nowait((event, delivery))
            written = due
            await asyncio.sleep(TICK_S)

    async def _follow(self, partition: int, deliveries: "Deliveries") -> None:
        """A partition acknowledges in the order of writing."""
        while (found := await deliveries.get()) is not None:
            event, delivery = found
            await delivery
            self._note(event, partition)

    def _note(self, event: Event, partition: int) -> None:
        now_s = time.monotonic()
        pause_s = now_s - self._acknowledged_at_s.get(partition, now_s)
        self.longest_pause_s[partition] = max(pause_s, self.longest_pause_s.get(partition, 0.0))
        self._acknowledged_at_s[partition] = now_s
        if event.is_malformed:
            self.malformed += 1
        else:
            self.good_ids.append(event.order_id)
