"""Survey of a cluster before a move: brokers, replicas, their sizes, and the reassignments under way."""

from collections.abc import Mapping
from typing import NamedTuple

from tidelog.client.admin.reassignment_admin import Reassignment, ReassignmentAdmin
from tidelog.client.routing.cluster import Cluster
from tidelog.client.routing.metadata import BrokerMetadata, PartitionMetadata
from tidelog.cluster.move_planner import ClusterLoad, PartitionLoad
from tidelog.types import BrokerId, TopicPartition


class Survey(NamedTuple):
    brokers: Mapping[BrokerId, BrokerMetadata]
    """Live ones."""
    partitions: Mapping[TopicPartition, PartitionMetadata]
    sizes: Mapping[tuple[TopicPartition, BrokerId], int]
    """Bytes of each replica whose broker answers."""
    ongoing: Mapping[TopicPartition, Reassignment]

    def size_of(self, topic_partition: TopicPartition) -> int:
        """Bytes that a new replica must copy: the leader's, or the most that is known."""
        partition = self.partitions[topic_partition]
        found = self.sizes.get((topic_partition, partition.leader))
        if found is not None:
            return found
        return max((self.sizes.get((topic_partition, each), 0) for each in partition.replicas), default=0)

    @property
    def load(self) -> ClusterLoad:
        return ClusterLoad(
            {broker.broker_id: broker.rack for broker in self.brokers.values()},
            {each: PartitionLoad(found.replicas, self.size_of(each)) for each, found in self.partitions.items()},
        )


async def survey_cluster(cluster: Cluster) -> Survey:
    admin = ReassignmentAdmin(cluster)
    metadata = await cluster.ask_topics(None)
    partitions = {
        TopicPartition(topic.name, number): partition
        for topic in metadata.topics.values()
        for number, partition in topic.partitions.items()
    }
    return Survey(metadata.brokers, partitions, await admin.replica_sizes(), await admin.ongoing())
