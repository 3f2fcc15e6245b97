"""One partition of groups with its records in memory, and clients that commit and fetch offsets."""

from collections.abc import Callable
from typing import Any, TypeVar

from tidelog.cluster.image import ClusterImage
from tidelog.errors import KafkaError
from tidelog.groups.group import NO_GENERATION, NO_MEMBER, Caller, GroupSettings
from tidelog.groups.machine import GroupMachine
from tidelog.groups.transaction_guards import OffsetCommitGuard
from tidelog.protocol.codec import encode
from tidelog.protocol.internal.consumer_protocol import ConsumerProtocolSubscription
from tidelog.protocol.messages.delete_groups import DeleteGroupsResponse
from tidelog.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsResponse
from tidelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from tidelog.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tidelog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tidelog.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from tidelog.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from tidelog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tidelog.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from tidelog.protocol.structs import Response
from tidelog.replicated.machine import Effects, Producer, Reply
from tidelog.replicated.memory_shard import MemoryReply, MemoryShard
from tidelog.runtime.randomness import SeededRandomness
from tidelog.types import ZERO_UUID, Uuid

GROUP = "readers"
TOPIC = "orders"
MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS

R = TypeVar("R", bound=Response)


def a_shard(settings: GroupSettings | None = None) -> MemoryShard[GroupMachine]:
    chosen = settings or GroupSettings(group_initial_rebalance_delay_ms=0)
    image = ClusterImage("cluster")

    def make() -> GroupMachine:
        return GroupMachine(settings=lambda: chosen, image=lambda: image, randomness=SeededRandomness(5))

    return MemoryShard(make)


class Clients:
    """Whatever they ask is answered at once, by a response or by an error that is raised."""

    def __init__(self, shard: MemoryShard[GroupMachine]) -> None:
        self.shard = shard

    def ask(self, kind: type[R], step: Callable[[GroupMachine, Reply, Effects], None]) -> R:
        reply = MemoryReply()
        self.shard.perform(lambda machine, effects: step(machine, reply, effects))
        if isinstance(reply.outcome, KafkaError):
            raise reply.outcome
        assert isinstance(reply.outcome, kind)
        return reply.outcome

    # -- offsets

    def commit(
        self,
        offset: int,
        partition: int = 0,
        *,
        group: str = GROUP,
        topic: str = TOPIC,
        topic_id: Uuid = ZERO_UUID,
        metadata: str | None = "",
        leader_epoch: int = -1,
        member: str = NO_MEMBER,
        generation: int = NO_GENERATION,
        instance_id: str | None = None,
        retention_ms: int = -1,
        version: int = 9,
    ) -> int:
        """The error code of the one partition."""
        wanted = OffsetCommitRequestPartition(partition, offset, leader_epoch, metadata)
        request = OffsetCommitRequest(
            group, generation, member, instance_id, retention_ms, [OffsetCommitRequestTopic(topic, topic_id, [wanted])]
        )
        caller = Caller("client", "/127.0.0.1", version)
        response = self.ask(
            OffsetCommitResponse,
            lambda machine, reply, effects: machine.offsets.commit(request, caller, reply, effects),
        )
        return response.topics[0].partitions[0].error_code

    def commit_effects(self, offset: int, partition: int = 0, *, group: str = GROUP) -> Effects:
        """What the commit of somebody without membership wanted done, which then was."""
        wanted = OffsetCommitRequestPartition(partition, offset, -1, "")
        request = OffsetCommitRequest(
            group, NO_GENERATION, NO_MEMBER, None, -1, [OffsetCommitRequestTopic(TOPIC, ZERO_UUID, [wanted])]
        )
        caller = Caller("client", "/127.0.0.1", 9)
        return self.shard.perform(
            lambda machine, effects: machine.offsets.commit(request, caller, MemoryReply(), effects)
        )

    def commit_in_transaction(
        self,
        producer: Producer,
        offset: int,
        partition: int = 0,
        *,
        group: str = GROUP,
        topic: str = TOPIC,
        member: str = NO_MEMBER,
        generation: int = NO_GENERATION,
        metadata: str = "",
        guard: OffsetCommitGuard | None = None,
        version: int = 4,
    ) -> int:
        wanted = TxnOffsetCommitRequestPartition(partition, offset, -1, metadata)
        request = TxnOffsetCommitRequest(
            transactional_id="t",
            group_id=group,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            generation_id=generation,
            member_id=member,
            topics=[TxnOffsetCommitRequestTopic(topic, [wanted])],
        )
        held = guard or self.guard(producer)
        caller = Caller("client", "/127.0.0.1", version)
        response = self.ask(
            TxnOffsetCommitResponse,
            lambda machine, reply, effects: machine.offsets.commit_in_transaction(
                request, held, caller, reply, effects
            ),
        )
        self.shard.machine.offsets.guards.remove(held)
        return response.topics[0].partitions[0].error_code

    def guard(self, producer: Producer) -> OffsetCommitGuard:
        guard = OffsetCommitGuard(producer.producer_id)
        self.ask(
            TxnOffsetCommitResponse,
            lambda machine, reply, effects: machine.offsets.guard_transaction(guard, reply, effects),
        )
        return guard

    def fetch(
        self,
        *partitions: int,
        group: str = GROUP,
        topic: str = TOPIC,
        topic_id: Uuid = ZERO_UUID,
        require_stable: bool = False,
        member: str | None = None,
        epoch: int = -1,
    ) -> list[Any]:
        """Per partition its offset, or the error code as a text."""
        wanted = [OffsetFetchRequestTopics(topic, topic_id, partitions or (0,))]
        found = self._fetch(OffsetFetchRequestGroup(group, member, epoch, wanted), require_stable=require_stable)
        (answered,) = found.topics
        assert answered.name == topic
        return [
            f"error {each.error_code}" if each.error_code else each.committed_offset for each in answered.partitions
        ]

    def fetch_all(self, group: str = GROUP, *, require_stable: bool = False) -> dict[tuple[str, int], Any]:
        found = self._fetch(OffsetFetchRequestGroup(group, None, -1, None), require_stable=require_stable)
        return {
            (topic.name, each.partition_index): f"error {each.error_code}" if each.error_code else each.committed_offset
            for topic in found.topics
            for each in topic.partitions
        }

    def _fetch(self, wanted: OffsetFetchRequestGroup, *, require_stable: bool) -> OffsetFetchResponseGroup:
        response = self.ask(
            OffsetFetchResponse,
            lambda machine, reply, effects: machine.offsets.fetch(
                wanted, reply, effects, require_stable=require_stable
            ),
        )
        (found,) = response.groups
        assert found.group_id == wanted.group_id
        return found

    def delete_offset(self, partition: int = 0, *, group: str = GROUP, topic: str = TOPIC) -> int:
        wanted = OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(partition)])
        response = self.ask(
            OffsetDeleteResponse,
            lambda machine, reply, effects: machine.offsets.delete(
                OffsetDeleteRequest(group, [wanted]), reply, effects
            ),
        )
        return response.topics[0].partitions[0].error_code

    # -- groups

    def join(
        self, *topics: str, group: str = GROUP, protocol_type: str = "consumer", syncs: bool = True
    ) -> tuple[str, int]:
        """One member, with its assignment unless it does not ask for it; its id and generation."""
        metadata = b"\0\0" + encode(ConsumerProtocolSubscription(topics=topics), 0)
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=1_800_000,
            rebalance_timeout_ms=10_000,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol("range", metadata)],
        )
        reply = MemoryReply()
        caller = Caller("client", "/127.0.0.1", 3)
        self.shard.perform(lambda machine, effects: machine.join(request, caller, reply, effects))
        self.shard.advance(1)
        assert isinstance(reply.outcome, JoinGroupResponse)
        member, generation = reply.outcome.member_id, reply.outcome.generation_id
        sync = SyncGroupRequest(
            group_id=group,
            generation_id=generation,
            member_id=member,
            assignments=[SyncGroupRequestAssignment(member, b"yours")],
        )
        if syncs:
            self.shard.perform(lambda machine, effects: machine.sync(sync, caller, MemoryReply(), effects))
        return member, generation

    def leave(self, member: str, group: str = GROUP) -> None:
        request = LeaveGroupRequest(group_id=group, member_id=member, members=[MemberIdentity(member_id=member)])
        caller = Caller("client", "/127.0.0.1", 3)
        self.shard.perform(lambda machine, effects: machine.leave(request, caller, MemoryReply(), effects))

    def describe(self, group: str = GROUP, version: int = 6) -> DescribedGroup:
        response = self.ask(
            DescribeGroupsResponse,
            lambda machine, reply, effects: machine.describe(group, version, reply, effects),
        )
        return response.groups[0]

    def delete_group(self, group: str = GROUP) -> int:
        response = self.ask(DeleteGroupsResponse, lambda machine, reply, effects: machine.delete(group, reply, effects))
        return response.results[0].error_code

    def listed(self) -> dict[str, tuple[str, str, str]]:
        return {
            group.group_id: (group.group_type, group.protocol_type, group.group_state)
            for group in self.shard.machine.listed()
        }
