"""Writers and a reader of one topic: the work of a simulated run."""

import asyncio
from collections.abc import Callable, Iterator

from tidelog.client.admin import Admin
from tidelog.simulation.clients import Reader, Writer, client_cluster, start
from tidelog.simulation.cluster import SimulatedCluster
from tidelog.simulation.history import History
from tidelog.simulation.swarm import SwarmConfig
from tidelog.types import TopicPartition

TOPIC = "orders"
PARTITIONS = [TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)]
WRITERS = (-1, -1, 1)
"""Their acks. What the last one writes may be lost, and is what logs differ by."""
LOOK_S = 0.1


class PlainWork:
    def __init__(self, cluster: SimulatedCluster, config: SwarmConfig, history: History) -> None:
        seed = config.seed
        self._config = config
        self._history = history
        self._writers = [
            Writer(cluster, history, f"w{number}", seed * 100 + number, acks, longest_pause_ms=config.write_pause_ms)
            for number, acks in enumerate(WRITERS)
        ]
        self._reader = Reader(cluster, history, "reader", seed * 100 + 50)
        self._admin = Admin(client_cluster(cluster, seed * 100 + 60, "admin"))
        self._writing: list[asyncio.Task[None]] = []
        self._reading: asyncio.Task[None] | None = None
        self._is_settled = False

    async def prepare(self) -> None:
        settings = {"min.insync.replicas": str(self._config.min_in_sync_replicas)}
        settings["segment.ms"] = str(self._config.segment_ms)
        if self._config.flush_messages is not None:
            settings["flush.messages"] = str(self._config.flush_messages)
        await self._admin.create_topic(
            TOPIC,
            partitions=len(PARTITIONS),
            replication_factor=self._config.replication_factor,
            settings=settings,
        )

    async def run(self, until: Callable[[], bool]) -> None:
        """Write and read until it is over, and then until all is acknowledged."""
        self._writing = [start(writer.run(PARTITIONS, until)) for writer in self._writers]
        self._reading = start(self._reader.run(PARTITIONS))
        await asyncio.wait(self._writing)

    async def settle(self) -> None:
        """Until all that was acknowledged is read. Waits as long as it takes: the caller has the patience."""
        while any(self._waiting()):  # noqa: ASYNC110
            await asyncio.sleep(LOOK_S)
        if self._reading is not None:
            self._reading.cancel()
        self._is_settled = True

    def is_settled(self) -> bool:
        return self._is_settled

    def violations(self) -> list[str]:
        return [line for writer in self._writers for line in writer.failures]

    def unsettled(self) -> list[str]:
        return [] if self._is_settled else [*self._waiting()]

    def _waiting(self) -> Iterator[str]:
        if not self._writing:
            yield "I7 writers have not begun"
        for task in self._writing:
            if not task.done():
                yield f"I7 a writer still waits: {task}"
        if any(self._reader.positions.get(each, 0) < self._history.ends[each] for each in PARTITIONS):
            yield f"I7 the reader stands at {self._reader.positions} of {dict(self._history.ends)}"
