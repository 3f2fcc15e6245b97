"""Member of a consumer group: subscription, assignment, epoch and state."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import NamedTuple, Protocol, TypeAlias

from tidelog.types import Uuid

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2
"""Epoch of a static member that left temporarily: it keeps its partitions until its session expires."""

Assignment: TypeAlias = Mapping[Uuid, frozenset[int]]
"""Partitions by topic; no topic has an empty set."""

Holdings: TypeAlias = Mapping[Uuid, Mapping[int, int]]
"""Partitions by topic, each with its assignment epoch."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
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
    assigned: Holdings = field(default_factory=dict)
    revoking: Holdings = field(default_factory=dict)
    """Partitions that it has to revoke and may still use."""

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

    def with_epoch(self, epoch: int) -> "Member":
        return replace(self, epoch=epoch, previous_epoch=self.epoch)


def assignment_of(listed: Iterable[PartitionsOfTopic]) -> Assignment:
    return {topic.topic_id: frozenset(topic.partitions) for topic in listed if topic.partitions}


def partitions_of(holdings: Holdings) -> Assignment:
    return {topic_id: frozenset(partitions) for topic_id, partitions in holdings.items()}
