"""What the controller knows of the cluster, loaded from the store when it took office: plain state, no decisions."""

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from tidelog.cluster.image import Broker, Partition, Topic
from tidelog.controller.elections import NO_STATE_VERSION, NOBODY, Health
from tidelog.controller.states import PartitionState, Replica, ReplicaState
from tidelog.types import BrokerId, TopicPartition, Uuid


@dataclass(slots=True)
class KnownTopic:
    name: str
    topic_id: Uuid
    partitions: list[Partition]
    """By index, changed in place: one partition of thousands must cost what one costs."""

    def __iter__(self) -> Iterator[tuple[TopicPartition, Partition]]:
        for partition in self.partitions:
            yield TopicPartition(self.name, partition.index), partition


@dataclass(slots=True)
class ControllerContext:
    brokers: dict[BrokerId, Broker] = field(default_factory=dict)
    """Alive, with their epochs."""
    leaving: set[BrokerId] = field(default_factory=set)
    """Alive, in controlled shutdown."""
    topics: dict[str, KnownTopic] = field(default_factory=dict)
    topic_names: dict[Uuid, str] = field(default_factory=dict)
    partition_states: dict[TopicPartition, PartitionState] = field(default_factory=dict)
    replica_states: dict[Replica, ReplicaState] = field(default_factory=dict)
    failed_replicas: set[Replica] = field(default_factory=set)
    """Their broker lives, their log directory does not."""
    topics_to_delete: set[str] = field(default_factory=set)
    suspended_deletions: set[str] = field(default_factory=set)
    """Of those, the ones that wait for a broker to come back (R38)."""
    deletion_attempts: dict[Replica, int] = field(default_factory=dict)
    """The last StopReplica that was to delete each replica: no other answer counts (R43)."""
    refusals: dict[BrokerId, int] = field(default_factory=dict)
    """Brokers that refused roles, and how often in a row."""

    def add_topic(self, topic: Topic) -> None:
        self.topics[topic.name] = KnownTopic(topic.name, topic.topic_id, list(topic.partitions))
        self.topic_names[topic.topic_id] = topic.name

    def add_partitions(self, topic: str, partitions: Iterable[Partition]) -> None:
        self.topics[topic].partitions.extend(partitions)

    def drop_topic(self, name: str) -> None:
        topic = self.topics.pop(name)
        self.topic_names.pop(topic.topic_id, None)
        self.topics_to_delete.discard(name)
        self.suspended_deletions.discard(name)
        for topic_partition, partition in topic:
            self.partition_states.pop(topic_partition, None)
            for broker_id in partition.replicas:
                self.replica_states.pop(Replica(topic_partition, broker_id), None)
                self.failed_replicas.discard(Replica(topic_partition, broker_id))
                self.deletion_attempts.pop(Replica(topic_partition, broker_id), None)

    def find(self, topic_partition: TopicPartition) -> Partition | None:
        topic = self.topics.get(topic_partition.topic)
        if topic is None or not 0 <= topic_partition.partition < len(topic.partitions):
            return None
        return topic.partitions[topic_partition.partition]

    def partition(self, topic_partition: TopicPartition) -> Partition:
        return self.topics[topic_partition.topic].partitions[topic_partition.partition]

    def put(self, topic_partition: TopicPartition, partition: Partition) -> None:
        self.topics[topic_partition.topic].partitions[topic_partition.partition] = partition

    def partitions(self) -> Iterator[tuple[TopicPartition, Partition]]:
        for topic in self.topics.values():
            yield from topic

    def partitions_on(self, brokers: AbstractSet[BrokerId]) -> list[TopicPartition]:
        return [each for each, partition in self.partitions() if not brokers.isdisjoint(partition.replicas)]

    def replicas_on(self, brokers: AbstractSet[BrokerId]) -> list[Replica]:
        return [
            Replica(topic_partition, broker_id)
            for topic_partition, partition in self.partitions()
            for broker_id in partition.replicas
            if broker_id in brokers
        ]

    def replicas_of(self, topic: str) -> list[Replica]:
        return [Replica(each, broker_id) for each, partition in self.topics[topic] for broker_id in partition.replicas]

    def is_online(self, replica: Replica) -> bool:
        return replica.broker_id in self.brokers and replica not in self.failed_replicas

    def health(self, topic_partition: TopicPartition, restarted: AbstractSet[BrokerId] = NOBODY) -> Health:
        partition = self.partition(topic_partition)
        online = frozenset(each for each in partition.replicas if self.is_online(Replica(topic_partition, each)))
        return Health(online, restarted | self._replaced(partition), self.leaving)

    def _replaced(self, partition: Partition) -> AbstractSet[BrokerId]:
        """Those who came back before they were written down as in sync, for what they had before that (KIP-903)."""
        return {
            broker_id
            for broker_id, epoch in partition.in_sync_epochs.items()
            if broker_id in self.brokers and self.brokers[broker_id].epoch != epoch
        }

    def is_being_deleted(self, topic_partition: TopicPartition) -> bool:
        return topic_partition.topic in self.topics_to_delete

    def without_leader(self) -> list[TopicPartition]:
        """What an election might help."""
        return [
            topic_partition
            for topic_partition, state in self.partition_states.items()
            if state is not PartitionState.ONLINE and not self.is_being_deleted(topic_partition)
        ]

    # -- figures

    @property
    def partition_count(self) -> int:
        return sum(len(topic.partitions) for topic in self.topics.values())

    @property
    def offline_partition_count(self) -> int:
        """Those whose leader is not there."""
        return sum(
            partition.leader not in self.brokers
            for topic_partition, partition in self.partitions()
            if not self.is_being_deleted(topic_partition)
        )

    @property
    def preferred_replica_imbalance_count(self) -> int:
        return sum(
            partition.leader != partition.replicas[0]
            for topic_partition, partition in self.partitions()
            if partition.version != NO_STATE_VERSION and not self.is_being_deleted(topic_partition)
        )
