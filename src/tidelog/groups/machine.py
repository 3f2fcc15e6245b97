"""All groups of one partition of __consumer_offsets: which protocol a request or record belongs to."""

import logging
from collections.abc import Callable
from typing import Any

from tidelog.cluster.image import ClusterImage
from tidelog.groups.caller import Caller
from tidelog.groups.classic.protocol import ClassicProtocol
from tidelog.groups.consumer.group import ConsumerGroup
from tidelog.groups.consumer.protocol import ConsumerProtocol
from tidelog.groups.group import Group
from tidelog.groups.settings import GroupSettings
from tidelog.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tidelog.protocol.messages.heartbeat import HeartbeatRequest
from tidelog.protocol.messages.join_group import JoinGroupRequest
from tidelog.protocol.messages.leave_group import LeaveGroupRequest
from tidelog.protocol.messages.sync_group import SyncGroupRequest
from tidelog.replicated.machine import Effects, Reply
from tidelog.runtime.randomness import Randomness

logger = logging.getLogger(__name__)

CLASSIC, CONSUMER, OFFSETS = "classic", "consumer", "offsets"
"""Who set a timer: the first part of its key."""


class GroupMachine:
    """The protocols share one dictionary of groups. A timer's key is a tuple that begins with its owner's name."""

    def __init__(
        self, *, settings: Callable[[], GroupSettings], image: Callable[[], ClusterImage], randomness: Randomness
    ) -> None:
        self.groups: dict[str, Group] = {}
        self.classic = ClassicProtocol(self.groups, settings, randomness)
        self.consumer = ConsumerProtocol(self.groups, settings, image, randomness)

    # -- membership

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

    # -- timers

    def on_timer(self, key: Any, effects: Effects) -> None:
        if key[0] == CLASSIC:
            self.classic.on_timer(key, effects)
        elif key[0] == CONSUMER:
            self.consumer.on_timer(key, effects)
