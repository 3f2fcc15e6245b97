"""Building blocks of scenarios on a simulated cluster: topics, writers, readers, questions, and delays."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TypeVar
from unittest.mock import patch

from tests.server.harness import batch_of, fetch_request, produce_request
from tidelog.client.network.connection import ConnectionLost
from tidelog.cluster.image import PartitionRegistration as StoredPartition
from tidelog.cluster.topic_names import is_internal
from tidelog.cluster.znodes import decode_state, state_path
from tidelog.controller.channels import _BrokerChannel
from tidelog.errors import NotEnoughReplicas, NotLeaderOrFollower, UnknownTopicOrPartition
from tidelog.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.protocol.messages.fetch import FetchResponse
from tidelog.protocol.messages.produce import PartitionProduceResponse, ProduceResponse
from tidelog.protocol.record_batch import split_batches
from tidelog.protocol.records import records_of
from tidelog.protocol.structs import Request, Response
from tidelog.replication.follower import PartitionFollower
from tidelog.replication.leader import PartitionLeader
from tidelog.replication.partition import Partition
from tidelog.server.forwarding import add_broker_identity
from tidelog.simulation.cluster import SimulatedCluster
from tidelog.simulation.processes import run_simulation
from tidelog.storage.log import Log
from tidelog.store.interface import Operation, Result
from tidelog.store.memory import MemoryStore
from tidelog.types import BrokerId

TOPIC = "orders"
FETCH_VERSION = 12
PRODUCE_VERSION = 9
STEP_S = 0.01
FINE_STEP_S = 0.0001
"""Shorter than a frame takes from one broker to another: nothing happens unseen."""

Answer = TypeVar("Answer", bound=Response)

Scenario = Callable[[SimulatedCluster], Awaitable[None]]

_TRY_AGAIN = {NotLeaderOrFollower.code, UnknownTopicOrPartition.code, NotEnoughReplicas.code}


def simulate(scenario: Scenario, brokers: int = 3, *, controller: BrokerId = 1, **settings: object) -> None:
    """Start a cluster with this controller, and let things happen to it. What hangs for ever is an error."""

    # Leaders stay where a scenario has put them, unless it is about their balance.
    settings = {"auto_leader_rebalance_enable": False, **settings}

    async def main() -> None:
        cluster = SimulatedCluster(brokers, **settings)  # type: ignore[arg-type]
        await cluster.start(controller)
        await asyncio.gather(*(cluster.start(each) for each in cluster.machines if each != controller))
        await scenario(cluster)

    run_simulation(main())


async def wait_for(
    condition: Callable[[], bool],
    timeout_s: float = 20.0,
    *,
    step_s: float = STEP_S,
    always: Callable[[], None] | None = None,
) -> float:
    """How long it took until the condition held; `always` asserts what must hold at every step meanwhile."""
    loop = asyncio.get_running_loop()
    started = loop.time()
    while not condition():
        if always is not None:
            always()
        assert loop.time() - started < timeout_s, f"did not happen within {timeout_s} s"
        await asyncio.sleep(step_s)
    return loop.time() - started


# ---- topics


async def create_topic(
    cluster: SimulatedCluster, *places: Sequence[BrokerId], name: str = TOPIC, **configs: object
) -> None:
    """One partition for each place, which names its brokers, the preferred leader first. All are in sync then."""
    topic = CreatableTopic(
        name=name,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(place))
            for index, place in enumerate(places)
        ],
        configs=[
            CreatableTopicConfig(name=key.replace("_", "."), value=str(value).lower()) for key, value in configs.items()
        ],
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=5000)
    if is_internal(name):
        response = await _create_as_broker(cluster, request)
    else:
        response = await ask(cluster, cluster.running[0].broker_id, request, CreateTopicsResponse)
    (result,) = response.topics
    assert result.error_code == 0, result
    for index, place in enumerate(places):
        await wait_for(lambda index=index, place=place: _is_settled(cluster, name, index, place))  # type: ignore[misc]


async def _create_as_broker(cluster: SimulatedCluster, request: CreateTopicsRequest) -> CreateTopicsResponse:
    """Topics of coordinators are made by brokers only: this one is laid out as the scenario needs it."""
    controller = next(broker for broker in cluster.running if broker._services.is_controller)
    add_broker_identity(request, controller._services)
    connection = await cluster.connect(controller.broker_id, "scenario")
    try:
        return await connection.ask(request, CreateTopicsResponse)
    finally:
        connection.close()


def _is_settled(cluster: SimulatedCluster, name: str, index: int, place: Sequence[BrokerId]) -> bool:
    """The leader has heard of each follower, so that what comes next does not depend on how the topic began."""
    leader = leading(cluster, place[0], name, index)
    return leader is not None and all(follower.has_fetched for follower in leader.followers.values())


# ---- clients


async def ask(
    cluster: SimulatedCluster,
    broker_id: BrokerId,
    request: Request,
    response_type: type[Answer],
    version: int | None = None,
) -> Answer:
    connection = await cluster.connect(broker_id)
    try:
        return await connection.ask(request, response_type, version=version)
    finally:
        connection.close()


async def produce_to(
    cluster: SimulatedCluster,
    broker_id: BrokerId,
    *values: bytes,
    acks: int = -1,
    topic: str = TOPIC,
    partition: int = 0,
) -> PartitionProduceResponse:
    """One batch to this broker, whatever its role is."""
    request = produce_request(topic, batch_of(*values), partition, acks)
    response = await ask(cluster, broker_id, request, ProduceResponse, PRODUCE_VERSION)
    return response.responses[0].partition_responses[0]


async def produce(
    cluster: SimulatedCluster,
    *values: bytes,
    acks: int = -1,
    topic: str = TOPIC,
    partition: int = 0,
    timeout_s: float = 20.0,
) -> int:
    """One batch to the leader of the moment, as soon as there is one that takes it; its first offset."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while True:
        leader = stored(cluster, topic, partition).leader
        if leader in {broker.broker_id for broker in cluster.running}:
            response = await produce_to(cluster, leader, *values, acks=acks, topic=topic, partition=partition)
            if response.error_code == 0:
                return response.base_offset
            assert response.error_code in _TRY_AGAIN, response
        assert loop.time() < deadline, f"nobody took {values}"
        await asyncio.sleep(STEP_S)


async def is_acknowledged(cluster: SimulatedCluster, broker_id: BrokerId, *values: bytes, acks: int = -1) -> bool:
    """Whether a client that sends one batch and waits for as long as it takes got an acknowledgement."""
    try:
        return (await produce_to(cluster, broker_id, *values, acks=acks)).error_code == 0
    except ConnectionLost:
        return False


async def read_all(
    cluster: SimulatedCluster, topic: str = TOPIC, partition: int = 0, *, broker_id: BrokerId | None = None
) -> list[bytes]:
    """What a consumer reads from the leader, from the first record kept to the high watermark."""
    source = stored(cluster, topic, partition).leader if broker_id is None else broker_id
    offset = replica(cluster, source, topic, partition).log.log_start_offset
    found: list[bytes] = []
    while True:
        request = fetch_request(topic, offset, partition=partition, max_wait_ms=0)
        response = await ask(cluster, source, request, FetchResponse, FETCH_VERSION)
        data = response.responses[0].partitions[0]
        assert data.error_code == 0, data
        batches = list(split_batches(bytes(data.records or b"")))  # type: ignore[arg-type]
        if not batches:
            return found
        for header, batch in batches:
            found += [record.value or b"" for record in records_of(batch) if record.offset >= offset]
            offset = header.end_offset


# ---- questions


def stored(cluster: SimulatedCluster, topic: str = TOPIC, partition: int = 0) -> StoredPartition:
    """Leader, epoch and in-sync replicas as the store has them."""
    node = cluster.store_state.nodes[state_path(topic, partition)]
    return decode_state(topic, StoredPartition(partition, (), -1, -1, ()), node.data, node.version)


def in_sync(cluster: SimulatedCluster, topic: str = TOPIC, partition: int = 0) -> set[BrokerId]:
    return set(stored(cluster, topic, partition).in_sync_replicas)


def controller_of(cluster: SimulatedCluster) -> BrokerId:
    node = cluster.store_state.nodes.get("/controller")
    return -1 if node is None else int(json.loads(node.data)["brokerid"])


def replica(cluster: SimulatedCluster, broker_id: BrokerId, topic: str = TOPIC, partition: int = 0) -> Partition:
    return cluster.broker(broker_id).replicas.get(topic, partition)


def leading(
    cluster: SimulatedCluster, broker_id: BrokerId, topic: str = TOPIC, partition: int = 0
) -> PartitionLeader | None:
    """The leader's core on this broker, if it leads and may act as leader."""
    try:
        return replica(cluster, broker_id, topic, partition).leader
    except UnknownTopicOrPartition:
        return None


def follower_core(
    cluster: SimulatedCluster, broker_id: BrokerId, topic: str = TOPIC, partition: int = 0
) -> PartitionFollower | None:
    """The follower's core on this broker, if it follows anybody."""
    role = replica(cluster, broker_id, topic, partition).role
    return role if isinstance(role, PartitionFollower) else None


def is_leading(cluster: SimulatedCluster, broker_id: BrokerId, topic: str = TOPIC, partition: int = 0) -> bool:
    """Both by the store and by its own knowledge."""
    state, leader = stored(cluster, topic, partition), leading(cluster, broker_id, topic, partition)
    return leader is not None and (state.leader, state.leader_epoch) == (broker_id, leader.leader_epoch)


def committed_bytes(log: Log) -> bytes:
    """All batches that start below the high watermark, of all segments."""
    found, offset = b"", log.log_start_offset
    while offset < log.high_watermark:
        piece = log.read(offset, 100_000_000, log.high_watermark).slice
        assert piece is not None
        found += bytes(piece.read())
        *_, (last, _) = split_batches(found)
        offset = last.end_offset
    return found


def hosts(cluster: SimulatedCluster, topic: str = TOPIC, partition: int = 0) -> dict[BrokerId, Partition]:
    """The running brokers that have this partition."""
    found = {}
    for broker in cluster.running:
        with suppress(UnknownTopicOrPartition):
            found[broker.broker_id] = broker.replicas.get(topic, partition)
    return found


def _watermarks(cluster: SimulatedCluster, topic: str, partition: int) -> dict[BrokerId, tuple[int, int, int]]:
    logs = {broker_id: found.log for broker_id, found in hosts(cluster, topic, partition).items()}
    return {each: (log.log_start_offset, log.high_watermark, log.log_end_offset) for each, log in logs.items()}


def assert_replicas_identical(cluster: SimulatedCluster, topic: str = TOPIC, partition: int = 0) -> None:
    """I2, I7: all replicas of the partition have the same bytes below the high watermark, and the same watermarks."""
    watermarks = _watermarks(cluster, topic, partition)
    assert len(set(watermarks.values())) == 1, f"replicas differ (log start, high watermark, log end): {watermarks}"
    contents = {each: committed_bytes(found.log) for each, found in hosts(cluster, topic, partition).items()}
    assert len(set(contents.values())) == 1, f"replicas {sorted(contents)} hold different bytes"


async def all_well_again(
    cluster: SimulatedCluster, topic: str = TOPIC, partition: int = 0, timeout_s: float = 20.0
) -> None:
    """Mend the network, start who does not run, and wait until all is in sync and equal (I7)."""
    cluster.mend()
    for machine in cluster.machines.values():
        if machine.broker is None:
            await cluster.start(machine.broker_id)
    await wait_for(lambda: in_sync(cluster, topic, partition) == set(hosts(cluster, topic, partition)), timeout_s)
    with suppress(AssertionError):
        await wait_for(lambda: len(set(_watermarks(cluster, topic, partition).values())) == 1, 2.0)
    assert_replicas_identical(cluster, topic, partition)


@contextmanager
def warnings_of(logger_name: str) -> Iterator[list[str]]:
    """What this logger warns of within the block."""
    found: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: found.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger(logger_name)
    logger.addHandler(handler)
    try:
        yield found
    finally:
        logger.removeHandler(handler)


# ---- delays that a network or a store may have


@contextmanager
def slow_controller(broker_id: BrokerId) -> Iterator[None]:
    """Nothing from the controller, whichever broker that is, reaches this broker before the end of the block."""
    may_pass = asyncio.Event()
    ask_until_answered = _BrokerChannel._send_until_accepted

    async def slowly(channel: _BrokerChannel, request: Request) -> Response:
        if channel._broker_id == broker_id:
            await may_pass.wait()
        return await ask_until_answered(channel, request)

    with patch.object(_BrokerChannel, "_send_until_accepted", slowly):
        yield
    may_pass.set()


@contextmanager
def slow_store_answers(cluster: SimulatedCluster, broker_id: BrokerId) -> Iterator[None]:
    """What this broker writes takes effect, but it hears of it only at the end of the block."""
    may_pass = asyncio.Event()
    multi = MemoryStore.multi

    async def slowly(store: MemoryStore, operations: Sequence[Operation]) -> list[Result]:
        results = await multi(store, operations)
        if store.session_id in cluster.machines[broker_id].sessions:
            await may_pass.wait()
        return results

    with patch.object(MemoryStore, "multi", slowly):
        yield
    may_pass.set()
