"""A consumer group on a shard in memory, for tests: topics to make, members to send heartbeats for."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

from tidelog.cluster.image import ClusterImage, PartitionRegistration, Topic
from tidelog.errors import KafkaError
from tidelog.groups.consumer.group import ConsumerGroup
from tidelog.groups.group import Caller, GroupSettings
from tidelog.groups.machine import GroupMachine
from tidelog.protocol.messages.consumer_group_describe import ConsumerGroupDescribeResponse, DescribedGroup
from tidelog.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tidelog.protocol.structs import Response
from tidelog.replicated.machine import Effects
from tidelog.replicated.memory_shard import MemoryReply, MemoryShard
from tidelog.runtime.randomness import SeededRandomness

GROUP = "g"
REBALANCE_TIMEOUT_MS = 10_000

R = TypeVar("R", bound=Response)


class Cluster:
    def __init__(self) -> None:
        self.image = ClusterImage("cluster")
        self._topic_count = 0

    def create_topic(self, name: str, partition_count: int) -> bytes:
        self._topic_count += 1
        topic_id = self._topic_count.to_bytes(16, "big")
        self._put(name, topic_id, partition_count)
        return topic_id

    def grow_topic(self, name: str, partition_count: int) -> None:
        self._put(name, self.image.topics[name].topic_id, partition_count)

    def delete_topic(self, name: str) -> None:
        self.image = self.image.without_topics(name)

    def configure_group(self, group_id: str, configs: dict[str, str]) -> None:
        self.image = replace(self.image, group_configs={**self.image.group_configs, group_id: configs})

    def _put(self, name: str, topic_id: bytes, partition_count: int) -> None:
        partitions = tuple(PartitionRegistration(index, (1,), 1, 0, (1,)) for index in range(partition_count))
        self.image = self.image.with_topics(Topic(name, topic_id, partitions))

    def partitions_of(self, *names: str) -> set[tuple[bytes, int]]:
        topics = [self.image.topics[name] for name in names if name in self.image.topics]
        return {(topic.topic_id, partition.index) for topic in topics for partition in topic.partitions}


class Coordinator:
    """One group machine, with the requests that members send to it."""

    def __init__(self, cluster: Cluster, settings: GroupSettings | None = None) -> None:
        self.cluster = cluster
        self.settings = settings or GroupSettings(group_initial_rebalance_delay_ms=0)
        self._randomness = SeededRandomness(1)  # The same for all coordinators: member ids never come twice.
        self.shard = MemoryShard(self._machine)

    def _machine(self) -> GroupMachine:
        return GroupMachine(
            settings=lambda: self.settings, image=lambda: self.cluster.image, randomness=self._randomness
        )

    def fail_over(self) -> None:
        self.shard = self.shard.reloaded()

    @property
    def group(self) -> ConsumerGroup:
        group = self.shard.machine.groups[GROUP]
        assert isinstance(group, ConsumerGroup)
        return group

    def ask(self, name: str, request: Any, api_version: int) -> Response | KafkaError:
        """What a member is answered, at once."""
        reply = self.begin(name, request, api_version)
        return reply.outcome

    def begin(self, name: str, request: Any, api_version: int) -> MemoryReply:
        reply = MemoryReply()
        caller = Caller("client", "/127.0.0.1", api_version)

        def step(machine: GroupMachine, effects: Effects) -> None:
            getattr(machine, name)(request, caller, reply, effects)

        self.shard.perform(step)
        return reply

    def heartbeat(self, member_id: str, epoch: int, *, api_version: int = 1, **fields: Any) -> Any:
        request = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id=member_id, member_epoch=epoch, **fields)
        outcome = self.ask("consumer_heartbeat", request, api_version)
        assert isinstance(outcome, ConsumerGroupHeartbeatResponse | KafkaError)
        return outcome

    def join(self, member_id: str, topics: Sequence[str] | None = ("a",), **fields: Any) -> Any:
        return self.heartbeat(
            member_id,
            0,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            subscribed_topic_names=None if topics is None else list(topics),
            topic_partitions=[],
            **fields,
        )

    def leave(self, member_id: str, **fields: Any) -> Any:
        return self.heartbeat(member_id, -1, **fields)

    def describe(self, group_id: str = GROUP) -> DescribedGroup:
        reply = MemoryReply()
        self.shard.perform(lambda machine, effects: machine.consumer.describe([group_id], reply, effects))
        (group,) = cast("ConsumerGroupDescribeResponse", reply.outcome).groups
        return group


def assignment_in(response: Any) -> set[tuple[bytes, int]] | None:
    """The partitions an answer names; None if it names none at all."""
    assert isinstance(response, ConsumerGroupHeartbeatResponse), response
    if response.assignment is None:
        return None
    return {(topic.topic_id, index) for topic in response.assignment.topic_partitions for index in topic.partitions}


def listed(partitions: set[tuple[bytes, int]]) -> list[TopicPartitions]:
    topics = sorted({topic_id for topic_id, _ in partitions})
    return [
        TopicPartitions(topic_id=topic_id, partitions=sorted(index for other, index in partitions if other == topic_id))
        for topic_id in topics
    ]


def durable(group: ConsumerGroup) -> dict[str, Any]:
    """All of a group that a new coordinator must know."""
    return {
        "epoch": group.epoch,
        "metadata_hash": group.metadata_hash,
        "assignment_epoch": group.assignment_epoch,
        "assigned_at_ms": group.assigned_at_ms,
        "members": group.members,
        "targets": group.targets,
        "regexes": group.regexes,
        "static_members": group.static_members,
        "owners": group.owners,
        "classic_member_count": group.classic_member_count,
        "classic_protocols": +group.classic_protocols,
    }
