"""CPU, bytes sent and store writes of a controller, by the number of partitions: by simulation, with real encoding.

`python -m bench.scale --partitions 10000 30000 100000 --brokers 100`. The controller is the broker's own, on virtual
time and a store in memory; its requests to the brokers are encoded as on the wire and counted. Partitions have three
replicas. Measured are the start of the cluster, the failure of one broker, of the controller, and the creation of
topics. What is linear stays the same per partition from line to line.
"""

import argparse
import asyncio
import gc
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple

from tidelog.cluster import znodes
from tidelog.cluster.image import BrokerRegistration, PartitionRegistration
from tidelog.config.broker import BrokerSettings
from tidelog.config.listeners import Endpoint
from tidelog.controller.controller import Controller
from tidelog.controller.registration import find_cluster_id, prepare_store, register_broker
from tidelog.errors import NO_ERROR
from tidelog.protocol.codec import encode
from tidelog.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from tidelog.protocol.messages.update_metadata import UpdateMetadataResponse
from tidelog.protocol.structs import Request, Response
from tidelog.runtime.clock import ManualClock
from tidelog.runtime.randomness import SeededRandomness
from tidelog.runtime.virtual_time import VirtualClock, VirtualTimeLoop, run_virtually
from tidelog.store.interface import Create, Delete, Operation, Result, Set
from tidelog.store.memory import MemoryStore, MemoryStoreState

PARTITIONS_PER_TOPIC = 100
NEW_TOPICS = 1_000
REPLICAS = 3
TOPICS_PER_TRANSACTION = 100


class Wire:
    """What the controller sends, encoded and counted; every request is answered without an error."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.requests = 0
        self.bytes = 0
        self.encoding_s = 0.0
        self.brokers_s = 0.0
        """CPU of what brokers would do, which is not counted."""

    def take(self, request: Request) -> Response:
        began = time.process_time()
        self.bytes += len(encode(request, type(request).__versions__.last))
        self.encoding_s += time.process_time() - began
        self.requests += 1
        began = time.process_time()
        response = _response_to(request)
        self.brokers_s += time.process_time() - began
        return response


def _response_to(request: Request) -> Response:
    if not isinstance(request, LeaderAndIsrRequest):
        return UpdateMetadataResponse()
    return LeaderAndIsrResponse(
        topics=[
            LeaderAndIsrTopicError(
                topic.topic_id,
                [LeaderAndIsrPartitionError(state.partition_index, NO_ERROR) for state in topic.partition_states],
            )
            for topic in request.topic_states
        ]
    )


class CountedChannels:
    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._open: set[int] = set()

    def add(self, broker: BrokerRegistration) -> None:
        self._open.add(broker.id)

    def remove(self, broker_id: int) -> None:
        self._open.discard(broker_id)

    def send(self, broker_id: int, request: Request, on_response: Callable[[Response], None] | None = None) -> None:
        if broker_id not in self._open:
            return
        response = self._wire.take(request)
        if on_response is not None:
            asyncio.get_running_loop().call_soon(on_response, response)

    async def settle(self, timeout_s: float) -> None: ...

    async def close(self) -> None: ...


class CountedStore(MemoryStore):
    """Counts the operations that change something."""

    writes = 0

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        CountedStore.writes += sum(isinstance(each, Create | Set | Delete) for each in operations)
        return await super().multi(operations)


class Figures(NamedTuple):
    what: str
    partitions: int
    """Partitions that the event concerns."""
    cpu_s: float
    encoding_s: float
    requests: int
    bytes: int
    writes: int

    def __str__(self) -> str:
        each = max(self.partitions, 1)
        return (
            f"| {self.what} | {self.partitions:,} | {self.cpu_s:.2f} | {self.encoding_s:.2f} "
            f"| {(self.cpu_s + self.encoding_s) / each * 1e6:.1f} | {self.requests:,} | {self.bytes / 1e6:.1f} "
            f"| {self.bytes / each:,.0f} | {self.writes / each:.2f} |"
        )


HEADING = """| event | partitions | CPU of the event, s | CPU of encoding, s | us/partition | requests | MB sent \
| bytes/partition | store writes/partition |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |"""


class SimulatedController:
    def __init__(self, broker_count: int) -> None:
        self.state = MemoryStoreState()
        self.wire = Wire()
        self.broker_count = broker_count
        self.stores: dict[int, MemoryStore] = {}
        self.tasks: dict[int, asyncio.Task[None]] = {}
        self.client = MemoryStore(self.state)

    async def start_brokers(self) -> None:
        await prepare_store(self.client)
        await find_cluster_id(self.client, SeededRandomness(1))
        for broker_id in range(1, self.broker_count + 1):
            store = self.stores[broker_id] = CountedStore(self.state)
            endpoint = Endpoint("PLAINTEXT", f"host-{broker_id}", 9092, "PLAINTEXT")
            await register_broker(store, BrokerRegistration(broker_id, (endpoint,)), ManualClock())

    def elect(self, broker_id: int) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        settings = BrokerSettings(auto_leader_rebalance_enable=False)
        controller = Controller(
            broker_id=broker_id,
            store=self.stores[broker_id],
            clock=VirtualClock(loop),
            settings=lambda: settings,
            channels=lambda: CountedChannels(self.wire),
        )
        self.tasks[broker_id] = loop.create_task(controller.run())

    async def create_topics(self, prefix: str, count: int, partitions_each: int) -> None:
        operations: list[Operation] = []
        for number in range(count):
            partitions = [
                PartitionRegistration(index, self._replicas(number * partitions_each + index), -1, 0, (), version=-1)
                for index in range(partitions_each)
            ]
            name = f"{prefix}-{number:05}"
            data = znodes.encode_topic(name.encode().ljust(16, b"-"), partitions)
            operations.append(Create(znodes.topic_path(name), data))
        for start in range(0, count, TOPICS_PER_TRANSACTION):
            await self.client.multi(operations[start : start + TOPICS_PER_TRANSACTION])

    def _replicas(self, number: int) -> tuple[int, ...]:
        first, shift = number % self.broker_count, 1 + number // self.broker_count % (self.broker_count - 2)
        return tuple((first + step) % self.broker_count + 1 for step in (0, shift, shift + 1))

    def expire(self, broker_id: int) -> None:
        self.state.expire(self.stores.pop(broker_id).session_id)

    async def measured(self, what: str, partitions: int, work: Callable[[], Any]) -> Figures:
        """CPU of what follows until everything is quiet."""
        wire = self.wire
        wire.reset()
        CountedStore.writes = 0
        gc.collect()
        began = time.process_time()
        result = work()
        if asyncio.iscoroutine(result):
            await result
        await asyncio.sleep(1.0)
        cpu_s = time.process_time() - began - wire.brokers_s
        return Figures(
            what, partitions, cpu_s - wire.encoding_s, wire.encoding_s, wire.requests, wire.bytes, CountedStore.writes
        )

    async def close(self) -> None:
        for task in self.tasks.values():
            task.cancel()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)


async def measure(partitions: int, broker_count: int, new_topics: int = NEW_TOPICS) -> list[Figures]:
    cluster = SimulatedController(broker_count)
    await cluster.start_brokers()
    await cluster.create_topics("topic", partitions // PARTITIONS_PER_TOPIC, PARTITIONS_PER_TOPIC)
    on_one_broker = partitions * REPLICAS // broker_count
    started = "start: first controller, all leaders elected"
    found = [await cluster.measured(started, partitions, lambda: cluster.elect(1))]
    found.append(await cluster.measured("one broker fails", on_one_broker, lambda: cluster.expire(2)))

    def fail_controller() -> None:
        cluster.tasks.pop(1).cancel()
        cluster.elect(3)
        cluster.expire(1)

    found.append(await cluster.measured("the controller fails", partitions, fail_controller))

    def create_topics() -> Coroutine[Any, Any, None]:
        return cluster.create_topics("new", new_topics, 1)

    found.append(await cluster.measured(f"{new_topics:,} topics are created", new_topics, create_topics))
    await cluster.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, nargs="+", default=[10_000, 30_000, 100_000])
    parser.add_argument("--brokers", type=int, default=100)
    options = parser.parse_args()
    for partitions in options.partitions:
        print(f"\n{partitions:,} partitions on {options.brokers} brokers\n\n{HEADING}")
        for figures in run_virtually(measure(partitions, options.brokers)):
            print(figures, flush=True)


if __name__ == "__main__":
    main()
