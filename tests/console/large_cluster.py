"""A console in front of a cluster of 100 brokers, 10,000 partitions and 1,000 groups that exists only as metadata."""

import asyncio
import socket
import threading
from collections.abc import Coroutine, Generator
from contextlib import contextmanager
from typing import Any

import uvicorn

from tidelog.client.network.bootstrap import Address
from tidelog.client.routing.metadata import BrokerMetadata, ClusterMetadata, PartitionMetadata, TopicMetadata
from tidelog.console.app import Console
from tidelog.console.gate import Entrance
from tidelog.console.observer import Observer
from tidelog.console.security import guard_of
from tidelog.console.workspace import Workspace
from tidelog.types import ZERO_UUID

BROKERS, TOPICS, PARTITIONS, GROUPS = 100, 100, 100, 1000
TIME_LIMIT_S = 60


def _topic(number: int, killed: int | None) -> TopicMetadata:
    partitions = {}
    for partition in range(PARTITIONS):
        replicas = tuple((number + partition + step) % BROKERS + 1 for step in range(3))
        in_sync = tuple(replica for replica in replicas if replica != killed)
        epoch = 1 if replicas[0] == in_sync[0] else 2
        partitions[partition] = PartitionMetadata(partition, in_sync[0], epoch, replicas, in_sync, ())
    return TopicMetadata(f"topic-{number:03}", ZERO_UUID, False, partitions)


class LargeCluster:
    """Answers metadata, and nothing else."""

    def __init__(self) -> None:
        self.connections: Any = None
        self.asked: list[object] = []
        self.kill(None)

    def kill(self, broker_id: int | None) -> None:
        alive = [each for each in range(1, BROKERS + 1) if each != broker_id]
        brokers = {each: BrokerMetadata(each, Address("localhost", each), None) for each in alive}
        topics = {topic.name: topic for topic in (_topic(number, broker_id) for number in range(TOPICS))}
        self.metadata = ClusterMetadata(1, "large", alive[0], brokers, topics)

    def change(self, topic: str, partition: int, **fields: Any) -> None:
        """Fields of one partition."""
        found = self.metadata.topics[topic]
        partitions = {**found.partitions, partition: found.partitions[partition]._replace(**fields)}
        topics = {**self.metadata.topics, topic: found._replace(partitions=partitions)}
        self.metadata = self.metadata._replace(topics=topics)

    async def ask_topics(self, topics: object) -> ClusterMetadata:
        self.asked.append(topics)
        return self.metadata


class LargeConsole:
    def __init__(self, cluster: LargeCluster, workspace: Workspace, address: str) -> None:
        self.cluster = cluster
        self.workspace = workspace
        self.address = address
        self.loop: asyncio.AbstractEventLoop

    @property
    def observer(self) -> Observer:
        return self.workspace.observer

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """In the event loop of the console. Nothing else polls the cluster."""
        asyncio.run_coroutine_threadsafe(work, self.loop).result(TIME_LIMIT_S)


@contextmanager
def large_console() -> Generator[LargeConsole]:
    cluster: Any = LargeCluster()
    workspace = Workspace(cluster)
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    console = LargeConsole(cluster, workspace, f"http://127.0.0.1:{port}")
    app = Console(Entrance(guard_of("127.0.0.1", None, may_change=False), port, False, workspace)).app()
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off"))
    started = threading.Event()

    async def main() -> None:
        console.loop = asyncio.get_running_loop()
        await workspace.observer.poll()
        started.set()
        await server.serve([listener])

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    assert started.wait(TIME_LIMIT_S)
    try:
        yield console
    finally:
        console.loop.call_soon_threadsafe(workspace.observer.close)
        server.force_exit = server.should_exit = True
        thread.join()
