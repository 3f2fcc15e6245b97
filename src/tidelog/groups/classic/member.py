"""Member of a classic group, with the topics that it subscribes to."""

from collections.abc import Iterable
from typing import TypeAlias

from tidelog.protocol.codec import decode, encode
from tidelog.protocol.errors import MalformedMessage
from tidelog.protocol.internal.consumer_protocol import ConsumerProtocolSubscription
from tidelog.protocol.internal.offset_records import GroupMetadataValue, MemberMetadata
from tidelog.protocol.internal.versioned import VERSION_BYTES
from tidelog.protocol.messages.describe_groups import DescribedGroupMember
from tidelog.protocol.messages.join_group import JoinGroupRequest
from tidelog.replicated.machine import Reply

CONSUMER_PROTOCOL_TYPE = "consumer"
PREFIX_OF_ALL_VERSIONS = 0
"""Version of the subscription with which those of all later versions begin."""


def topics_of(metadata: Iterable[bytes]) -> frozenset[str] | None:
    """Subscribed topics of all members; None if a subscription is malformed."""
    topics: set[str] = set()
    try:
        for subscription in set(metadata):  # in large groups most are the same
            rest = memoryview(subscription)[VERSION_BYTES:]
            topics.update(decode(ConsumerProtocolSubscription, PREFIX_OF_ALL_VERSIONS, rest).topics)
    except MalformedMessage:
        return None
    return frozenset(topics)


Protocols: TypeAlias = tuple[tuple[str, bytes], ...]
"""Assignors that a member supports, in order of preference: name and metadata."""

NO_ASSIGNMENT = b""

FIXED_BYTES = 70
"""Timeouts, lengths and a small assignment of a member in the group's record."""
PROTOCOLS_EXPECTED = 4

VALUE_VERSION = 3
"""Version of the group's record."""
LENGTH_BYTES = 4
"""Of an array, and of bytes, in this version."""
_NO_MEMBERS = encode(GroupMetadataValue(), VALUE_VERSION)


def bytes_of(names: Iterable[str | None], protocols: Protocols) -> int:
    """Bytes of a member in the group's record. The record has the metadata of one protocol: the smallest counts, but at
    least a quarter of all, which are in memory."""
    sizes = [len(name) + len(metadata) for name, metadata in protocols]
    metadata_bytes = max(min(sizes, default=0), sum(sizes) // PROTOCOLS_EXPECTED)
    return FIXED_BYTES + metadata_bytes + sum(len(name) for name in names if name is not None)


class ClassicMember:
    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "deadline_ms",
        "encoded_identity",
        "instance_id",
        "is_new",
        "join_reply",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync_reply",
        "timer_due_ms",
    )

    def __init__(
        self,
        member_id: str,
        *,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: Protocols,
        assignment: bytes = NO_ASSIGNMENT,
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        """`group.instance.id` of a static member (KIP-345)."""
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        self.encoded_identity = self._encode_identity()
        """First fields of the member in the group's record; its subscription and assignment follow."""
        self.join_reply: Reply | None = None
        self.sync_reply: Reply | None = None
        self.is_new = False
        """The member has not been part of a generation yet."""
        self.deadline_ms = 0
        """End of its session unless it sends a heartbeat, by the monotonic clock."""
        self.timer_due_ms: int | None = None
        """Time of its timer, which checks the deadline. Heartbeats do not move it: that would cost heap operations."""

    @property
    def held_bytes(self) -> int:
        return bytes_of((self.member_id, self.instance_id, self.client_id, self.client_host), self.protocols)

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    @property
    def has_satisfied_heartbeat(self) -> bool:
        """A member with a pending request need not send heartbeats. A new member is different: it does not know its id
        yet and would rejoin with another one if its connection broke, so its session timeout still applies."""
        return not self.is_new and (self.join_reply is not None or self.sync_reply is not None)

    def metadata(self, protocol_name: str | None) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        return b""

    def vote(self, candidates: frozenset[str]) -> str:
        return next(name for name, _ in self.protocols if name in candidates)

    def update_from(self, request: JoinGroupRequest) -> None:
        """Apply the values of a further JoinGroup."""
        self.protocols = protocols_of(request)
        self.rebalance_timeout_ms = request.rebalance_timeout_ms
        self.session_timeout_ms = request.session_timeout_ms
        self.encoded_identity = self._encode_identity()

    def _encode_identity(self) -> bytes:
        stored = MemberMetadata(
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout=self.rebalance_timeout_ms,
            session_timeout=self.session_timeout_ms,
        )
        group = encode(GroupMetadataValue(members=[stored]), VALUE_VERSION)
        return group[len(_NO_MEMBERS) : -2 * LENGTH_BYTES]

    def described(self, protocol_name: str | None) -> DescribedGroupMember:
        return DescribedGroupMember(
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            member_metadata=self.metadata(protocol_name),
            member_assignment=self.assignment,
        )


def protocols_of(request: JoinGroupRequest) -> Protocols:
    return tuple((protocol.name, protocol.metadata) for protocol in request.protocols)
