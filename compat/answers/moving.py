"""Short forms of requests about replicas and log directories, for a conversation with a cluster of three brokers."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from compat.answers.conversation import Conversation, Line, wait_until
from tidelog.errors import NO_ERROR
from tidelog.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tidelog.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from tidelog.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from tidelog.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tidelog.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tidelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from tidelog.protocol.records import Record, build_batch

BROKER_IDS = (1, 2, 3)
TIMEOUT_MS = 20_000
TOPIC, BROKER = 2, 4
"""Kinds of resources that have settings."""
SET, DELETE = 0, 1
BATCH_BYTES = 50_000
SETTLED_S = 1.0
"""Between two looks that must find the same."""

Replicas = Sequence[int] | None
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LISTS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")

GROWN = "with more partitions during a move"
ONE_TOPIC_OF_TWO_FACTORS = "Kafka counts those of the move among the replicas that new partitions are to have"
OF_TOPICS = "Tidelog refuses lists of replicas for brokers, as any setting that it does not know; Kafka keeps them"
WITHOUT_TIME = "Tidelog answers what it can answer, however short the time"
BACK = "Tidelog forgets at once what is no longer wanted, as Kafka 3.9; Kafka 4.3 adds and removes it until the end"
KNOWN_MOVES = {
    "with a timeout of 0 ms": WITHOUT_TIME,
    "with a timeout of -1 ms": WITHOUT_TIME,
    "after: back to where it was": BACK,
    "grow to 4 partitions meanwhile": ONE_TOPIC_OF_TWO_FACTORS,
    GROWN: ONE_TOPIC_OF_TWO_FACTORS,
    **{f"{name} of {resource}": OF_TOPICS for name in LISTS for resource in ("1", "all brokers")},
}
"""Questions to which the answers differ on purpose, with the reason."""


class ClusterTalk(Conversation):
    """With three brokers; what the controller decides is asked of the first."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        wait_until(lambda: len(self.metadata().brokers) == len(BROKER_IDS), "all brokers are there")
        self.addresses = {each.node_id: f"{each.host}:{each.port}" for each in self.metadata().brokers}
        self.brokers = {broker_id: self._line_to(address) for broker_id, address in self.addresses.items()}
        self.main = self.brokers[1]
        self.directories = {broker_id: self._directories(broker_id) for broker_id in BROKER_IDS}

    def _line_to(self, address: str) -> Line:
        line = Line(address, "client")
        self._lines.append(line)
        return line

    def _directories(self, broker_id: int) -> list[str]:
        found = sorted(each.log_dir for each in self.log_dirs(broker_id).results)
        for number, path in enumerate(found):
            self.name(path, f"directory {number} of broker {broker_id}")
        # A longer path first: one may be the beginning of another.
        self._names = dict(sorted(self._names.items(), key=lambda named: -len(str(named[0]))))
        return found

    def log_dirs(self, broker_id: int) -> DescribeLogDirsResponse:
        return self.ask_quietly(
            DescribeLogDirsRequest(topics=None), 4, DescribeLogDirsResponse, self.brokers[broker_id]
        )

    def metadata(self, *topics: str) -> MetadataResponse:
        wanted = [MetadataRequestTopic(name=topic) for topic in topics]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        return self.ask_quietly(request, 12, MetadataResponse)

    def topic(self, name: str, *places: Sequence[int], batches: int = 0) -> str:
        """A new topic with its replicas at these places, and so many batches in its first partition."""
        topic = self.fresh(name)
        assignments = [CreatableReplicaAssignment(number, list(each)) for number, each in enumerate(places)]
        wanted = CreatableTopic(name=topic, num_partitions=-1, replication_factor=-1, assignments=assignments)
        request = CreateTopicsRequest(topics=[wanted], timeout_ms=TIMEOUT_MS)
        created = self.ask_quietly(request, 7, CreateTopicsResponse).topics[0]
        assert created.error_code == NO_ERROR, created
        self.name(created.topic_id, f"id of {name}")
        wait_until(lambda: self.placed(topic) == [list(each) for each in places], "the topic is in sync")
        for _ in range(batches):
            wait_until(lambda: self._write(topic, places[0][0]), "a batch is written")
        return topic

    def placed(self, topic: str) -> list[list[int]]:
        """Replicas of partitions that are led and all in sync."""
        found = sorted(self.metadata(topic).topics[0].partitions, key=lambda each: each.partition_index)
        in_sync = [each for each in found if each.leader_id >= 0 and set(each.isr_nodes) == set(each.replica_nodes)]
        return [list(each.replica_nodes) for each in in_sync]

    def _write(self, topic: str, leader: int) -> bool:
        batch = build_batch([Record(0, int(time.time() * 1000), None, bytes(BATCH_BYTES))])
        data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(0, memoryview(batch))])
        request = ProduceRequest(acks=-1, timeout_ms=TIMEOUT_MS, topic_data=[data])
        response = self.ask_quietly(request, 9, ProduceResponse, self.brokers[leader])
        return response.responses[0].partition_responses[0].error_code == NO_ERROR

    def state(self, what: str, topic: str) -> None:
        """Replicas in their order, the leader, and what is listed as under way, when nothing changes any more."""
        before = self._state(topic)
        for _ in range(30):
            time.sleep(SETTLED_S)
            found = self._state(topic)
            if found == before:
                break
            before = found
        self.note(what, before)

    def _state(self, topic: str) -> Any:
        [found] = self.metadata(topic).topics
        partitions = {
            str(each.partition_index): [list(each.replica_nodes), sorted(each.isr_nodes), each.leader_id]
            for each in sorted(found.partitions, key=lambda each: each.partition_index)
        }
        return {"error": found.error_code, "partitions": partitions, "under way": self.listed(topic)}

    def listed(self, topic: str) -> Any:
        request = ListPartitionReassignmentsRequest(topics=None, timeout_ms=TIMEOUT_MS)
        found = self.ask_quietly(request, 0, ListPartitionReassignmentsResponse)
        return [
            [each.partition_index, list(each.replicas), sorted(each.adding_replicas), sorted(each.removing_replicas)]
            for one in found.topics
            if one.name == topic
            for each in sorted(one.partitions, key=lambda each: each.partition_index)
        ]

    def configure(self, kind: int, name: str, settings: Mapping[str, str | None]) -> None:
        changes = [
            AlterableConfig(name=key, config_operation=DELETE if value is None else SET, value=value)
            for key, value in settings.items()
        ]
        wanted = AlterConfigsResource(resource_type=kind, resource_name=name, configs=changes)
        request = IncrementalAlterConfigsRequest(resources=[wanted])
        found = self.ask_quietly(request, 1, IncrementalAlterConfigsResponse)
        assert found.responses[0].error_code == NO_ERROR, found

    def hold(self, *topics: str) -> None:
        """Moves of these topics go on with a byte per second."""
        self.configure(BROKER, "", dict.fromkeys(RATES, "1"))
        for topic in topics:
            self.configure(TOPIC, topic, dict.fromkeys(LISTS, "*"))
        time.sleep(SETTLED_S)

    def release(self) -> None:
        self.configure(BROKER, "", dict.fromkeys(RATES))


def reassign(
    *targets: tuple[str, int, Replicas], timeout_ms: int = TIMEOUT_MS, may_change_factor: bool = True
) -> AlterPartitionReassignmentsRequest:
    topics: dict[str, ReassignableTopic] = {}
    for topic, partition, replicas in targets:
        found = topics.setdefault(topic, ReassignableTopic(name=topic))
        found.partitions.append(ReassignablePartition(partition, None if replicas is None else list(replicas)))
    return AlterPartitionReassignmentsRequest(
        timeout_ms=timeout_ms, allow_replication_factor_change=may_change_factor, topics=list(topics.values())
    )


def move_to(*places: tuple[str, str, int]) -> AlterReplicaLogDirsRequest:
    """Directory, topic and partition."""
    return AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDir(path=path, topics=[AlterReplicaLogDirTopic(name=topic, partitions=[partition])])
            for path, topic, partition in places
        ]
    )
