"""What the controller knows of the cluster, loaded from the store when it took office: plain state, no decisions."""

# Core: no clock, no I/O, no await.

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from tidelog.cluster.image import NO_INCARNATION, Broker, Partition, Topic
from tidelog.controller.elections import NO_STATE_VERSION, Health, LogEnd
from tidelog.controller.states import PartitionState, Replica, ReplicaState, partition_states, replica_states
from tidelog.state_machine import StateMap
from tidelog.types import BrokerId, TopicPartition, Uuid


class Asked(NamedTuple):
    """A question to one incarnation of a broker, in one time without leader; its answer belongs to no other."""

    leader_epoch: int
    """In which the partition has no leader, and nothing is appended."""
    broker_epoch: int


class Answer(NamedTuple):
    """What a broker said of its log of one partition."""

    asked: Asked
    end: LogEnd
    directory_id: str | None
    """Where the log is; None if there is none, or the broker cannot tell."""


def with_incarnations(partition: Partition, modified_id: int, brokers: Mapping[BrokerId, Broker]) -> Partition:
    """The partition, with incarnations where its state does not tell them: Kafka wrote it, or an earlier version (R39).

    Whoever registered before the state was written is meant; of the others some incarnation that registered before,
    for which the write itself stands: no registration has its id. It may be wrong: a write that was under way for long
    may be about an earlier incarnation than the one that registered before it arrived.
    """
    unknown = [each for each in partition.in_sync_replicas if each not in partition.in_sync_epochs]
    if not unknown or partition.version == NO_STATE_VERSION:
        return partition
    present = {each: brokers[each].epoch for each in unknown if each in brokers}
    assumed = {each: min(present.get(each, modified_id), modified_id) for each in unknown}
    return replace(partition, in_sync_epochs={**partition.in_sync_epochs, **assumed})


@dataclass(slots=True)
class KnownTopic:
    name: str
    topic_id: Uuid
    partitions: list[Partition]
    """By index, changed in place: one partition of thousands must cost what one costs."""
    configs: Mapping[str, str] = field(default_factory=dict)

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
    partition_states: StateMap[TopicPartition, PartitionState] = field(default_factory=partition_states)
    replica_states: StateMap[Replica, ReplicaState] = field(default_factory=replica_states)
    failed_replicas: set[Replica] = field(default_factory=set)
    """Their broker lives, their log directory does not."""
    topics_to_delete: set[str] = field(default_factory=set)
    suspended_deletions: set[str] = field(default_factory=set)
    """Of those, the ones that wait for a broker to come back (R38)."""
    deletion_attempts: dict[Replica, int] = field(default_factory=dict)
    """The last StopReplica that was to delete each replica: no other answer counts (R43)."""
    refusals: dict[BrokerId, int] = field(default_factory=dict)
    """Brokers that refused roles, and how often in a row."""
    directories: dict[BrokerId, Mapping[str, int]] = field(default_factory=dict)
    """By directory id, in which epoch of its broker a log directory first appeared; of those that are online."""
    answers: dict[TopicPartition, dict[BrokerId, Answer]] = field(default_factory=dict)
    """Of brokers that were asked for the logs of partitions without leader (R42)."""
    asked: dict[TopicPartition, dict[BrokerId, Asked]] = field(default_factory=dict)
    default_min_in_sync: int = 1
    """min.insync.replicas of topics that have none of their own."""

    def add_topic(self, topic: Topic) -> None:
        self.topics[topic.name] = KnownTopic(topic.name, topic.topic_id, list(topic.partitions), topic.configs)
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
            self.forget_answers(topic_partition)
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

    def health(self, topic_partition: TopicPartition) -> Health:
        topic, brokers, failed = self.topics[topic_partition.topic], self.brokers, self.failed_replicas
        partition = topic.partitions[topic_partition.partition]
        alive = [each for each in partition.replicas if each in brokers]
        online = [each for each in alive if Replica(topic_partition, each) not in failed] if failed else alive
        came_back = self._replaced(partition)
        known = Health(
            frozenset(online),
            came_back,
            self.leaving,
            epochs={each: brokers[each].epoch for each in alive},
            min_in_sync=self._min_in_sync(topic),
        )
        return self._examined(topic_partition, partition, known) if came_back else known

    def _min_in_sync(self, topic: KnownTopic) -> int:
        configured = topic.configs.get("min.insync.replicas", "")
        return int(configured) if configured.isdecimal() else self.default_min_in_sync

    def _replaced(self, partition: Partition) -> set[BrokerId]:
        """Members whose broker is registered, but not in the incarnation that is recorded (R41, KIP-903)."""
        recorded, brokers = partition.in_sync_epochs, self.brokers
        if partition.eligible_epochs:
            recorded = {**partition.eligible_epochs, **recorded}
        return {each for each, epoch in recorded.items() if each in brokers and brokers[each].epoch != epoch}

    def _examined(self, topic_partition: TopicPartition, partition: Partition, known: Health) -> Health:
        """What the restarts may have cost (R42)."""
        clean, lost, doubtful = set[BrokerId](), set[BrokerId](), set[BrokerId]()
        answers = self._answers(topic_partition, partition)
        for broker_id in known.restarted & self.brokers.keys():
            recorded = partition.recorded_epoch(broker_id)
            if recorded is None:
                continue
            appeared = self.directories.get(broker_id, {})
            new = {each for each, epoch in appeared.items() if epoch > recorded}
            answer = answers.get(broker_id)
            if recorded == NO_INCARNATION:
                lost.add(broker_id)
            elif self.brokers[broker_id].previous_epoch == recorded:
                clean.add(broker_id)
            elif new and (len(new) == len(appeared) or (answer is not None and answer.directory_id in {None, *new})):
                lost.add(broker_id)
            elif new and answer is None:
                doubtful.add(broker_id)
        ends = {each: answer.end for each, answer in answers.items() if each in known.restarted}
        return known._replace(clean=clean, lost=lost, doubtful=doubtful, answers=ends)

    def _answers(self, topic_partition: TopicPartition, partition: Partition) -> dict[BrokerId, Answer]:
        """Those that belong to this time without leader, and to who is there now."""
        return {
            broker_id: answer
            for broker_id, answer in self.answers.get(topic_partition, {}).items()
            if answer.asked == self.question(partition, broker_id)
        }

    def question(self, partition: Partition, broker_id: BrokerId) -> Asked | None:
        """What would be asked now."""
        broker = self.brokers.get(broker_id)
        return None if broker is None else Asked(partition.leader_epoch, broker.epoch)

    def forget_answers(self, topic_partition: TopicPartition) -> None:
        self.answers.pop(topic_partition, None)
        self.asked.pop(topic_partition, None)

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
