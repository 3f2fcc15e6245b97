"""A member of a consumer group: what it wants, what it has, and how far it is."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import NamedTuple, Protocol, TypeAlias

from tidelog.types import Uuid

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2
"""A static member that will be back: it keeps its partitions until its session ends."""

Assignment: TypeAlias = Mapping[Uuid, frozenset[int]]
"""Partitions by topic. No topic is without partitions."""

Holdings: TypeAlias = Mapping[Uuid, Mapping[int, int]]
"""Partitions by topic, each with the epoch in which the member got it."""


class PartitionsOfTopic(Protocol):
    """As several messages list partitions."""

    topic_id: Uuid
    partitions: Sequence[int]


class MemberState(IntEnum):
    """As records have it."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It has been told to give partitions up and has not said yet that it did."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that others have to give up."""


class ClassicMember(NamedTuple):
    """What is known of a member that speaks the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    """Its assignors in its order, each with its subscription."""


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
    """What it has been told to give up, and may still use."""

    @property
    def is_classic(self) -> bool:
        return self.classic is not None

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == assignment_epoch

    def holds_since(self, topic_id: Uuid, partition: int) -> int | None:
        """The epoch in which it got what it has, or has not yet given up."""
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
