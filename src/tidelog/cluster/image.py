"""What a broker knows of its cluster: immutable, so that whoever holds an image sees one moment."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tidelog.config.listeners import Endpoint
from tidelog.types import NO_BROKER, BrokerId, TopicPartition, Uuid

NO_INCARNATION = 0
"""The epoch of none: no incarnation of the replica is known to hold everything that is committed (R41)."""

CLUSTER_WIDE = "<default>"
"""The name, among the brokers' configs, of what holds for all brokers."""


@dataclass(frozen=True, slots=True)
class Partition:
    """The leadership of one partition, as the store has it."""

    index: int
    replicas: tuple[BrokerId, ...]
    leader: BrokerId
    leader_epoch: int
    in_sync_replicas: tuple[BrokerId, ...]
    controller_epoch: int = 0
    version: int = 0
    """Of its state in the store: the one a compare-and-set must name."""
    adding_replicas: tuple[BrokerId, ...] = ()
    removing_replicas: tuple[BrokerId, ...] = ()
    in_sync_epochs: Mapping[BrokerId, int] = field(default_factory=dict, compare=False)
    """The incarnation (broker epoch) in which each in-sync replica is in sync; none other counts (R41).

    States written by Kafka have none, nor has what brokers are told of the cluster.
    """
    eligible_replicas: tuple[BrokerId, ...] = ()
    """Left the in-sync replicas below min ISR, with everything that is committed (R42, KIP-966)."""
    eligible_epochs: Mapping[BrokerId, int] = field(default_factory=dict, compare=False)
    """The incarnation in which each eligible replica was in sync."""
    last_known_eligible: tuple[BrokerId, ...] = ()
    """Eligible replicas that restarted uncleanly since; only in what brokers are told of the cluster."""

    def stamped(self, *, controller_epoch: int | None = None, version: int | None = None) -> "Partition":
        """As `dataclasses.replace`, which takes several times as long: a failover makes thousands."""
        return Partition(
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
            self.eligible_replicas,
            self.eligible_epochs,
            self.last_known_eligible,
        )

    @property
    def is_being_reassigned(self) -> bool:
        return bool(self.adding_replicas or self.removing_replicas)

    def recorded_epoch(self, replica: BrokerId) -> int | None:
        """The incarnation in which this replica is known to have had everything that is committed."""
        epoch = self.in_sync_epochs.get(replica)
        return self.eligible_epochs.get(replica) if epoch is None else epoch


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    topic_id: Uuid
    partitions: tuple[Partition, ...]
    """By index: partitions[3].index == 3."""
    configs: Mapping[str, str] = field(default_factory=dict)
    """The topic's own settings, by Kafka's name."""
    version: int = 0
    """Of its assignment in the store."""


@dataclass(frozen=True, slots=True)
class Broker:
    id: BrokerId
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    epoch: int = -1
    """The transaction that registered it (R39)."""
    previous_epoch: int = -1
    """The epoch before this one if nothing was lost in between: a clean shutdown, or only the session ended (R42)."""
    directory_ids: tuple[str, ...] = ()
    """Of its log directories that are online (KIP-858)."""

    def endpoint(self, listener_name: str) -> Endpoint | None:
        return next((found for found in self.endpoints if found.listener_name == listener_name), None)

    def inter_broker_endpoint(self, listener_name: str | None = None) -> Endpoint | None:
        """Where other brokers reach it: by this listener, or else by its first one without encryption."""
        if listener_name is not None:
            return self.endpoint(listener_name.upper())
        return next((found for found in self.endpoints if found.security_protocol == "PLAINTEXT"), None)


@dataclass(frozen=True, slots=True)
class ClusterImage:
    cluster_id: str
    brokers: Mapping[BrokerId, Broker] = field(default_factory=dict)
    topics: Mapping[str, Topic] = field(default_factory=dict)
    topic_names: Mapping[Uuid, str] = field(default_factory=dict)
    """The name of each topic id."""
    controller_id: BrokerId = NO_BROKER
    broker_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Dynamic settings, by broker id or CLUSTER_WIDE."""
    group_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """The settings of groups that have some of their own."""

    def topic_by_id(self, topic_id: Uuid) -> Topic | None:
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics[name]

    def partition(self, topic_partition: TopicPartition) -> Partition | None:
        topic = self.topics.get(topic_partition.topic)
        if topic is None or not 0 <= topic_partition.partition < len(topic.partitions):
            return None
        return topic.partitions[topic_partition.partition]

    @property
    def racks(self) -> dict[BrokerId, str | None]:
        return {broker.id: broker.rack for broker in self.brokers.values()}

    def with_topics(self, *changed: Topic) -> "ClusterImage":
        """New and changed topics; one copy of the dictionaries however many there are."""
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
