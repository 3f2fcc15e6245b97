"""OffsetCommit, TxnOffsetCommit, OffsetFetch and OffsetDelete: checks and responses."""

# Core that logs: no clock, no I/O, no await.

import logging
from collections.abc import Callable, Mapping, MutableMapping
from typing import TypeAlias

from tidelog.errors import (
    NO_ERROR,
    GroupIdNotFound,
    GroupSubscribedToTopic,
    IllegalGeneration,
    KafkaError,
    NonEmptyGroup,
    OffsetMetadataTooLarge,
    StaleMemberEpoch,
    UnstableOffsetCommit,
)
from tidelog.groups.committed_offsets import CommittedOffsets, Value
from tidelog.groups.group import NO_MEMBER, Caller, Group, GroupSettings, Membership
from tidelog.groups.offset_records import (
    CommittedOffset,
    check_value,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
    key_of,
    names_of_key,
)
from tidelog.groups.statistics import GroupCounts
from tidelog.groups.transaction_guards import OffsetCommitGuard, OffsetCommitGuards
from tidelog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from tidelog.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from tidelog.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from tidelog.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from tidelog.replicated.machine import Effects, Producer, Reply, StateRecord
from tidelog.types import NO_OFFSET, NO_TIMESTAMP, ZERO_UUID, TopicPartition, Uuid

logger = logging.getLogger(__name__)

NOT_FOUND_FROM_VERSION = 9
"""First version of OffsetCommit with GROUP_ID_NOT_FOUND; earlier versions return ILLEGAL_GENERATION."""

LAST_TIMESTAMP = 2**63 - 1
CONSUMERS = "consumer"
"""Protocol type of members that report their subscribed topics."""

RequestedCommit: TypeAlias = OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition


class Offsets:
    def __init__(
        self,
        groups: MutableMapping[str, Group],
        settings: Callable[[], GroupSettings],
        make_simple_group: Callable[[str], Group],
        counts: GroupCounts,
    ) -> None:
        self._groups = groups
        self._settings = settings
        self._make_simple_group = make_simple_group
        self.committed = CommittedOffsets()
        self.guards = OffsetCommitGuards()
        self._counts = counts

    # ---- commit

    def commit(self, request: OffsetCommitRequest, caller: Caller, reply: Reply, effects: Effects) -> None:
        epoch = request.generation_id_or_member_epoch
        member = Membership(request.member_id, epoch, request.group_instance_id, request.topics)
        try:
            self._check_commit(request.group_id, member, caller.api_version)
        except KafkaError as error:
            effects.fail(reply, error)
            return
        expires_at_ms = NO_TIMESTAMP
        if request.retention_time_ms != -1:
            expires_at_ms = min(effects.now_ms + request.retention_time_ms, LAST_TIMESTAMP)
        topics = []
        for topic in request.topics:
            partitions, names = [], names_of_key(request.group_id, topic.name)
            for wanted in topic.partitions:
                error_code = self._commit_one(names, wanted, effects, topic.topic_id, expires_at_ms)
                partitions.append(OffsetCommitResponsePartition(wanted.partition_index, error_code))
            topics.append(OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions))
        effects.answer(reply, OffsetCommitResponse(topics=topics))
        group = self._groups.get(request.group_id)
        # Not for a new group: its first commit creates it, and later commits may be refused because of that.
        effects.may_be_batched = group is not None
        if group is not None and member.member_id != NO_MEMBER:
            group.on_offset_commit(member, effects)

    def guard_transaction(self, guard: OffsetCommitGuard, reply: Reply, effects: Effects) -> None:
        self.guards.add(guard)
        effects.answer(reply, TxnOffsetCommitResponse())

    def commit_in_transaction(
        self, request: TxnOffsetCommitRequest, guard: OffsetCommitGuard, caller: Caller, reply: Reply, effects: Effects
    ) -> None:
        """Pending until the transaction ends; requests for stable offsets are refused until then."""
        member = Membership(request.member_id, request.generation_id, request.group_instance_id)
        try:
            self.guards.check(guard)
            self._check_commit_in_transaction(request.group_id, member, caller.api_version)
        except KafkaError as error:
            effects.fail(reply, error)
            return
        effects.producer = Producer(request.producer_id, request.producer_epoch)
        topics = []
        for topic in request.topics:
            partitions, names = [], names_of_key(request.group_id, topic.name)
            for wanted in topic.partitions:
                error_code = self._commit_one(names, wanted, effects)
                partitions.append(TxnOffsetCommitResponsePartition(wanted.partition_index, error_code))
            topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=partitions))
        effects.answer(reply, TxnOffsetCommitResponse(topics=topics))

    def _check_commit(self, group_id: str, member: Membership, api_version: int) -> None:
        group = self._groups.get(group_id)
        if group is not None:
            group.check_offset_commit(member, is_transactional=False, api_version=api_version)
        elif member.generation_or_epoch >= 0:
            raise GroupIdNotFound if api_version >= NOT_FOUND_FROM_VERSION else IllegalGeneration

    def _check_commit_in_transaction(self, group_id: str, member: Membership, api_version: int) -> None:
        group = self._groups.get(group_id)
        if group is None:
            if member.generation_or_epoch >= 0:
                raise IllegalGeneration
            return
        try:
            group.check_offset_commit(member, is_transactional=True, api_version=api_version)
        except StaleMemberEpoch as error:
            raise IllegalGeneration from error

    def _commit_one(
        self,
        names: bytes,
        wanted: RequestedCommit,
        effects: Effects,
        topic_id: Uuid = ZERO_UUID,
        expires_at_ms: int = NO_TIMESTAMP,
    ) -> int:
        metadata = wanted.committed_metadata or ""
        if metadata and len(metadata) > self._settings().offset_metadata_max_bytes:
            return OffsetMetadataTooLarge.code
        committed = CommittedOffset(
            wanted.committed_offset, wanted.committed_leader_epoch, metadata, effects.now_ms, expires_at_ms, topic_id
        )
        effects.write(key_of(names, wanted.partition_index), encode_value(committed))
        self._counts.commits += 1
        return NO_ERROR

    # ---- fetch

    def fetch(self, request: OffsetFetchRequestGroup, reply: Reply, effects: Effects, *, require_stable: bool) -> None:
        effects.is_read_of_state = True
        group = self._groups.get(request.group_id)
        if group is not None:
            member = Membership(request.member_id or NO_MEMBER, request.member_epoch)
            try:
                group.check_offset_fetch(member)
            except KafkaError as error:
                effects.fail(reply, error)
                return
        wanted = self._all_topics(request.group_id) if request.topics is None else request.topics
        topics = [self._fetch_topic(request.group_id, topic, require_stable=require_stable) for topic in wanted]
        found = OffsetFetchResponseGroup(group_id=request.group_id, topics=topics)
        effects.answer(reply, OffsetFetchResponse(groups=[found]))

    def _all_topics(self, group_id: str) -> list[OffsetFetchRequestTopics]:
        return [
            OffsetFetchRequestTopics(name=topic, partition_indexes=list(partitions))
            for topic, partitions in self.committed.of_group(group_id).items()
        ]

    def _fetch_topic(
        self, group_id: str, topic: OffsetFetchRequestTopics, *, require_stable: bool
    ) -> OffsetFetchResponseTopics:
        stored = self.committed.of_group(group_id).get(topic.name, {})
        may_be_unstable = require_stable and self.committed.has_transactions(group_id)
        partitions = [
            _unstable(index)
            if may_be_unstable and self.committed.is_pending(group_id, topic.name, index)
            else _fetched(index, stored, topic.topic_id)
            for index in topic.partition_indexes
        ]
        return OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=partitions)

    # ---- delete

    def delete(self, request: OffsetDeleteRequest, reply: Reply, effects: Effects) -> None:
        group = self._groups.get(request.group_id)
        if group is None:
            effects.fail(reply, GroupIdNotFound())
            return
        if not group.is_empty and group.protocol_type != CONSUMERS:
            effects.fail(reply, NonEmptyGroup())
            return
        topics = [self._delete_in(group, topic, effects) for topic in request.topics]
        effects.answer(reply, OffsetDeleteResponse(error_code=NO_ERROR, topics=topics))

    def _delete_in(self, group: Group, topic: OffsetDeleteRequestTopic, effects: Effects) -> OffsetDeleteResponseTopic:
        is_subscribed = group.is_subscribed_to(topic.name)
        error_code = GroupSubscribedToTopic.code if is_subscribed else NO_ERROR
        indexes = [wanted.partition_index for wanted in topic.partitions]
        for index in () if is_subscribed else indexes:
            self._delete_one(group.group_id, topic.name, index, effects)
        partitions = [OffsetDeleteResponsePartition(index, error_code) for index in indexes]
        return OffsetDeleteResponseTopic(name=topic.name, partitions=partitions)

    def _delete_one(self, group_id: str, topic: str, partition: int, effects: Effects) -> None:
        is_there = self.committed.get(group_id, topic, partition) is not None
        if is_there or self.committed.is_pending(group_id, topic, partition):
            effects.write(encode_key(group_id, topic, partition), None)
            self._counts.deletions += 1

    def delete_all(self, group_id: str, effects: Effects) -> None:
        """Delete all offsets of the group, including pending ones."""
        found = self.committed.pending_partitions(group_id)
        for topic, partitions in self.committed.of_group(group_id).items():
            found.update(TopicPartition(topic, partition) for partition in partitions)
        for topic, partition in found:
            effects.write(encode_key(group_id, topic, partition), None)
        self._counts.deletions += len(found)

    # ---- replay of records

    def replay(self, record: StateRecord, producer: Producer | None) -> None:
        group_id, topic, partition = decode_key(record.key)
        if record.value is None:
            self.committed.remove(group_id, topic, partition)
            return
        check_value(record.value)
        if group_id not in self._groups:
            # A consumer with manual assignment: the group has offsets and never had members.
            self._groups[group_id] = self._make_simple_group(group_id)
        if producer is None:
            self.committed.put(group_id, topic, partition, record.value)
        else:
            self.committed.put_pending(producer.producer_id, group_id, topic, partition, record.value)

    def replay_end_marker(self, producer: Producer, *, is_committed: bool) -> None:
        self.committed.end_transaction(producer.producer_id, is_committed=is_committed)
        self.guards.on_transaction_ended(producer.producer_id, producer.producer_epoch)


def _fetched(index: int, stored: Mapping[int, Value], topic_id: Uuid) -> OffsetFetchResponsePartitions:
    value = stored.get(index)
    committed = None if value is None else decode_value(value)
    if committed is None or not committed.is_of(topic_id):
        return OffsetFetchResponsePartitions(partition_index=index, committed_offset=NO_OFFSET, metadata="")
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
    )


def _unstable(index: int) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=UnstableOffsetCommit.code
    )
