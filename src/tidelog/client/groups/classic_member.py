"""Member of a classic group: JoinGroup, SyncGroup, Heartbeat; the leader member assigns ranges (RangeAssignor).

Partitions are read when a generation is formed. Partitions that are added later wait for the next rebalance.
"""

from collections.abc import Mapping, Sequence

from tidelog.client.consumer.offsets import by_topic
from tidelog.client.groups.group_member import NOTHING, GroupConsumerSettings, Membership
from tidelog.client.routing.cluster import Cluster
from tidelog.errors import IllegalGeneration, MemberIdRequired, RebalanceInProgress, UnknownMemberId, raise_error
from tidelog.protocol.internal.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from tidelog.protocol.internal.consumer_protocol import TopicPartition as AssignedPartitions
from tidelog.protocol.internal.versioned import decode_versioned, encode_versioned
from tidelog.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from tidelog.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from tidelog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from tidelog.types import TopicPartition

PROTOCOL_TYPE = "consumer"
RANGE = "range"
FORMAT_VERSION = 0


class ClassicMember(Membership):
    def __init__(self, cluster: Cluster, group_id: str, topics: Sequence[str], settings: GroupConsumerSettings) -> None:
        super().__init__(cluster, group_id, topics, settings)
        self._has_member_id = False
        self._must_join = True

    async def _heartbeat(self) -> float:
        try:
            if self._must_join and not self.owned:
                await self._join()
            elif self._has_member_id:
                await self._send_heartbeat()
        except UnknownMemberId:
            self._has_member_id = False
            self._begin_rebalance()
        except (RebalanceInProgress, IllegalGeneration):
            self._begin_rebalance()
        if self._must_join and not self.owned:
            return 0.0
        return self.settings.heartbeat_interval_ms / 1000

    def _begin_rebalance(self) -> None:
        if not self._must_join:
            self._must_join = True
            self._set_assigned(NOTHING)

    async def _send_heartbeat(self) -> None:
        request = HeartbeatRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.settings.instance_id,
        )
        response = await self._ask(request, HeartbeatResponse)
        raise_error(response.error_code, f"group {self.group_id}")

    # ---- joining

    async def _join(self) -> None:
        try:
            joined = await self._ask_join(self.member_id if self._has_member_id else "")
        except MemberIdRequired:
            joined = await self._ask_join(self.member_id)
        self.generation = joined.generation_id
        assignments = await self._assign(joined) if joined.leader == self.member_id else {}
        request = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.settings.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=RANGE,
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=_encoded(partitions))
                for member_id, partitions in assignments.items()
            ],
        )
        response = await self._ask(request, SyncGroupResponse, self._rebalance_wait_s)
        raise_error(response.error_code, f"group {self.group_id}")
        self._must_join = False
        self._set_assigned(_decoded(response.assignment))

    @property
    def _rebalance_wait_s(self) -> float:
        """The coordinator responds when all members have joined, or their rebalance timeout has passed."""
        return self.settings.rebalance_timeout_ms / 1000 + self.cluster.request_timeout_s

    async def _ask_join(self, member_id: str) -> JoinGroupResponse:
        subscription = ConsumerProtocolSubscription(topics=self.topics)
        request = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=self.settings.session_timeout_ms,
            rebalance_timeout_ms=self.settings.rebalance_timeout_ms,
            member_id=member_id,
            group_instance_id=self.settings.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                JoinGroupRequestProtocol(name=RANGE, metadata=encode_versioned(subscription, FORMAT_VERSION)),
            ],
        )
        response = await self._ask(request, JoinGroupResponse, self._rebalance_wait_s)
        if response.error_code in (0, MemberIdRequired.code):
            self.member_id, self._has_member_id = response.member_id, True
        raise_error(response.error_code, f"group {self.group_id}")
        return response

    async def _assign(self, joined: JoinGroupResponse) -> dict[str, list[TopicPartition]]:
        subscriptions = {member.member_id: _subscription(member) for member in joined.members}
        await self.cluster.topics_in_use({topic for topics in subscriptions.values() for topic in topics})
        await self.cluster.refresh()
        counts = {name: len(topic.partitions) for name, topic in self.cluster.metadata.topics.items()}
        return assign_ranges(subscriptions, counts)

    def _on_no_response(self) -> None:
        """Nothing to do: every request of a classic member is complete."""

    async def _leave(self) -> None:
        """A static member does not leave: the group waits for it until its session expires."""
        if self._has_member_id and self.settings.instance_id is None:
            members = [MemberIdentity(member_id=self.member_id)]
            request = LeaveGroupRequest(group_id=self.group_id, member_id=self.member_id, members=members)
            await self._ask(request, LeaveGroupResponse)

    def _on_left(self) -> None:
        self._has_member_id, self._must_join = False, True


def assign_ranges(
    subscriptions: Mapping[str, Sequence[str]], partition_counts: Mapping[str, int]
) -> dict[str, list[TopicPartition]]:
    """Range assignment: each subscriber of a topic gets consecutive partitions, the first ones one more."""
    assigned: dict[str, list[TopicPartition]] = {member_id: [] for member_id in subscriptions}
    for topic in sorted({topic for topics in subscriptions.values() for topic in topics}):
        subscribers = sorted(member_id for member_id, topics in subscriptions.items() if topic in topics)
        least, more = divmod(partition_counts.get(topic, 0), len(subscribers))
        first = 0
        for index, member_id in enumerate(subscribers):
            end = first + least + (index < more)
            assigned[member_id] += [TopicPartition(topic, partition) for partition in range(first, end)]
            first = end
    return assigned


def _subscription(member: JoinGroupResponseMember) -> Sequence[str]:
    return decode_versioned(ConsumerProtocolSubscription, member.metadata).topics


def _encoded(partitions: Sequence[TopicPartition]) -> bytes:
    topics = by_topic(partitions, lambda key: key.partition)
    found = [AssignedPartitions(topic=topic, partitions=indexes) for topic, indexes in topics.items()]
    return encode_versioned(ConsumerProtocolAssignment(assigned_partitions=found), FORMAT_VERSION)


def _decoded(assignment: bytes) -> frozenset[TopicPartition]:
    """An empty assignment: the leader did not know this member."""
    if not assignment:
        return NOTHING
    found = decode_versioned(ConsumerProtocolAssignment, assignment)
    return frozenset(
        TopicPartition(each.topic, index) for each in found.assigned_partitions for index in each.partitions
    )
