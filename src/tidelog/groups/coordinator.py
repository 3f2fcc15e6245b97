"""Group coordinator: routes requests to the state machine of a `__consumer_offsets` partition."""

from collections import Counter
from collections.abc import Callable, Mapping

from tidelog.cluster.image import ClusterImage
from tidelog.cluster.topic_names import GROUP_TOPIC
from tidelog.errors import InvalidGroupId
from tidelog.groups.group import Caller, GroupSettings
from tidelog.groups.machine import GroupMachine
from tidelog.groups.statistics import GroupCounts, GroupStatistics
from tidelog.groups.transaction_guards import OffsetCommitGuard
from tidelog.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tidelog.protocol.messages.heartbeat import HeartbeatRequest
from tidelog.protocol.messages.join_group import JoinGroupRequest
from tidelog.protocol.messages.leave_group import LeaveGroupRequest
from tidelog.protocol.messages.offset_commit import OffsetCommitRequest
from tidelog.protocol.messages.offset_delete import OffsetDeleteRequest
from tidelog.protocol.messages.offset_fetch import OffsetFetchRequestGroup
from tidelog.protocol.messages.sync_group import SyncGroupRequest
from tidelog.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from tidelog.replicated.machine import Effects, Reply
from tidelog.replicated.topic import ReplicatedTopic
from tidelog.runtime.randomness import Randomness
from tidelog.types import TopicPartition, Uuid


def group_machines(
    *,
    settings: Callable[[], GroupSettings],
    image: Callable[[], ClusterImage],
    randomness: Randomness,
    counts: GroupCounts,
) -> Callable[[int], GroupMachine]:
    """Factory of the state machines."""
    return lambda _: GroupMachine(settings=settings, image=image, randomness=randomness, counts=counts)


class GroupCoordinator:
    """Each call completes its `reply` exactly once, now or later."""

    def __init__(self, topic: ReplicatedTopic[GroupMachine], counts: GroupCounts) -> None:
        self.topic = topic
        self.counts = counts

    def partition_of(self, group_id: str) -> TopicPartition:
        return TopicPartition(GROUP_TOPIC, self.topic.partition_of(group_id))

    def statistics(self) -> GroupStatistics:
        groups: Counter[tuple[str, str]] = Counter()
        offsets = 0
        for _, machine in self.topic.loaded():
            groups.update((group.kind, group.state_name) for group in machine.groups.values())
            offsets += machine.offsets.committed.count
        return GroupStatistics(groups, offsets)

    # ---- members

    def join(self, request: JoinGroupRequest, caller: Caller, reply: Reply) -> None:
        self._perform(request.group_id, reply, lambda machine, effects: machine.join(request, caller, reply, effects))

    def sync(self, request: SyncGroupRequest, caller: Caller, reply: Reply) -> None:
        self._perform(request.group_id, reply, lambda machine, effects: machine.sync(request, caller, reply, effects))

    def heartbeat(self, request: HeartbeatRequest, caller: Caller, reply: Reply) -> None:
        self._perform(
            request.group_id, reply, lambda machine, effects: machine.heartbeat(request, caller, reply, effects)
        )

    def leave(self, request: LeaveGroupRequest, caller: Caller, reply: Reply) -> None:
        self._perform(request.group_id, reply, lambda machine, effects: machine.leave(request, caller, reply, effects))

    def consumer_heartbeat(self, request: ConsumerGroupHeartbeatRequest, caller: Caller, reply: Reply) -> None:
        self._perform(
            request.group_id,
            reply,
            lambda machine, effects: machine.consumer_heartbeat(request, caller, reply, effects),
            may_be_empty=True,
        )

    # ---- offsets

    def commit_offsets(self, request: OffsetCommitRequest, caller: Caller, reply: Reply) -> None:
        """Topics in the request have both name and id."""
        self.topic.perform_batched(
            request.group_id,
            reply,
            lambda machine, effects: machine.offsets.commit(request, caller, reply, effects),
        )

    def guard_transaction(self, group_id: str, guard: OffsetCommitGuard, reply: Reply) -> None:
        """Answered at once, with an empty TxnOffsetCommitResponse, if this broker coordinates the group."""
        self._perform(
            group_id, reply, lambda machine, effects: machine.offsets.guard_transaction(guard, reply, effects)
        )

    def release_guard(self, group_id: str, guard: OffsetCommitGuard) -> None:
        partition = self.topic.partition_of(group_id)
        self.topic.perform_in(partition, lambda machine, _: machine.offsets.guards.remove(guard))

    def break_guards(self, partition: int, producer_id: int) -> None:
        self.topic.perform_in(partition, lambda machine, _: machine.offsets.guards.break_all(producer_id))

    def commit_offsets_in_transaction(
        self, request: TxnOffsetCommitRequest, guard: OffsetCommitGuard, caller: Caller, reply: Reply
    ) -> None:
        """Called after the transaction coordinator confirmed the transaction; the guard was added before that."""
        self._perform(
            request.group_id,
            reply,
            lambda machine, effects: machine.offsets.commit_in_transaction(request, guard, caller, reply, effects),
        )

    def fetch_offsets(self, request: OffsetFetchRequestGroup, reply: Reply, *, require_stable: bool) -> None:
        self._perform(
            request.group_id,
            reply,
            lambda machine, effects: machine.offsets.fetch(request, reply, effects, require_stable=require_stable),
            may_be_empty=True,
        )

    def delete_offsets(self, request: OffsetDeleteRequest, reply: Reply) -> None:
        self._perform(request.group_id, reply, lambda machine, effects: machine.offsets.delete(request, reply, effects))

    # ---- administration

    def describe(self, group_id: str, api_version: int, reply: Reply) -> None:
        self._perform(
            group_id,
            reply,
            lambda machine, effects: machine.describe(group_id, api_version, reply, effects),
            may_be_empty=True,
        )

    def describe_consumer_group(self, group_id: str, reply: Reply) -> None:
        self._perform(
            group_id,
            reply,
            lambda machine, effects: machine.consumer.describe([group_id], reply, effects),
        )

    def delete(self, group_id: str, reply: Reply) -> None:
        self._perform(
            group_id, reply, lambda machine, effects: machine.delete(group_id, reply, effects), may_be_empty=True
        )

    def on_topics_deleted(self, deleted: Mapping[str, Uuid]) -> None:
        """The ids distinguish the topics from new ones with the same names."""
        for partition, _ in list(self.topic.loaded()):
            self.topic.perform_in(partition, lambda machine, effects: machine.on_topics_deleted(deleted, effects))

    def _perform(
        self,
        group_id: str,
        reply: Reply,
        step: Callable[[GroupMachine, Effects], None],
        *,
        may_be_empty: bool = False,
    ) -> None:
        """The group with the empty name may have offsets, for old consumers, but no members."""
        if not group_id and not may_be_empty:
            reply.fail(InvalidGroupId())
        else:
            self.topic.perform(group_id, reply, step)
