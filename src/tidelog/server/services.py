"""What handlers work with: the parts of one broker, wired once in `server/broker.py`."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

from tidelog.config.broker import BrokerSettings
from tidelog.controller.producer_ids import ProducerIds
from tidelog.controller.topics import TopicAdministration
from tidelog.replication.replica_manager import ReplicaManager
from tidelog.runtime.clock import Clock
from tidelog.runtime.purgatory import Purgatory
from tidelog.runtime.workers import Workers
from tidelog.server.cluster_state import ClusterState
from tidelog.storage.log_manager import LogManager


@dataclass(slots=True, kw_only=True)
class Services:
    settings: BrokerSettings
    clock: Clock
    workers: Workers
    logs: LogManager
    replicas: ReplicaManager
    cluster: ClusterState
    topics: TopicAdministration
    producer_ids: ProducerIds
    purgatory: Purgatory
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run it to its end, or to the end of the broker."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
