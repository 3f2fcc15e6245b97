"""Queries to all brokers of a cluster for status views: metadata, log ends, log directories, over the wire protocol."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import NamedTuple, TypeVar

from tidelog.cli.local_cluster.view import Move, OutOfSync, PartitionView
from tidelog.client.consumer.offsets import DEBUGGING_CONSUMER
from tidelog.client.network.bootstrap import Address
from tidelog.client.network.connection import ConnectionLost
from tidelog.client.network.connections import Connections
from tidelog.errors import NO_ERROR, KafkaError
from tidelog.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from tidelog.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from tidelog.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tidelog.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
)
from tidelog.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
)
from tidelog.protocol.structs import Request, Response
from tidelog.runtime.network import Network
from tidelog.types import NO_BROKER, BrokerId, TopicPartition

ResponseT = TypeVar("ResponseT", bound=Response)

CLIENT_ID = "tidelog-status"
RESPONSE_S = 2.0
CONSUMER = -1
"""Replica id of Kafka's debugging consumer: any replica answers with its own log end offset."""
LATEST = -1
TOPIC_RESOURCE = 2
MIN_IN_SYNC_REPLICAS = "min.insync.replicas"


class BrokerQueries:
    """Single questions to brokers of which some may be down. Connections are kept between questions."""

    def __init__(self, network: Network, *, response_s: float = RESPONSE_S) -> None:
        self._connections = Connections(network, CLIENT_ID)
        self._response_s = response_s

    async def ask(self, address: Address, request: Request, response_type: type[ResponseT]) -> ResponseT | None:
        """None if the broker does not answer."""
        try:
            connection = await self._connections.to(address, timeout_s=self._response_s)
            return await connection.ask(request, response_type, timeout_s=self._response_s)
        except (ConnectionLost, KafkaError):
            return None

    def close(self) -> None:
        self._connections.close()


class ClusterResponses(NamedTuple):
    """State of the cluster according to the responses of its brokers."""

    responses: Mapping[Address, MetadataResponse]
    """Metadata of the brokers that answered."""
    cluster_id: str | None
    controller: BrokerId | None
    members: Mapping[BrokerId, Address]
    """Live brokers according to the metadata."""
    partitions: Sequence[PartitionView]
    suspensions: Mapping[BrokerId, str]
    """Reasons why brokers are suspended, as they report them."""
    stray_logs: Mapping[BrokerId, Sequence[str]]
    """Directories of stray logs, by broker."""
    offline_directories: Mapping[BrokerId, Mapping[str, str]] = {}
    """Reasons why log directories are offline, by broker and path."""


async def query_cluster(
    queries: BrokerQueries, addresses: Iterable[Address], topic: str | None = None
) -> ClusterResponses:
    """The cluster of the brokers at these addresses, including brokers that only the metadata names.

    With all topics, or only this one.
    """
    asked = set(addresses)
    responses = await _metadata(queries, asked, topic)
    named = {Address(broker.host, broker.port) for response in responses.values() for broker in response.brokers}
    responses |= await _metadata(queries, named - asked, topic)
    truth = _best(responses)
    if truth is None:
        return ClusterResponses(responses, None, None, {}, [], {}, {})
    members = {broker.node_id: Address(broker.host, broker.port) for broker in truth.brokers}
    reachable = {broker_id: address for broker_id, address in members.items() if address in responses}
    log_dirs = await _log_dirs(queries, reachable)
    suspensions = {broker_id: found.suspension for broker_id, found in log_dirs.items() if found.suspension}
    controller = None if truth.controller_id == NO_BROKER else truth.controller_id
    return ClusterResponses(
        responses,
        truth.cluster_id,
        None if controller in suspensions else controller,
        members,
        await _partitions(queries, truth, reachable, log_dirs),
        suspensions,
        {broker_id: found.stray_logs for broker_id, found in log_dirs.items() if found.stray_logs},
        _offline_directories(log_dirs),
    )


def _offline_directories(log_dirs: Mapping[BrokerId, DescribeLogDirsResponse]) -> dict[BrokerId, dict[str, str]]:
    found = {
        broker_id: {each.log_dir: each.offline_reason for each in response.results if each.error_code != NO_ERROR}
        for broker_id, response in log_dirs.items()
    }
    return {broker_id: offline for broker_id, offline in found.items() if offline}


async def _log_dirs(
    queries: BrokerQueries, brokers: Mapping[BrokerId, Address]
) -> dict[BrokerId, DescribeLogDirsResponse]:
    request = DescribeLogDirsRequest(topics=None)
    responses = await asyncio.gather(
        *(queries.ask(address, request, DescribeLogDirsResponse) for address in brokers.values())
    )
    return {broker_id: response for broker_id, response in zip(brokers, responses, strict=True) if response is not None}


async def _metadata(
    queries: BrokerQueries, addresses: set[Address], topic: str | None
) -> dict[Address, MetadataResponse]:
    topics = None if topic is None else [MetadataRequestTopic(name=topic)]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    asked = list(addresses)
    responses = await asyncio.gather(*(queries.ask(address, request, MetadataResponse) for address in asked))
    return {address: response for address, response in zip(asked, responses, strict=True) if response is not None}


def _best(responses: Mapping[Address, MetadataResponse]) -> MetadataResponse | None:
    """The controller's metadata if it answered: it is the most recent."""
    for address, response in responses.items():
        for broker in response.brokers:
            if broker.node_id == response.controller_id and (broker.host, broker.port) == address:
                return response
    return max(responses.values(), key=lambda response: len(response.brokers), default=None)


async def _partitions(
    queries: BrokerQueries,
    truth: MetadataResponse,
    reachable: Mapping[BrokerId, Address],
    log_dirs: Mapping[BrokerId, DescribeLogDirsResponse],
) -> list[PartitionView]:
    known = {
        TopicPartition(topic.name, partition.partition_index): partition
        for topic in truth.topics
        if topic.name is not None
        for partition in topic.partitions
    }
    if not known:
        return []
    reports = await asyncio.gather(
        *(
            _query_broker(queries, broker_id, address, known, log_dirs.get(broker_id))
            for broker_id, address in reachable.items()
        )
    )
    by_broker = dict(zip(reachable, reports, strict=True))
    moves = await _moves(queries, reachable.get(truth.controller_id))
    minimums = await _min_in_sync(queries, list(reachable.values()), {found.topic for found in known})
    return [
        _partition_view(found, known[found], by_broker, moves.get(found))._replace(
            min_in_sync=minimums.get(found.topic, 1),
            is_leader_silent=known[found].leader_id not in (NO_BROKER, *by_broker),
        )
        for found in sorted(known)
    ]


async def _min_in_sync(queries: BrokerQueries, addresses: Sequence[Address], topics: Set[str]) -> dict[str, int]:
    """By topic, from the first broker that answers."""
    resources = [
        DescribeConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=[MIN_IN_SYNC_REPLICAS]
        )
        for topic in sorted(topics)
    ]
    for address in addresses:
        response = await queries.ask(address, DescribeConfigsRequest(resources=resources), DescribeConfigsResponse)
        if response is not None:
            return {
                result.resource_name: int(entry.value or 1)
                for result in response.results
                if result.error_code == NO_ERROR
                for entry in result.configs
                if entry.name == MIN_IN_SYNC_REPLICAS
            }
    return {}


async def _moves(
    queries: BrokerQueries, controller: Address | None
) -> dict[TopicPartition, OngoingPartitionReassignment]:
    if controller is None:
        return {}
    request = ListPartitionReassignmentsRequest(topics=None)
    response = await queries.ask(controller, request, ListPartitionReassignmentsResponse)
    return {
        TopicPartition(topic.name, each.partition_index): each
        for topic in (response.topics if response else [])
        for each in topic.partitions
    }


class _BrokerReport(NamedTuple):
    is_suspended: bool
    log_ends: Mapping[TopicPartition, int]
    high_watermarks: Mapping[TopicPartition, int]
    out_of_sync: Mapping[TopicPartition, Mapping[BrokerId, OutOfSync]]
    fetch_failures: Mapping[TopicPartition, str]
    """Fetch errors of the partitions that it follows."""
    sizes: Mapping[TopicPartition, int]


async def _query_broker(
    queries: BrokerQueries,
    broker_id: BrokerId,
    address: Address,
    known: Mapping[TopicPartition, MetadataResponsePartition],
    log_dirs: DescribeLogDirsResponse | None,
) -> _BrokerReport:
    hosted = [found for found, partition in known.items() if broker_id in partition.replica_nodes]
    led = [found for found in hosted if known[found].leader_id == broker_id]
    ends, high_watermarks = await asyncio.gather(
        _latest(queries, address, hosted, DEBUGGING_CONSUMER),
        _latest(queries, address, led, CONSUMER),
    )
    described = {
        TopicPartition(topic.name, partition.partition_index): partition
        for directory in (log_dirs.results if log_dirs else [])
        for topic in directory.topics
        for partition in topic.partitions
        if not partition.is_future_key
    }
    failures = {found: partition.fetch_failure for found, partition in described.items() if partition.fetch_failure}
    is_suspended = log_dirs is not None and bool(log_dirs.suspension)
    sizes = {found: partition.partition_size for found, partition in described.items()}
    return _BrokerReport(is_suspended, ends, high_watermarks, _reasons(described), failures, sizes)


async def _latest(
    queries: BrokerQueries, address: Address, partitions: Sequence[TopicPartition], replica_id: int
) -> dict[TopicPartition, int]:
    if not partitions:
        return {}
    by_topic: dict[str, list[ListOffsetsPartition]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(ListOffsetsPartition(partition_index=partition, timestamp=LATEST))
    topics = [ListOffsetsTopic(name=topic, partitions=wanted) for topic, wanted in by_topic.items()]
    request = ListOffsetsRequest(replica_id=replica_id, topics=topics)
    response = await queries.ask(address, request, ListOffsetsResponse)
    return {
        TopicPartition(topic.name, partition.partition_index): partition.offset
        for topic in (response.topics if response else [])
        for partition in topic.partitions
        if partition.error_code == NO_ERROR
    }


def _reasons(
    described: Mapping[TopicPartition, DescribeLogDirsPartition],
) -> dict[TopicPartition, dict[BrokerId, OutOfSync]]:
    return {
        topic_partition: {
            found.replica_id: OutOfSync(
                found.replica_id,
                found.rule,
                found.remedy,
                None if found.behind < 0 else found.behind,
                found.since_ms,
            )
            for found in partition.out_of_sync
        }
        for topic_partition, partition in described.items()
        if partition.out_of_sync
    }


def _partition_view(
    topic_partition: TopicPartition,
    partition: MetadataResponsePartition,
    reports: Mapping[BrokerId, _BrokerReport],
    move: OngoingPartitionReassignment | None,
) -> PartitionView:
    leader = None if partition.leader_id == NO_BROKER else partition.leader_id
    leading = reports.get(partition.leader_id)
    if leading is not None and leading.is_suspended:
        leader = None  # the metadata still names the suspended broker
    leader_end = leading.log_ends.get(topic_partition) if leading else None
    reasons = leading.out_of_sync.get(topic_partition, {}) if leading else {}
    return PartitionView(
        topic_partition,
        leader,
        partition.leader_epoch,
        partition.replica_nodes,
        partition.isr_nodes,
        leading.high_watermarks.get(topic_partition) if leading else None,
        {replica: _lag(leader_end, reports.get(replica), topic_partition) for replica in partition.replica_nodes},
        [
            _with_fetch_error(
                reasons.get(replica) or _fallback_reason(replica, leader, reports), reports, topic_partition
            )
            for replica in partition.replica_nodes
            if replica not in partition.isr_nodes and not (move and replica in move.adding_replicas)
        ],
        _move(move, topic_partition, reports, partition.leader_id) if move else None,
    )


def _move(
    move: OngoingPartitionReassignment,
    topic_partition: TopicPartition,
    reports: Mapping[BrokerId, _BrokerReport],
    leader: BrokerId,
) -> Move:
    def size(broker_id: BrokerId) -> int:
        return reports[broker_id].sizes.get(topic_partition, 0) if broker_id in reports else 0

    total = size(leader) * len(move.adding_replicas)
    copied = sum(min(size(each), size(leader)) for each in move.adding_replicas)
    return Move(tuple(move.adding_replicas), tuple(move.removing_replicas), 100 * copied // total if total else None)


def _with_fetch_error(
    found: OutOfSync, reports: Mapping[BrokerId, _BrokerReport], topic_partition: TopicPartition
) -> OutOfSync:
    """Add the follower's own fetch error to the leader's reason: the leader only sees that the replica lags."""
    report = reports.get(found.replica)
    failure = report.fetch_failures.get(topic_partition) if report else None
    return found if failure is None else found._replace(rule=f"{found.rule}; it says: {failure}")


def _lag(leader_end: int | None, report: _BrokerReport | None, topic_partition: TopicPartition) -> int | None:
    end = report.log_ends.get(topic_partition) if report else None
    return None if end is None or leader_end is None else max(0, leader_end - end)


def _fallback_reason(
    replica: BrokerId, leader: BrokerId | None, reports: Mapping[BrokerId, _BrokerReport]
) -> OutOfSync:
    """Reason if no leader reports one."""
    if replica not in reports:
        return OutOfSync(replica, "broker does not answer", "rejoins when it is back and has caught up")
    if leader is None:
        return OutOfSync(replica, "the partition has no leader", "can catch up when a leader is elected")
    return OutOfSync(replica, f"catching up with leader {leader}", "rejoins when it has caught up")
