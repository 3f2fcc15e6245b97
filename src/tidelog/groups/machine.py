"""Group state machine of one `__consumer_offsets` partition: dispatches requests, records and timers."""

# Core that logs: no clock, no I/O, no await.

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tidelog.cluster.image import ClusterImage
from tidelog.errors import NO_ERROR, GroupIdNotFound, KafkaError
from tidelog.groups.classic.group import ClassicGroup
from tidelog.groups.classic.protocol import ClassicProtocol
from tidelog.groups.consumer.group import ConsumerGroup
from tidelog.groups.consumer.protocol import ConsumerProtocol
from tidelog.groups.expiry import Expiry
from tidelog.groups.group import Caller, Group, GroupSettings
from tidelog.groups.offsets import Offsets
from tidelog.groups.statistics import GroupCounts
from tidelog.protocol.errors import MalformedMessage
from tidelog.protocol.internal.versioned import version_of
from tidelog.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tidelog.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from tidelog.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsResponse
from tidelog.protocol.messages.heartbeat import HeartbeatRequest
from tidelog.protocol.messages.join_group import JoinGroupRequest
from tidelog.protocol.messages.leave_group import LeaveGroupRequest
from tidelog.protocol.messages.list_groups import ListedGroup
from tidelog.protocol.messages.sync_group import SyncGroupRequest
from tidelog.replicated.machine import Effects, Producer, Reply, StateRecord
from tidelog.runtime.randomness import Randomness
from tidelog.types import Uuid

logger = logging.getLogger(__name__)

OFFSET_KEYS = (b"\0\0", b"\0\1")
"""Versions 0 and 1, as keys begin with them."""
CLASSIC_GROUP_KEY = 2
CONSUMER_GROUP_KEYS = (3, 4, 5, 6, 7, 8, 16)

NOT_FOUND_FROM_VERSION = 6
"""First version of DescribeGroups with GROUP_ID_NOT_FOUND; earlier versions describe a missing group as dead."""


class GroupMachine:
    """The protocols share one dictionary of groups. A timer's key is a tuple that begins with its owner's name."""

    def __init__(
        self,
        *,
        settings: Callable[[], GroupSettings],
        image: Callable[[], ClusterImage],
        randomness: Randomness,
        counts: GroupCounts | None = None,
    ) -> None:
        counts = counts or GroupCounts()
        self.groups: dict[str, Group] = {}
        self.classic = ClassicProtocol(self.groups, settings, randomness, counts)
        self.consumer = ConsumerProtocol(self.groups, settings, image, randomness, self.classic, counts)
        self.offsets = Offsets(self.groups, settings, lambda group_id: ClassicGroup(group_id, counts=counts), counts)
        self.expiry = Expiry(self.groups, self.offsets.committed, settings, counts)

    # ---- members

    def join(self, request: JoinGroupRequest, caller: Caller, reply: Reply, effects: Effects) -> None:
        if self._is_consumer_group(request.group_id):
            self.consumer.classic_join(request, caller, reply, effects)
        else:
            self.classic.join(request, caller, reply, effects)

    def sync(self, request: SyncGroupRequest, caller: Caller, reply: Reply, effects: Effects) -> None:
        if self._is_consumer_group(request.group_id):
            self.consumer.classic_sync(request, caller, reply, effects)
        else:
            self.classic.sync(request, caller, reply, effects)

    def heartbeat(self, request: HeartbeatRequest, caller: Caller, reply: Reply, effects: Effects) -> None:
        if self._is_consumer_group(request.group_id):
            self.consumer.classic_heartbeat(request, caller, reply, effects)
        else:
            self.classic.heartbeat(request, caller, reply, effects)

    def leave(self, request: LeaveGroupRequest, caller: Caller, reply: Reply, effects: Effects) -> None:
        if self._is_consumer_group(request.group_id):
            self.consumer.classic_leave(request, caller, reply, effects)
        else:
            self.classic.leave(request, caller, reply, effects)

    def consumer_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, caller: Caller, reply: Reply, effects: Effects
    ) -> None:
        self.consumer.heartbeat(request, caller, reply, effects)

    def _is_consumer_group(self, group_id: str) -> bool:
        return isinstance(self.groups.get(group_id), ConsumerGroup)

    # ---- administration

    def listed(self) -> Iterator[ListedGroup]:
        for group in self.groups.values():
            yield ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state_name,
                group_type=group.kind,
            )

    def describe(self, group_id: str, api_version: int, reply: Reply, effects: Effects) -> None:
        """Describe a classic group. A consumer group is not found this way."""
        effects.is_read_of_state = True
        group = self.groups.get(group_id)
        described = group.described() if isinstance(group, ClassicGroup) else _not_found(group_id, api_version)
        effects.answer(reply, DescribeGroupsResponse(groups=[described]))

    def delete(self, group_id: str, reply: Reply, effects: Effects) -> None:
        group = self.groups.get(group_id)
        try:
            if group is None:
                raise GroupIdNotFound
            group.check_deletion()
        except KafkaError as error:
            effects.fail(reply, error)
            return
        self.offsets.delete_all(group_id, effects)
        group.write_tombstones(effects)
        logger.info("deleted group group=%s", group_id)
        effects.answer(reply, DeleteGroupsResponse(results=[DeletableGroupResult(group_id, NO_ERROR)]))

    def on_topics_deleted(self, deleted: Mapping[str, Uuid], effects: Effects) -> None:
        self.expiry.delete_offsets_of_topics(deleted, effects)

    # ---- StateMachine

    def replay(self, record: StateRecord, producer: Producer | None) -> None:
        try:
            if record.key.startswith(OFFSET_KEYS):  # by far the most, when a partition is loaded
                self.offsets.replay(record, producer)
                return
            version = version_of(record.key)
            if version == CLASSIC_GROUP_KEY:
                self.classic.replay_group_metadata(record)
            elif version in CONSUMER_GROUP_KEYS:
                self.consumer.replay(version, record)
            else:
                logger.warning("skipped record of unknown type key_version=%d", version)
        except (MalformedMessage, KafkaError) as error:
            logger.warning("skipped malformed record key=%s reason=%s", record.key.hex(), error)

    def replay_end_marker(self, producer: Producer, *, is_committed: bool) -> None:
        self.offsets.replay_end_marker(producer, is_committed=is_committed)

    def on_loaded(self, effects: Effects) -> None:
        self.classic.on_loaded(effects)
        self.consumer.on_loaded(effects)
        self.expiry.on_loaded(effects)

    def on_timer(self, key: Any, effects: Effects) -> None:
        match key[0]:
            case "classic":
                self.classic.on_timer(key, effects)
            case "consumer":
                self.consumer.on_timer(key, effects)
            case _:
                self.expiry.on_timer(key, effects)

    def on_unloaded(self, effects: Effects) -> None:
        self.classic.on_unloaded(effects)
        self.consumer.on_unloaded(effects)


def _not_found(group_id: str, api_version: int) -> DescribedGroup:
    if api_version < NOT_FOUND_FROM_VERSION:
        return DescribedGroup(group_id=group_id, group_state="Dead")
    return DescribedGroup(
        group_id=group_id,
        group_state="Dead",
        error_code=GroupIdNotFound.code,
        error_message=GroupIdNotFound(f"Group {group_id} not found.").message,
    )
