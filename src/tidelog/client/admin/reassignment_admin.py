"""Admin client for partitions: reassignments, leader elections, sizes of replicas; absent brokers."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from tidelog.client.admin.admin import DEFAULT_TIMEOUT_S, Admin
from tidelog.client.network.retries import retried
from tidelog.client.routing.cluster import Cluster
from tidelog.errors import NO_ERROR, ElectionNotNeeded, KafkaError, error_of, raise_error
from tidelog.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from tidelog.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from tidelog.protocol.messages.describe_log_dirs import DescribeLogDirsResponse
from tidelog.protocol.messages.elect_leaders import (
    PREFERRED,
    UNCLEAN,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersTopic,
)
from tidelog.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from tidelog.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from tidelog.types import BrokerId, TopicPartition, indexes_by_topic

Targets = Mapping[TopicPartition, tuple[BrokerId, ...] | None]
"""New replicas, the preferred leader first; None cancels the reassignment of the partition."""


class Reassignment(NamedTuple):
    """A reassignment that is under way."""

    replicas: tuple[BrokerId, ...]
    adding: tuple[BrokerId, ...]
    removing: tuple[BrokerId, ...]


class ReassignmentAdmin:
    """Retriable errors are retried until `timeout_s`; others are raised, or returned for single partitions."""

    def __init__(self, cluster: Cluster, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        self._cluster = cluster
        self._timeout_s = timeout_s

    async def alter(self, targets: Targets) -> dict[TopicPartition, KafkaError]:
        """The errors of the partitions that were refused."""
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=int(self._timeout_s * 1000),
            topics=[
                ReassignableTopic(
                    name=topic,
                    partitions=[
                        ReassignablePartition(partition_index=each, replicas=targets[TopicPartition(topic, each)])
                        for each in indexes
                    ],
                )
                for topic, indexes in indexes_by_topic(targets).items()
            ],
        )

        async def attempt() -> AlterPartitionReassignmentsResponse:
            response = await self._cluster.ask_controller(request, AlterPartitionReassignmentsResponse)
            raise_error(response.error_code, message=response.error_message)
            return response

        response = await retried(self._cluster.attempts("reassigning partitions", self._timeout_s), attempt)
        return {
            TopicPartition(topic.name, each.partition_index): error_of(
                each.error_code, f"{topic.name}-{each.partition_index}", each.error_message
            )
            for topic in response.responses
            for each in topic.partitions
            if each.error_code != NO_ERROR
        }

    async def ongoing(self) -> dict[TopicPartition, Reassignment]:
        request = ListPartitionReassignmentsRequest(topics=None, timeout_ms=int(self._timeout_s * 1000))

        async def attempt() -> ListPartitionReassignmentsResponse:
            response = await self._cluster.ask_controller(request, ListPartitionReassignmentsResponse)
            raise_error(response.error_code, message=response.error_message)
            return response

        response = await retried(self._cluster.attempts("listing reassignments", self._timeout_s), attempt)
        return {
            TopicPartition(topic.name, each.partition_index): Reassignment(
                tuple(each.replicas), tuple(each.adding_replicas), tuple(each.removing_replicas)
            )
            for topic in response.topics
            for each in topic.partitions
        }

    async def elect(
        self, partitions: Collection[TopicPartition], *, is_unclean: bool = False
    ) -> dict[TopicPartition, KafkaError | None]:
        """The outcome of each partition; partitions that need no election are left out."""
        request = ElectLeadersRequest(
            election_type=UNCLEAN if is_unclean else PREFERRED,
            topic_partitions=[
                ElectLeadersTopic(topic=topic, partitions=indexes)
                for topic, indexes in indexes_by_topic(partitions).items()
            ],
            timeout_ms=int(self._timeout_s * 1000),
        )

        async def attempt() -> ElectLeadersResponse:
            response = await self._cluster.ask_controller(request, ElectLeadersResponse)
            raise_error(response.error_code)
            return response

        response = await retried(self._cluster.attempts("electing leaders", self._timeout_s), attempt)
        return {
            TopicPartition(topic.topic, each.partition_id): error_of(
                each.error_code, f"{topic.topic}-{each.partition_id}", each.error_message
            )
            if each.error_code != NO_ERROR
            else None
            for topic in response.replica_election_results
            for each in topic.partition_result
            if each.error_code != ElectionNotNeeded.code
        }

    async def absent_members(self) -> list[BrokerId]:
        """Members that are down. None are known of clusters before Kafka 4.0 (KIP-1073)."""
        request = DescribeClusterRequest(include_fenced_brokers=True)

        async def attempt() -> DescribeClusterResponse:
            response = await self._cluster.ask_any(request, DescribeClusterResponse)
            raise_error(response.error_code, message=response.error_message)
            return response

        response = await retried(self._cluster.attempts("describing the cluster", self._timeout_s), attempt)
        return sorted(each.broker_id for each in response.brokers if each.is_fenced)

    async def unregister_broker(self, broker_id: BrokerId) -> None:
        request = UnregisterBrokerRequest(broker_id=broker_id)

        async def attempt() -> None:
            response = await self._cluster.ask_controller(request, UnregisterBrokerResponse)
            raise_error(response.error_code, message=response.error_message)

        await retried(self._cluster.attempts(f"unregistering broker {broker_id}", self._timeout_s), attempt)

    async def replica_sizes(self) -> dict[tuple[TopicPartition, BrokerId], int]:
        """Bytes of every replica whose broker answers."""
        responses = await Admin(self._cluster, timeout_s=self._timeout_s).describe_log_dirs()
        return {
            (TopicPartition(topic.name, each.partition_index), broker_id): each.partition_size
            for broker_id, response in responses.items()
            if isinstance(response, DescribeLogDirsResponse)
            for directory in response.results
            for topic in directory.topics
            for each in topic.partitions
            if not each.is_future_key
        }
