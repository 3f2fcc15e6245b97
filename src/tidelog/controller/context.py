"""Controller context: the controller's copy of brokers, topics, partition states and replica states.

Loaded from the store in controller failover, then kept up to date by events.
"""

# Core: no clock, no I/O, no await.

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from tidelog.cluster.image import NO_INCARNATION, BrokerRegistration, PartitionRegistration, Topic
from tidelog.controller.elections import NO_STATE_VERSION, Health, LogEnd
from tidelog.controller.log_directories import LogDirectories
from tidelog.controller.states import PartitionState, Replica, ReplicaState, partition_states, replica_states
from tidelog.numerals import whole_number
from tidelog.state_machine import StateMap
from tidelog.types import BrokerId, TopicPartition, Uuid


class LogEndQuery(NamedTuple):
    """Log end query to one broker incarnation while the partition has no leader. Its answer is valid only for both."""

    leader_epoch: int
    """Epoch in which the partition has no leader, so that nothing is appended."""
    broker_epoch: int


class LogEndResponse(NamedTuple):
    """A broker's answer to a log end query."""

    query: LogEndQuery
    end: LogEnd
    directory_id: str | None
    """Log directory that holds the log; None if there is no log, or the broker does not report directories."""


def with_incarnations(
    partition: PartitionRegistration, modified_id: int, brokers: Mapping[BrokerId, BrokerRegistration]
) -> PartitionRegistration:
    """The partition with broker epochs filled in where the state lacks them: Kafka or an older version wrote it (R39).

    A broker that registered before the state was written is assumed to be in sync in its current incarnation. For any
    other broker the transaction id of the write stands for an earlier incarnation: no registration has that id. The
    assumption can be wrong: a write that took long may mean an incarnation before the one registered when it arrived.
    """
    unknown = [each for each in partition.in_sync_replicas if each not in partition.in_sync_epochs]
    if not unknown or partition.version == NO_STATE_VERSION:
        return partition
    present = {each: brokers[each].epoch for each in unknown if each in brokers}
    assumed = {each: min(present.get(each, modified_id), modified_id) for each in unknown}
    return replace(partition, in_sync_epochs={**partition.in_sync_epochs, **assumed})


@dataclass(slots=True)
class MutableTopic:
    name: str
    topic_id: Uuid
    partitions: list[PartitionRegistration]
    """By index, changed in place: a change of one partition must not copy thousands."""
    configs: Mapping[str, str] = field(default_factory=dict)

    def __iter__(self) -> Iterator[tuple[TopicPartition, PartitionRegistration]]:
        for partition in self.partitions:
            yield TopicPartition(self.name, partition.index), partition


@dataclass(slots=True)
class ControllerContext:
    brokers: dict[BrokerId, BrokerRegistration] = field(default_factory=dict)
    """Live brokers with their epochs."""
    shutting_down: set[BrokerId] = field(default_factory=set)
    """Live brokers in controlled shutdown."""
    topics: dict[str, MutableTopic] = field(default_factory=dict)
    topic_names: dict[Uuid, str] = field(default_factory=dict)
    partition_states: StateMap[TopicPartition, PartitionState] = field(default_factory=partition_states)
    replica_states: StateMap[Replica, ReplicaState] = field(default_factory=replica_states)
    failed_replicas: set[Replica] = field(default_factory=set)
    """Replicas whose broker is alive and whose log directory is offline."""
    topics_to_delete: set[str] = field(default_factory=set)
    topics_ineligible_for_deletion: set[str] = field(default_factory=set)
    """Topics to delete that wait for a broker to come back (R38)."""
    deletion_attempts: dict[Replica, int] = field(default_factory=dict)
    """Number of the last StopReplica that deletes each replica: responses to earlier ones are ignored (R43)."""
    rejections: dict[BrokerId, int] = field(default_factory=dict)
    """Consecutive refusals of LeaderAndIsr by broker."""
    directories: dict[BrokerId, LogDirectories] = field(default_factory=dict)
    """Log directories of live brokers."""
    responses: dict[TopicPartition, dict[BrokerId, LogEndResponse]] = field(default_factory=dict)
    """Log ends that brokers reported for partitions without a leader (R42)."""
    pending_log_end_queries: dict[TopicPartition, dict[BrokerId, LogEndQuery]] = field(default_factory=dict)
    default_min_in_sync: int = 1
    """min.insync.replicas of topics that do not override it."""

    def add_topic(self, topic: Topic) -> None:
        self.topics[topic.name] = MutableTopic(topic.name, topic.topic_id, list(topic.partitions), topic.configs)
        self.topic_names[topic.topic_id] = topic.name

    def add_partitions(self, topic: str, partitions: Iterable[PartitionRegistration]) -> None:
        self.topics[topic].partitions.extend(partitions)

    def drop_topic(self, name: str) -> None:
        topic = self.topics.pop(name)
        self.topic_names.pop(topic.topic_id, None)
        self.topics_to_delete.discard(name)
        self.topics_ineligible_for_deletion.discard(name)
        for topic_partition, partition in topic:
            self.partition_states.pop(topic_partition, None)
            self.forget_answers(topic_partition)
            for broker_id in (*partition.replicas, *partition.removed_replicas):
                self.forget_replica(Replica(topic_partition, broker_id))

    def forget_replica(self, replica: Replica) -> None:
        self.replica_states.pop(replica, None)
        self.failed_replicas.discard(replica)
        self.deletion_attempts.pop(replica, None)

    def find(self, topic_partition: TopicPartition) -> PartitionRegistration | None:
        topic = self.topics.get(topic_partition.topic)
        if topic is None or not 0 <= topic_partition.partition < len(topic.partitions):
            return None
        return topic.partitions[topic_partition.partition]

    def partition(self, topic_partition: TopicPartition) -> PartitionRegistration:
        return self.topics[topic_partition.topic].partitions[topic_partition.partition]

    def put(self, topic_partition: TopicPartition, partition: PartitionRegistration) -> None:
        self.topics[topic_partition.topic].partitions[topic_partition.partition] = partition

    def partitions(self) -> Iterator[tuple[TopicPartition, PartitionRegistration]]:
        for topic in self.topics.values():
            yield from topic

    # The scans below make a TopicPartition only for what they find: every change of a broker makes all of them, and a
    # broker has few of the partitions of a large cluster.

    def partitions_on(self, brokers: AbstractSet[BrokerId]) -> list[TopicPartition]:
        return [
            TopicPartition(topic.name, partition.index)
            for topic in self.topics.values()
            for partition in topic.partitions
            if not brokers.isdisjoint(partition.replicas)
        ]

    def replicas_on(self, brokers: AbstractSet[BrokerId]) -> list[Replica]:
        if not brokers:
            return []
        return [
            Replica(TopicPartition(topic.name, partition.index), broker_id)
            for topic in self.topics.values()
            for partition in topic.partitions
            if not brokers.isdisjoint(partition.replicas)
            for broker_id in partition.replicas
            if broker_id in brokers
        ]

    def replicas_of(self, topic: str) -> list[Replica]:
        return [Replica(each, broker_id) for each, partition in self.topics[topic] for broker_id in partition.replicas]

    def reassigning(self) -> list[TopicPartition]:
        return [
            TopicPartition(topic.name, partition.index)
            for topic in self.topics.values()
            if topic.name not in self.topics_to_delete
            for partition in topic.partitions
            if partition.adding_replicas or partition.removing_replicas
        ]

    def removed_replicas(self, brokers: AbstractSet[BrokerId]) -> list[Replica]:
        """On these brokers: logs of earlier assignments that are still to be deleted (R37)."""
        return [
            Replica(TopicPartition(topic.name, partition.index), broker_id)
            for topic in self.topics.values()
            if topic.name not in self.topics_to_delete
            for partition in topic.partitions
            if partition.removed_replicas
            for broker_id in partition.removed_replicas
            if broker_id in brokers
        ]

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
            self.shutting_down,
            epochs={each: brokers[each].epoch for each in alive},
            min_in_sync=self._min_in_sync(topic),
        )
        return self._with_restart_findings(topic_partition, partition, known) if came_back else known

    def _min_in_sync(self, topic: MutableTopic) -> int:
        configured = whole_number(topic.configs.get("min.insync.replicas", "").strip())
        return self.default_min_in_sync if configured is None else configured

    def _replaced(self, partition: PartitionRegistration) -> set[BrokerId]:
        """In-sync or eligible replicas whose broker epoch differs from the recorded one (R41, KIP-903)."""
        recorded, brokers = partition.in_sync_epochs, self.brokers
        if partition.eligible_leader_epochs:
            recorded = {**partition.eligible_leader_epochs, **recorded}
        return {each for each, epoch in recorded.items() if each in brokers and brokers[each].epoch != epoch}

    def _with_restart_findings(
        self, topic_partition: TopicPartition, partition: PartitionRegistration, known: Health
    ) -> Health:
        """Health with what is known about data lost in restarts (R42)."""
        clean, lost, doubtful = set[BrokerId](), set[BrokerId](), set[BrokerId]()
        responses = self._log_end_answers(topic_partition, partition)
        for broker_id in known.restarted & self.brokers.keys():
            recorded = partition.recorded_epoch(broker_id)
            if recorded is None:
                continue
            directories = self.directories.get(broker_id, LogDirectories())
            new = directories.replacements_since(recorded)
            response = responses.get(broker_id)
            if recorded == NO_INCARNATION:
                lost.add(broker_id)
            elif self.brokers[broker_id].previous_epoch == recorded:
                clean.add(broker_id)
            elif new and (
                directories.are_all_in(new) or (response is not None and response.directory_id in {None, *new})
            ):
                lost.add(broker_id)
            elif new and response is None:
                doubtful.add(broker_id)
        ends = {each: response.end for each, response in responses.items() if each in known.restarted}
        return known._replace(clean=clean, lost=lost, doubtful=doubtful, responses=ends)

    def _log_end_answers(
        self, topic_partition: TopicPartition, partition: PartitionRegistration
    ) -> dict[BrokerId, LogEndResponse]:
        """Answers for the current leader epoch and the current broker incarnations."""
        return {
            broker_id: response
            for broker_id, response in self.responses.get(topic_partition, {}).items()
            if response.query == self.log_end_query(partition, broker_id)
        }

    def log_end_query(self, partition: PartitionRegistration, broker_id: BrokerId) -> LogEndQuery | None:
        """The query that is valid now."""
        broker = self.brokers.get(broker_id)
        return None if broker is None else LogEndQuery(partition.leader_epoch, broker.epoch)

    def forget_answers(self, topic_partition: TopicPartition) -> None:
        self.responses.pop(topic_partition, None)
        self.pending_log_end_queries.pop(topic_partition, None)

    def is_being_deleted(self, topic_partition: TopicPartition) -> bool:
        return topic_partition.topic in self.topics_to_delete

    def without_leader(self) -> list[TopicPartition]:
        """Partitions for which an election may find a leader."""
        return [
            topic_partition
            for topic_partition, state in self.partition_states.items()
            if state is not PartitionState.ONLINE and not self.is_being_deleted(topic_partition)
        ]

    # ---- metrics

    @property
    def partition_count(self) -> int:
        return sum(len(topic.partitions) for topic in self.topics.values())

    @property
    def offline_partition_count(self) -> int:
        """Partitions whose leader is not online."""
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
