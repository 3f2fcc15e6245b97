"""What groups of both protocols share: their interface, who calls, and the error when a record is not written."""

# Core: no clock, no I/O, no await.

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeAlias

from tidelog.config.coordinators import CoordinatorSettings
from tidelog.errors import KafkaError, MessageTooLarge, RecordListTooLarge, UnknownServerError
from tidelog.protocol.messages.offset_commit import OffsetCommitRequestTopic
from tidelog.replicated.machine import Effects


def answer_for(error: KafkaError) -> KafkaError:
    """The other errors of an append are told as those of a coordinator already."""
    if isinstance(error, (MessageTooLarge, RecordListTooLarge)):
        return UnknownServerError(f"the group's metadata is too large: {error}")
    return error


GroupSettings: TypeAlias = CoordinatorSettings


def offsets_retention_ms(settings: GroupSettings) -> int:
    return settings.offsets_retention_minutes * 60_000


class Caller(NamedTuple):
    client_id: str
    """Empty if the client gave none."""
    client_host: str
    """As DescribeGroups tells it: `/` and the address."""
    api_version: int


NO_GENERATION = -1
NO_MEMBER = ""


class Membership(NamedTuple):
    """Who a request says it comes from."""

    member_id: str = NO_MEMBER
    generation_or_epoch: int = NO_GENERATION
    instance_id: str | None = None
    commits: Sequence[OffsetCommitRequestTopic] = ()
    """What it wants to commit, if it does: an earlier epoch will do for what it has had since (KIP-1251)."""


class Group(Protocol):
    @property
    def group_id(self) -> str: ...

    @property
    def kind(self) -> str:
        """`classic` or `consumer`, as ListGroups tells it."""

    @property
    def protocol_type(self) -> str:
        """Empty for a group that only has offsets."""

    @property
    def state_name(self) -> str:
        """As ListGroups tells it: Empty, Stable, ..."""

    @property
    def is_empty(self) -> bool:
        """It has no members."""

    def is_subscribed_to(self, topic: str) -> bool: ...

    def check_offset_commit(self, member: Membership, *, is_transactional: bool, api_version: int) -> None:
        """Raises what Kafka answers to a member that may not commit (now)."""

    def check_offset_fetch(self, member: Membership) -> None: ...

    def check_deletion(self) -> None:
        """Raises NonEmptyGroup."""

    def on_offset_commit(self, member: Membership, effects: Effects) -> None:
        """A commit is a sign of life of a classic member."""

    def write_tombstones(self, effects: Effects) -> None:
        """Take all records of the group back, but for its offsets."""

    def offsets_unused_since_ms(self, committed_at_ms: int) -> int | None:
        """From when on the retention of an offset counts that was committed at this time; None while it is in use.

        Offsets of topics that the group is subscribed to are in use in any case: nobody asks for them.
        """
