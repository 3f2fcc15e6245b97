"""Call traces of simulated brokers: which functions of the product a walk runs through, in order.

`python -m tests.simulation.call_trace` prints the traces of all walks; `tests/spark/call_trace.py` has that of a
micro-batch.
"""

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from itertools import pairwise
from types import FrameType
from typing import Any

from tests.server.harness import batch_of, fetch_request, produce_request
from tests.simulation.scenario import (
    FETCH_VERSION,
    PRODUCE_VERSION,
    TOPIC,
    create_topic,
    is_leading,
    simulate,
    wait_for,
)
from tidelog.client.producer.transactional_producer import TransactionalProducer
from tidelog.protocol.messages.fetch import FetchResponse
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tidelog.protocol.messages.produce import ProduceResponse
from tidelog.simulation.clients import client_cluster
from tidelog.simulation.cluster import SimulatedCluster
from tidelog.simulation.processes import Process, current_process

LEADER = 1
FOLLOWER = 2
GROUP = "group"
OUTSIDE = {"simulation", "runtime"}
"""Packages that stand for the world around a broker: what they do is no part of a walk."""


class CallTrace:
    """The product's functions that these processes called, in order, as (package, qualified name)."""

    def __init__(self, processes: Collection[Process | None]) -> None:
        self._processes = processes
        self.calls: list[tuple[str, str]] = []
        self.all_calls = 0
        """Of Python functions, wherever they are."""

    def on_event(self, frame: FrameType, event: str, argument: object) -> None:
        if event != "call" or current_process() not in self._processes:
            return
        self.all_calls += 1
        module = frame.f_globals.get("__name__", "")
        if not module.startswith("tidelog."):
            return
        package = module.split(".")[1]
        name = frame.f_code.co_qualname
        if package not in OUTSIDE and not name.endswith(("<genexpr>", "<listcomp>", "<dictcomp>")):
            self.calls.append((package, name))

    @property
    def package_switches(self) -> int:
        packages = [package for package, _ in self.calls]
        return sum(before != after for before, after in pairwise(packages))

    def count(self, name: str) -> int:
        return sum(name == called for _, called in self.calls)

    def counts(self) -> Counter[str]:
        return Counter(name for _, name in self.calls)


@contextmanager
def tracing(cluster: SimulatedCluster, *broker_ids: int) -> Iterator[CallTrace]:
    processes = [cluster.machines[each].process for each in broker_ids]
    assert None not in processes
    trace = CallTrace(processes)
    before: Any = sys.getprofile()
    sys.setprofile(trace.on_event)
    try:
        yield trace
    finally:
        sys.setprofile(before)


def trace_replicated_record() -> CallTrace:
    """On the leader: one record, acks=all, from the Produce to the moment when both followers wait for the next one."""
    return _trace(_replicate_one_record, replicas=3)


def trace_produce() -> CallTrace:
    """On the leader of a partition without followers: one record, acks=all."""
    return _trace(_produce_one_record, replicas=1)


def trace_consumer_fetch() -> CallTrace:
    """On the leader: one Fetch without a session that finds a record."""
    return _trace(_fetch_one_record, replicas=1)


def trace_follower() -> CallTrace:
    """On one of two followers: the same record as in `trace_replicated_record`."""
    return _trace(lambda cluster: _replicate_one_record(cluster, FOLLOWER), replicas=3)


def trace_offset_commit() -> CallTrace:
    """On the coordinator: one offset of a group without members, with two followers."""
    return _trace(_commit_one_offset, replicas=3)


def trace_transaction() -> CallTrace:
    """On all brokers: a transaction of one record, from the producer's id to the markers."""
    return _trace(_commit_one_transaction, replicas=3)


def trace_failover(traced: int = 1) -> CallTrace:
    """The leader dies, and broker 3 leads. On the controller, which is the other follower, or on the new leader."""
    traces: list[CallTrace] = []

    async def scenario(cluster: SimulatedCluster) -> None:
        await create_topic(cluster, (2, 3, 1))
        await asyncio.sleep(1)
        with tracing(cluster, traced) as trace:
            cluster.kill(2)
            await wait_for(lambda: is_leading(cluster, 3), step_s=0.001)
            await asyncio.sleep(0.1)
        traces.append(trace)

    simulate(scenario)
    return traces[0]


async def _commit_one_offset(cluster: SimulatedCluster) -> CallTrace:
    connection = await cluster.connect(LEADER)
    request = FindCoordinatorRequest(key=GROUP, coordinator_keys=[GROUP])
    coordinator = -1
    while coordinator < 0:
        found = await connection.ask(request, FindCoordinatorResponse, version=2)
        coordinator = found.node_id
        await asyncio.sleep(0.5)
    connection.close()
    connection = await cluster.connect(coordinator)
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    commit = OffsetCommitRequest(group_id=GROUP, topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])])
    await connection.ask(commit, OffsetCommitResponse, version=8)
    await asyncio.sleep(0.1)
    with tracing(cluster, coordinator) as trace:
        response = await connection.ask(commit, OffsetCommitResponse, version=8)
        assert response.topics[0].partitions[0].error_code == 0
    connection.close()
    return trace


async def _commit_one_transaction(cluster: SimulatedCluster) -> CallTrace:
    client = client_cluster(cluster, 1, "producer")
    with tracing(cluster, *cluster.machines) as trace:
        async with TransactionalProducer(client, cluster.clock, "writer") as producer:
            producer.begin()
            await producer.send(TOPIC, b"x")
            await producer.commit()
            await asyncio.sleep(1)
    client.close()
    return trace


async def _replicate_one_record(cluster: SimulatedCluster, traced: int = LEADER) -> CallTrace:
    connection = await cluster.connect(LEADER)
    request = produce_request(TOPIC, batch_of(b"first"), 0, -1)
    await connection.ask(request, ProduceResponse, version=PRODUCE_VERSION)
    await asyncio.sleep(0.1)
    with tracing(cluster, traced) as trace:
        request = produce_request(TOPIC, batch_of(b"x"), 0, -1)
        response = await connection.ask(request, ProduceResponse, version=PRODUCE_VERSION)
        assert response.responses[0].partition_responses[0].error_code == 0
        leader = cluster.broker(LEADER).replicas.get(TOPIC, 0).require_leader()
        await wait_for(lambda: all(each.log_end_offset == 2 for each in leader.followers.values()), step_s=0.001)
    connection.close()
    return trace


async def _produce_one_record(cluster: SimulatedCluster) -> CallTrace:
    connection = await cluster.connect(LEADER)
    request = produce_request(TOPIC, batch_of(b"first"), 0, -1)
    await connection.ask(request, ProduceResponse, version=PRODUCE_VERSION)
    with tracing(cluster, LEADER) as trace:
        request = produce_request(TOPIC, batch_of(b"x"), 0, -1)
        await connection.ask(request, ProduceResponse, version=PRODUCE_VERSION)
    connection.close()
    return trace


async def _fetch_one_record(cluster: SimulatedCluster) -> CallTrace:
    connection = await cluster.connect(LEADER)
    request = produce_request(TOPIC, batch_of(b"first"), 0, -1)
    await connection.ask(request, ProduceResponse, version=PRODUCE_VERSION)
    await connection.ask(fetch_request(TOPIC, 0), FetchResponse, version=FETCH_VERSION)
    with tracing(cluster, LEADER) as trace:
        response = await connection.ask(fetch_request(TOPIC, 0), FetchResponse, version=FETCH_VERSION)
    assert response.responses[0].partitions[0].records
    connection.close()
    return trace


def _trace(walk: Callable[[SimulatedCluster], Any], replicas: int) -> CallTrace:
    traces: list[CallTrace] = []

    async def scenario(cluster: SimulatedCluster) -> None:
        await create_topic(cluster, tuple(range(LEADER, LEADER + replicas)))
        traces.append(await walk(cluster))

    simulate(scenario)
    return traces[0]


def main() -> None:
    for title, trace in (
        ("one replicated record with two followers, leader", trace_replicated_record()),
        ("one replicated record, follower", trace_follower()),
        ("one produce", trace_produce()),
        ("one consumer fetch", trace_consumer_fetch()),
        ("one offset commit with two followers, coordinator", trace_offset_commit()),
        ("failover of one partition, controller", trace_failover()),
        ("failover of one partition, new leader", trace_failover(traced=3)),
        ("transaction of one record, all brokers", trace_transaction()),
    ):
        print(
            f"{title}: {len(trace.calls)} calls ({trace.all_calls} of all Python functions),"
            f" {trace.package_switches} package switches"
        )
        for name, count in trace.counts().most_common():
            if count > 1:
                print(f"  {count:4} {name}")


if __name__ == "__main__":
    main()
