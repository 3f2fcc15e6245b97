"""`tidelog status` with made-up answers of brokers."""

import asyncio
from collections.abc import Mapping
from typing import TypeVar

from tidelog.cli.local_cluster.broker_queries import BrokerQueries, ClusterResponses, query_cluster
from tidelog.cli.local_cluster.inspection import inspect_remote_cluster
from tidelog.cli.local_cluster.view import BrokerState, Move
from tidelog.client.consumer.offsets import DEBUGGING_CONSUMER
from tidelog.client.network.bootstrap import Address
from tidelog.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from tidelog.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from tidelog.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tidelog.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from tidelog.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tidelog.protocol.structs import Request, Response
from tidelog.runtime.memory_network import MemoryNetwork

ResponseT = TypeVar("ResponseT", bound=Response)
HIGH_WATERMARK = 90


def address_of(broker_id: int) -> Address:
    return Address(f"host{broker_id}", 9092)


class ScriptedBrokers(BrokerQueries):
    """Brokers that hold one partition, each up to its own log end; those without one do not answer."""

    suspension = ""

    def __init__(self, log_ends: Mapping[int, int], metadata: MetadataResponse) -> None:
        super().__init__(MemoryNetwork())
        self._log_ends = {address_of(broker_id): end for broker_id, end in log_ends.items()}
        self._metadata = metadata
        self.fetch_failures: dict[Address, str] = {}
        self.reassignments: list[OngoingTopicReassignment] = []

    async def ask(self, address: Address, request: Request, response_type: type[ResponseT]) -> ResponseT | None:
        if address not in self._log_ends:
            return None
        response = self._answer(address, request)
        assert isinstance(response, response_type)
        return response

    def _answer(self, address: Address, request: Request) -> Response:
        if isinstance(request, MetadataRequest):
            assert not request.allow_auto_topic_creation
            return self._metadata
        if isinstance(request, DescribeLogDirsRequest):
            failure = self.fetch_failures.get(address, "")
            described = DescribeLogDirsPartition(partition_index=0, fetch_failure=failure)
            topic = DescribeLogDirsTopic(name="tides", partitions=[described])
            return DescribeLogDirsResponse(results=[DescribeLogDirsResult(topics=[topic])], suspension=self.suspension)
        if isinstance(request, ListPartitionReassignmentsRequest):
            return ListPartitionReassignmentsResponse(topics=self.reassignments)
        if isinstance(request, DescribeConfigsRequest):
            minimum = DescribeConfigsResourceResult(name="min.insync.replicas", value="2")
            return DescribeConfigsResponse(results=[DescribeConfigsResult(resource_name="tides", configs=[minimum])])
        assert isinstance(request, ListOffsetsRequest)
        end = self._log_ends[address] if request.replica_id == DEBUGGING_CONSUMER else HIGH_WATERMARK
        partition = ListOffsetsPartitionResponse(partition_index=0, offset=end)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="tides", partitions=[partition])])


def metadata(*, members: list[int], leader: int, in_sync: list[int], controller: int = 1) -> MetadataResponse:
    brokers = [MetadataResponseBroker(node_id=found, host=f"host{found}", port=9092) for found in members]
    partition = MetadataResponsePartition(
        partition_index=0, leader_id=leader, leader_epoch=4, replica_nodes=[1, 2, 3], isr_nodes=in_sync
    )
    topic = MetadataResponseTopic(name="tides", partitions=[partition])
    return MetadataResponse(brokers=brokers, cluster_id="Tides", controller_id=controller, topics=[topic])


def ask(brokers: ScriptedBrokers, *bootstrap: int) -> ClusterResponses:
    return asyncio.run(query_cluster(brokers, [address_of(broker_id) for broker_id in bootstrap]))


def test_lag_is_the_distance_from_the_leaders_log_end() -> None:
    brokers = ScriptedBrokers({1: 100, 2: 100, 3: 93}, metadata(members=[1, 2, 3], leader=1, in_sync=[1, 2, 3]))
    found = ask(brokers, 2)
    assert (found.cluster_id, found.controller) == ("Tides", 1)
    assert set(found.responses) == {address_of(1), address_of(2), address_of(3)}, (
        "brokers named by others are asked too"
    )
    (partition,) = found.partitions
    assert partition.lag == {1: 0, 2: 0, 3: 7}
    assert partition.high_watermark == HIGH_WATERMARK
    assert partition.is_healthy
    assert (partition.min_in_sync, partition.is_writable) == (2, True)


def test_leader_that_does_not_answer_is_no_leader() -> None:
    brokers = ScriptedBrokers({1: 100, 2: 100}, metadata(members=[1, 2, 3], leader=3, in_sync=[1, 2, 3]))
    (partition,) = ask(brokers, 1).partitions
    assert (partition.leader, partition.is_leader_silent, partition.is_writable) == (3, True, False)


def test_broker_that_is_away_has_no_lag_but_a_reason() -> None:
    brokers = ScriptedBrokers({1: 100, 2: 100}, metadata(members=[1, 2], leader=1, in_sync=[1, 2]))
    (partition,) = ask(brokers, 1).partitions
    assert partition.lag == {1: 0, 2: 0, 3: None}
    (missing,) = partition.out_of_sync
    assert (missing.replica, missing.rule) == (3, "broker does not answer")


def test_a_follower_that_cannot_write_says_why() -> None:
    brokers = ScriptedBrokers({1: 100, 2: 100, 3: 93}, metadata(members=[1, 2, 3], leader=1, in_sync=[1, 2]))
    brokers.fetch_failures[address_of(3)] = "Too many open files"
    (partition,) = ask(brokers, 1).partitions
    (missing,) = partition.out_of_sync
    assert missing.rule == "catching up with leader 1; it says: Too many open files"


def test_a_replica_that_is_being_added_is_no_trouble() -> None:
    brokers = ScriptedBrokers({1: 100, 2: 100, 3: 93}, metadata(members=[1, 2, 3], leader=1, in_sync=[1, 2]))
    moving = OngoingPartitionReassignment(partition_index=0, adding_replicas=[3], removing_replicas=[2])
    brokers.reassignments = [OngoingTopicReassignment(name="tides", partitions=[moving])]
    (partition,) = ask(brokers, 1).partitions
    assert partition.is_healthy
    assert partition.out_of_sync == []
    assert partition.move == Move((3,), (2,), None)


def test_partition_without_a_leader_says_so() -> None:
    brokers = ScriptedBrokers({2: 100, 3: 93}, metadata(members=[2, 3], leader=-1, in_sync=[1], controller=2))
    (partition,) = ask(brokers, 2).partitions
    assert partition.leader is None
    assert partition.high_watermark is None
    assert partition.lag == {1: None, 2: None, 3: None}
    assert [found.rule for found in partition.out_of_sync] == ["the partition has no leader"] * 2


def test_remote_cluster_shows_brokers_that_are_silent_or_gone() -> None:
    brokers = ScriptedBrokers({1: 100}, metadata(members=[1, 2], leader=1, in_sync=[1]))
    view = asyncio.run(inspect_remote_cluster(brokers, [address_of(1)]))
    states = {broker.broker_id: broker.state for broker in view.brokers}
    assert states == {1: BrokerState.UP, 2: BrokerState.SILENT, 3: BrokerState.DOWN}


def test_brokers_that_are_suspended_lead_nothing_whatever_their_metadata_say() -> None:
    brokers = ScriptedBrokers({1: 100, 2: 100, 3: 100}, metadata(members=[1, 2, 3], leader=1, in_sync=[1, 2, 3]))
    brokers.suspension = "the coordination store cannot be reached"
    view = asyncio.run(inspect_remote_cluster(brokers, [address_of(1)]))
    assert {broker.state for broker in view.brokers} == {BrokerState.SUSPENDED}
    assert (view.controller, [partition.leader for partition in view.partitions]) == (None, [None])
    assert view.suspensions == dict.fromkeys((1, 2, 3), "the coordination store cannot be reached")


def test_nobody_answers() -> None:
    found = ask(ScriptedBrokers({}, metadata(members=[], leader=-1, in_sync=[])), 1)
    assert found.cluster_id is None
    assert found.partitions == []
