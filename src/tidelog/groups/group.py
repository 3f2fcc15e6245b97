"""Interface of classic and consumer groups, the caller of a request, and errors of failed writes."""

# Core: no clock, no I/O, no await.

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeAlias

from tidelog.config.coordinators import CoordinatorSettings
from tidelog.errors import KafkaError, MessageTooLarge, RecordListTooLarge, UnknownServerError
from tidelog.protocol.messages.offset_commit import OffsetCommitRequestTopic
from tidelog.replicated.machine import Effects


def coordinator_error(error: KafkaError) -> KafkaError:
    """Error of the group API for a failed append. Other append errors are coordinator errors already."""
    if isinstance(error, (MessageTooLarge, RecordListTooLarge)):
        return UnknownServerError(f"the group's metadata is too large: {error}")
    return error


GroupSettings: TypeAlias = CoordinatorSettings


def offsets_retention_ms(settings: GroupSettings) -> int:
    return settings.offsets_retention_minutes * 60_000


class Caller(NamedTuple):
    """Client that sent a request (RequestContext)."""

    client_id: str
    """Empty if the client sent none."""
    client_host: str
    """As in DescribeGroups: `/` and the address."""
    api_version: int


NO_GENERATION = -1
NO_MEMBER = ""


class Membership(NamedTuple):
    """Member named in a request."""

    member_id: str = NO_MEMBER
    generation_or_epoch: int = NO_GENERATION
    instance_id: str | None = None
    commits: Sequence[OffsetCommitRequestTopic] = ()
    """Offsets to commit, if any: an earlier epoch is valid for partitions assigned since then (KIP-1251)."""


class Group(Protocol):
    """Group of either protocol, as offsets and administration see it."""

    @property
    def group_id(self) -> str: ...

    @property
    def kind(self) -> str:
        """`classic` or `consumer`, as in ListGroups."""

    @property
    def protocol_type(self) -> str:
        """`consumer`, `connect`, ...; empty for a group that has only offsets."""

    @property
    def state_name(self) -> str:
        """State as in ListGroups: Empty, Stable, ..."""

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members."""

    def is_subscribed_to(self, topic: str) -> bool: ...

    def check_offset_commit(self, member: Membership, *, is_transactional: bool, api_version: int) -> None:
        """Raises the error that Kafka returns to a member that may not commit, or not now."""

    def check_offset_fetch(self, member: Membership) -> None:
        """Raises the error that Kafka returns to a member that may not fetch offsets."""

    def check_deletion(self) -> None:
        """Raises NonEmptyGroup, or GroupIdNotFound if the group is dead."""

    def on_offset_commit(self, member: Membership, effects: Effects) -> None:
        """Extend the session of a classic member that commits."""

    def write_tombstones(self, effects: Effects) -> None:
        """Delete all records of the group except its offsets."""

    def offsets_unused_since_ms(self, committed_at_ms: int) -> int | None:
        """Start of the retention time of an offset committed at `committed_at_ms`; None while it is in use.

        Not called for offsets of subscribed topics: they are always in use.
        """
