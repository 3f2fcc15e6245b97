"""A consumer group: its members, what they should have, and what they have.

Everything here is durable and changes when records are replayed, but for what `replay` derives from it.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Set
from typing import TypeVar

from tidelog.cluster.image import Topic
from tidelog.errors import (
    IllegalGeneration,
    NonEmptyGroup,
    StaleMemberEpoch,
    UnknownMemberId,
    UnsupportedVersion,
)
from tidelog.groups.consumer import records
from tidelog.groups.consumer.members import LEAVE_EPOCH, Assignment, Holdings, Member
from tidelog.groups.consumer.records import ResolvedRegex
from tidelog.groups.group import Membership
from tidelog.replicated.machine import Effects
from tidelog.types import Uuid

T = TypeVar("T", bound=Hashable)

NO_ASSIGNMENT_EPOCH = 0
COMMITS_WITH_EPOCH_FROM = 9
"""The version of OffsetCommit that knows of member epochs."""


class Resolutions:
    """What expressions match among the topics of the cluster, as long as these stay the same. Not durable."""

    def __init__(self) -> None:
        self._topics: Mapping[str, Topic] | None = None
        self._found: dict[str, frozenset[str]] = {}

    def find(
        self, expression: str, topics: Mapping[str, Topic], match: Callable[[str], frozenset[str]]
    ) -> frozenset[str]:
        if topics is not self._topics:
            self._topics, self._found = topics, {}
        if expression not in self._found:
            self._found[expression] = match(expression)
        return self._found[expression]

    def keep(self, used: Set[str]) -> None:
        self._found = {expression: found for expression, found in self._found.items() if expression in used}


class ConsumerGroup:
    kind = "consumer"
    protocol_type = "consumer"

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.metadata_hash = 0
        """Of the topics that are subscribed to, as they were when the epoch began."""
        self.assignment_epoch = NO_ASSIGNMENT_EPOCH
        """Of the targets: the epoch of the group that they were made for."""
        self.assigned_at_ms = 0
        self.members: dict[str, Member] = {}
        self.targets: dict[str, Assignment] = {}
        self.regexes: dict[str, ResolvedRegex] = {}
        self.static_members: dict[str, str] = {}
        """Member ids by `group.instance.id`."""
        self.owners: dict[tuple[Uuid, int], str] = {}
        """Who has a partition, or has not yet given it up."""
        self.classic_member_count = 0
        self.classic_protocols: Counter[str] = Counter()
        """How many classic members support each of their assignors."""
        self.checked_topics: Mapping[str, Topic] | None = None
        """The topics of the cluster for which `metadata_hash` is known to hold. Not durable."""
        self.resolutions = Resolutions()
        self._topic_counts: Counter[str] = Counter()
        self._name_counts: Counter[frozenset[str]] = Counter()
        self._shared_names: dict[frozenset[str], frozenset[str]] = {}

    # -- changes, in the order of replay

    def put_member(self, member: Member) -> None:
        """A member that is new or has changed, with what it has."""
        self._forget(self.members.get(member.member_id))
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        for holdings in (member.assigned, member.revoking):
            self._own(member.member_id, holdings)
        self._count_names(member.subscribed_topics, 1)
        self._count_classic(member, 1)

    def remove_member(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        self._forget(member)
        if member is not None and self.static_members.get(member.instance_id or "") == member_id:
            del self.static_members[member.instance_id or ""]

    def shared_names(self, names: frozenset[str]) -> frozenset[str]:
        """The same object for the same names: members that subscribe alike are then found quickly."""
        return self._shared_names.get(names, names)

    def _forget(self, member: Member | None) -> None:
        if member is None:
            return
        for holdings in (member.assigned, member.revoking):
            self._disown(member.member_id, holdings)
        self._count_names(member.subscribed_topics, -1)
        self._count_classic(member, -1)

    def _own(self, member_id: str, holdings: Holdings) -> None:
        for topic_id, partitions in holdings.items():
            for partition in partitions:
                self.owners[topic_id, partition] = member_id

    def _disown(self, member_id: str, holdings: Holdings) -> None:
        for topic_id, partitions in holdings.items():
            for partition in partitions:
                # After compaction a newer owner's record may stand before the older owner's.
                if self.owners.get((topic_id, partition)) == member_id:
                    del self.owners[topic_id, partition]

    def _count_names(self, names: frozenset[str], step: int) -> None:
        self._shared_names.setdefault(names, names)
        if not _count(self._name_counts, names, step):
            del self._shared_names[names]
        for topic in names:
            _count(self._topic_counts, topic, step)

    def _count_classic(self, member: Member, step: int) -> None:
        if member.classic is not None:
            self.classic_member_count += step
            for name, _ in member.classic.protocols:
                _count(self.classic_protocols, name, step)

    # -- questions

    def owner_of(self, topic_id: Uuid, partition: int) -> str | None:
        return self.owners.get((topic_id, partition))

    def member(self, member_id: str) -> Member:
        member = self.members.get(member_id)
        if member is None or member.epoch == LEAVE_EPOCH:
            raise UnknownMemberId(f"Member {member_id} is not a member of group {self.group_id}.")
        return member

    def static_member(self, instance_id: str) -> Member | None:
        return self.members.get(self.static_members.get(instance_id, ""))

    def supports_classic(self, protocol_type: str, names: frozenset[str]) -> bool:
        """Whether a classic member with these assignors fits in with those that are there."""
        if protocol_type != self.protocol_type:
            return False
        return any(self.classic_protocols[name] == self.classic_member_count for name in names)

    # -- what every group can be asked

    @property
    def state_name(self) -> str:
        if not self.members:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        is_reconciled = all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values())
        return "Stable" if is_reconciled else "Reconciling"

    @property
    def is_empty(self) -> bool:
        return not self.members

    def is_subscribed_to(self, topic: str) -> bool:
        return self._topic_counts[topic] > 0 or any(topic in resolved.topics for resolved in self.regexes.values())

    def check_offset_commit(self, member: Membership, *, is_transactional: bool, api_version: int) -> None:
        if member.generation_or_epoch < 0 and self.is_empty:
            return
        known = self.member(member.member_id)
        if not is_transactional and not known.is_classic and api_version < COMMITS_WITH_EPOCH_FROM:
            raise UnsupportedVersion(
                "OffsetCommit version 9 or above must be used by members using the consumer group protocol"
            )
        if known.is_classic or not member.commits or member.generation_or_epoch > known.epoch:
            _check_epoch(member, known)
        elif member.generation_or_epoch < known.epoch:
            _check_since_when(member, known)

    def check_offset_fetch(self, member: Membership) -> None:
        if not member.member_id and member.generation_or_epoch < 0:
            return
        _check_epoch(member, self.member(member.member_id))

    def check_deletion(self) -> None:
        if not self.is_empty:
            raise NonEmptyGroup

    def on_offset_commit(self, member: Membership, effects: Effects) -> None:
        """Only heartbeats count: a consumer sends them from the background."""

    def offsets_unused_since_ms(self, committed_at_ms: int) -> int | None:
        return committed_at_ms

    def write_tombstones(self, effects: Effects) -> None:
        records.erase_group(effects, self.group_id, self.members, self.regexes)


def _count(counts: Counter[T], thing: T, step: int) -> int:
    """How many there are now. What is not there any more is forgotten."""
    count = counts[thing] + step
    if count:
        counts[thing] = count
    else:
        del counts[thing]
    return count


def _check_since_when(said: Membership, known: Member) -> None:
    """An epoch of the past will do for partitions that the member has had since then: nobody else can have read on."""
    for topic in said.commits:
        for partition in topic.partitions:
            index = partition.partition_index
            since = known.holds_since(topic.topic_id, index)
            if since is None:
                raise StaleMemberEpoch(
                    f"Partition {topic.name}-{index} is not assigned or pending revocation for member."
                )
            if said.generation_or_epoch < since:
                raise StaleMemberEpoch(
                    f"Received member epoch {said.generation_or_epoch} is older than assignment epoch {since} "
                    f"for partition {topic.name}-{index}."
                )


def _check_epoch(said: Membership, known: Member) -> None:
    if said.generation_or_epoch == known.epoch:
        return
    if known.is_classic:
        raise IllegalGeneration(
            f"The received generation id {said.generation_or_epoch} does not match "
            f"the expected member epoch {known.epoch}."
        )
    raise StaleMemberEpoch(
        f"The received member epoch {said.generation_or_epoch} does not match the expected member epoch {known.epoch}."
    )
