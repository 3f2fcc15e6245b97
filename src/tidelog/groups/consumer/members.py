"""Member of a consumer group: subscription, assignment, epoch and state."""

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol, TypeAlias

from tidelog.types import Uuid

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2
"""Epoch of a static member that left temporarily: it keeps its partitions until its session expires."""

Assignment: TypeAlias = Mapping[Uuid, frozenset[int]]
"""Partitions by topic; no topic has an empty set."""

Holdings: TypeAlias = Mapping[Uuid, Mapping[int, int]]
"""Partitions by topic, each with its assignment epoch."""


Subscription: TypeAlias = tuple[frozenset[str], str]
"""A subscription: names of topics, and a regular expression or an empty text."""


class PartitionsOfTopic(Protocol):
    """Common shape of partition lists in several messages."""

    topic_id: Uuid
    partitions: Sequence[int]


class MemberState(IntEnum):
    """Numbers as in the records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """The member has to revoke partitions and has not confirmed it yet."""
    UNRELEASED_PARTITIONS = 2
    """The member waits for partitions that others have to revoke."""


class ClassicMember(NamedTuple):
    """Additional state of a member that uses the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    """Its assignors in order of preference, each with its subscription."""


NO_HOLDINGS: Final[Holdings] = MappingProxyType({})


class Member(NamedTuple):
    """A tuple, because every step of a reconciliation makes a changed copy."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topics: frozenset[str] = frozenset()
    subscribed_regex: str = ""
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic: ClassicMember | None = None
    epoch: int = JOIN_EPOCH
    previous_epoch: int = JOIN_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: Holdings = NO_HOLDINGS
    revoking: Holdings = NO_HOLDINGS
    """Partitions that it has to revoke and may still use."""

    @property
    def subscription(self) -> Subscription:
        return self.subscribed_topics, self.subscribed_regex

    @property
    def is_classic(self) -> bool:
        return self.classic is not None

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == assignment_epoch

    def holds_since(self, topic_id: Uuid, partition: int) -> int | None:
        """Assignment epoch of a partition that it owns or has not revoked yet; None for any other."""
        for holdings in (self.assigned, self.revoking):
            since = holdings.get(topic_id, {}).get(partition)
            if since is not None:
                return since
        return None


def assignment_of(listed: Iterable[PartitionsOfTopic]) -> Assignment:
    return {topic.topic_id: frozenset(topic.partitions) for topic in listed if topic.partitions}


def partitions_of(holdings: Holdings) -> Assignment:
    return {topic_id: frozenset(partitions) for topic_id, partitions in holdings.items()}
