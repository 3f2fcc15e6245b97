"""Member of a consumer group, whose partitions the coordinator assigns (KIP-848)."""

from collections.abc import Iterable, Sequence

from tidelog.client.groups.group_member import NOTHING, GroupConsumerSettings, Membership
from tidelog.client.routing.cluster import Cluster
from tidelog.errors import FencedMemberEpoch, UnknownMemberId, raise_error
from tidelog.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tidelog.types import TopicPartition, Uuid, indexes_by_topic, uuid_text

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2
"""A static member leaves; its partitions wait for the same instance."""
WAIT_FOR_REVOCATION_S = 60.0


class ConsumerMember(Membership):
    def __init__(self, cluster: Cluster, group_id: str, topics: Sequence[str], settings: GroupConsumerSettings) -> None:
        super().__init__(cluster, group_id, topics, settings)
        self.member_id = uuid_text(cluster.randomness.bytes(16))
        self._is_joined = False
        self._must_send_all = True
        self._reported = NOTHING

    async def _heartbeat(self) -> float:
        if not self._is_joined and self.owned:
            return WAIT_FOR_REVOCATION_S
        held = self._held
        response = await self._ask(self._request(held), ConsumerGroupHeartbeatResponse)
        try:
            raise_error(response.error_code, f"group {self.group_id}", response.error_message)
        except (FencedMemberEpoch, UnknownMemberId):
            self._is_joined = False
            self._set_assigned(NOTHING)
            return 0.0
        self._is_joined, self._must_send_all, self._reported = True, False, held
        self.generation = response.member_epoch
        if response.assignment is not None:
            self._set_assigned(await self._named(response.assignment))
        return response.heartbeat_interval_ms / 1000

    @property
    def _held(self) -> frozenset[TopicPartition]:
        """Partitions that this member reads, or may begin to read at any moment.

        The coordinator gives to others what it does not find here, so assigned partitions count before they are read.
        """
        return self.owned | self.assigned

    def _request(self, held: frozenset[TopicPartition]) -> ConsumerGroupHeartbeatRequest:
        """Unchanged fields are left out, except after a join or a lost response."""
        sends_all = self._must_send_all or not self._is_joined
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.generation if self._is_joined else JOIN_EPOCH,
            instance_id=self.settings.instance_id,
            rebalance_timeout_ms=self.settings.rebalance_timeout_ms if sends_all else -1,
            subscribed_topic_names=self.topics if sends_all else None,
            topic_partitions=self._identified(held) if sends_all or held != self._reported else None,
        )

    def _on_no_response(self) -> None:
        self._must_send_all = True

    def _identified(self, partitions: Iterable[TopicPartition]) -> list[TopicPartitions]:
        known = self.cluster.metadata.topics
        return [
            TopicPartitions(topic_id=known[topic].topic_id, partitions=found)
            for topic, found in indexes_by_topic(partitions).items()
            if topic in known
        ]

    async def _named(self, assignment: Assignment) -> frozenset[TopicPartition]:
        names = self._names()
        if any(topic.topic_id not in names for topic in assignment.topic_partitions):
            await self.cluster.refresh()
            names = self._names()
        return frozenset(
            TopicPartition(names[topic.topic_id], partition)
            for topic in assignment.topic_partitions
            if topic.topic_id in names
            for partition in topic.partitions
        )

    def _names(self) -> dict[Uuid, str]:
        return {topic.topic_id: name for name, topic in self.cluster.metadata.topics.items()}

    async def _leave(self) -> None:
        if self._is_joined:
            instance_id = self.settings.instance_id
            request = ConsumerGroupHeartbeatRequest(
                group_id=self.group_id,
                member_id=self.member_id,
                member_epoch=LEAVE_EPOCH if instance_id is None else STATIC_LEAVE_EPOCH,
                instance_id=instance_id,
            )
            await self._ask(request, ConsumerGroupHeartbeatResponse)

    def _on_left(self) -> None:
        self._is_joined = False
