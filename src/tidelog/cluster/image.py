"""Cluster image: immutable snapshot of the metadata that a broker has of its cluster."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tidelog.config.listeners import Endpoint
from tidelog.types import NO_BROKER, BrokerId, TopicPartition, Uuid

NO_INCARNATION = 0
"""Broker epoch that no broker has: no incarnation of the replica is known to have all committed records (R41)."""

DEFAULT_ENTITY_NAME = "<default>"
"""Name of the cluster-wide defaults among the broker configs."""


@dataclass(frozen=True, slots=True)
class PartitionRegistration:
    """Leadership and ISR of one partition, as in the store."""

    index: int
    replicas: tuple[BrokerId, ...]
    leader: BrokerId
    leader_epoch: int
    in_sync_replicas: tuple[BrokerId, ...]
    controller_epoch: int = 0
    version: int = 0
    """Version of the state node in the store, for compare-and-set."""
    adding_replicas: tuple[BrokerId, ...] = ()
    removing_replicas: tuple[BrokerId, ...] = ()
    in_sync_epochs: Mapping[BrokerId, int] = field(default_factory=dict, compare=False)
    """The incarnation (broker epoch) in which each in-sync replica is in sync; no other incarnation counts (R41).

    Empty in states written by Kafka, and in the metadata sent to brokers.
    """
    eligible_leader_replicas: tuple[BrokerId, ...] = ()
    """Replicas that left the ISR with all committed records when it shrank below min ISR (R42, KIP-966)."""
    eligible_leader_epochs: Mapping[BrokerId, int] = field(default_factory=dict, compare=False)
    """The incarnation in which each eligible replica was in sync."""
    last_known_eligible: tuple[BrokerId, ...] = ()
    """Eligible replicas that have restarted uncleanly since (LastKnownElr); only in the metadata sent to brokers."""
    removed_replicas: tuple[BrokerId, ...] = ()
    """Replicas of earlier assignments whose logs are still to be deleted; their broker may be away (R37)."""

    def stamped(self, *, controller_epoch: int | None = None, version: int | None = None) -> "PartitionRegistration":
        """Copy with these values. Several times faster than `dataclasses.replace`: a failover makes thousands."""
        return PartitionRegistration(
            self.index,
            self.replicas,
            self.leader,
            self.leader_epoch,
            self.in_sync_replicas,
            self.controller_epoch if controller_epoch is None else controller_epoch,
            self.version if version is None else version,
            self.adding_replicas,
            self.removing_replicas,
            self.in_sync_epochs,
            self.eligible_leader_replicas,
            self.eligible_leader_epochs,
            self.last_known_eligible,
            self.removed_replicas,
        )

    @property
    def is_being_reassigned(self) -> bool:
        return bool(self.adding_replicas or self.removing_replicas)

    @property
    def original_replicas(self) -> tuple[BrokerId, ...]:
        """The replicas before the reassignment, which are restored if it is cancelled."""
        return tuple(each for each in self.replicas if each not in self.adding_replicas)

    @property
    def target_replicas(self) -> tuple[BrokerId, ...]:
        """The replicas after the reassignment."""
        return tuple(each for each in self.replicas if each not in self.removing_replicas)

    def recorded_epoch(self, replica: BrokerId) -> int | None:
        """The incarnation (broker epoch) in which this replica had all committed records, if it is known."""
        epoch = self.in_sync_epochs.get(replica)
        return self.eligible_leader_epochs.get(replica) if epoch is None else epoch


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    topic_id: Uuid
    partitions: tuple[PartitionRegistration, ...]
    """By index: partitions[3].index == 3."""
    configs: Mapping[str, str] = field(default_factory=dict)
    """Topic-level settings, by Kafka's names."""
    version: int = 0
    """Version of the assignment node in the store."""


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    id: BrokerId
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    epoch: int = -1
    """Transaction id of the store (czxid) that created its registration (R39)."""
    previous_epoch: int = -1
    """The epoch before this one if no data was lost in between: clean shutdown, or only the session ended (R42)."""
    directory_ids: tuple[str, ...] = ()
    """Ids of its online log directories (KIP-858)."""

    def endpoint(self, listener_name: str) -> Endpoint | None:
        return next((found for found in self.endpoints if found.listener_name == listener_name), None)

    def inter_broker_endpoint(self, listener_name: str | None = None) -> Endpoint | None:
        """Address for other brokers: of the named listener or, if none is named, of the first plaintext listener."""
        if listener_name is not None:
            return self.endpoint(listener_name.upper())
        return next((found for found in self.endpoints if found.security_protocol == "PLAINTEXT"), None)


@dataclass(frozen=True, slots=True)
class ClusterImage:
    cluster_id: str
    brokers: Mapping[BrokerId, BrokerRegistration] = field(default_factory=dict)
    topics: Mapping[str, Topic] = field(default_factory=dict)
    topic_names: Mapping[Uuid, str] = field(default_factory=dict)
    """Topic names by id."""
    controller_id: BrokerId = NO_BROKER
    broker_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Dynamic settings, by broker id or DEFAULT_ENTITY_NAME."""
    group_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Settings of groups that have their own."""

    def topic_by_id(self, topic_id: Uuid) -> Topic | None:
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics[name]

    def partition(self, topic_partition: TopicPartition) -> PartitionRegistration | None:
        topic = self.topics.get(topic_partition.topic)
        if topic is None or not 0 <= topic_partition.partition < len(topic.partitions):
            return None
        return topic.partitions[topic_partition.partition]

    @property
    def racks(self) -> dict[BrokerId, str | None]:
        return {broker.id: broker.rack for broker in self.brokers.values()}

    def brokers_in_rack(self, rack: str, listener_name: str) -> frozenset[BrokerId]:
        """Brokers of the rack that have the listener, so that its clients can reach them."""
        brokers = self.brokers.values()
        return frozenset(
            [each.id for each in brokers if each.rack == rack and each.endpoint(listener_name) is not None]
        )

    def with_topics(self, *changed: Topic) -> "ClusterImage":
        """Image with new and changed topics; copies the dictionaries once for all of them."""
        topics = dict(self.topics)
        if all(self.topic_names.get(topic.topic_id) == topic.name for topic in changed):
            topics.update((topic.name, topic) for topic in changed)
            return replace(self, topics=topics)
        names = dict(self.topic_names)
        for topic in changed:
            earlier = topics.get(topic.name)
            if earlier is not None:
                names.pop(earlier.topic_id, None)
            topics[topic.name] = topic
            names[topic.topic_id] = topic.name
        return replace(self, topics=topics, topic_names=names)

    def without_topics(self, *gone: str) -> "ClusterImage":
        topics, names = dict(self.topics), dict(self.topic_names)
        for name in gone:
            topic = topics.pop(name, None)
            if topic is not None:
                names.pop(topic.topic_id, None)
        return replace(self, topics=topics, topic_names=names)
