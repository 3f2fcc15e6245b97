"""Consumer group: members, target assignment and current assignments.

All state is durable and changes only when records are replayed, except values marked as not durable.
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
from tidelog.groups.consumer.held_bytes import HeldBytes, bytes_of_member, bytes_of_names
from tidelog.groups.consumer.members import LEAVE_EPOCH, Assignment, Holdings, Member, Subscription
from tidelog.groups.consumer.records import ResolvedRegex
from tidelog.groups.group import Membership
from tidelog.groups.statistics import GroupCounts
from tidelog.replicated.machine import Effects
from tidelog.types import Uuid

T = TypeVar("T", bound=Hashable)

NO_ASSIGNMENT_EPOCH = 0
COMMITS_WITH_EPOCH_FROM = 9
"""First version of OffsetCommit with member epochs."""


class Resolutions:
    """Cache of the topics that subscriptions match, valid until the topics of the cluster change. Not durable."""

    def __init__(self) -> None:
        self._topics: Mapping[str, Topic] = {}
        self._found: dict[str, frozenset[str]] = {}
        self._existing: dict[frozenset[str], frozenset[str]] = {}

    def at(self, topics: Mapping[str, Topic]) -> "Resolutions":
        if topics is not self._topics:
            self._topics, self._found, self._existing = topics, {}, {}
        return self

    def is_found(self, expression: str) -> bool:
        return expression in self._found

    def find(self, expression: str, match: Callable[[str], frozenset[str]]) -> frozenset[str]:
        if expression not in self._found:
            self._found[expression] = match(expression)
        return self._found[expression]

    def existing(self, names: frozenset[str]) -> frozenset[str]:
        """Those of the names that are topics. A group may have thousands of subscriptions with thousands of names."""
        found = self._existing.get(names)
        if found is None:
            fewer, others = (names, self._topics) if len(names) < len(self._topics) else (self._topics, names)
            found = self._existing[names] = frozenset(name for name in fewer if name in others)
        return found

    def keep(self, expressions: Set[str], names: Set[frozenset[str]]) -> None:
        self._found = {expression: found for expression, found in self._found.items() if expression in expressions}
        if len(self._existing) > len(names):
            self._existing = {each: found for each, found in self._existing.items() if each in names}


class ConsumerGroup:
    kind = "consumer"
    protocol_type = "consumer"

    def __init__(self, group_id: str, counts: GroupCounts | None = None) -> None:
        """`counts` has the bytes of all groups of the broker."""
        self.group_id = group_id
        self.held_bytes = HeldBytes(counts)
        self.epoch = 0
        self.metadata_hash = 0
        """Hash of the subscribed topics when the epoch started."""
        self.assignment_epoch = NO_ASSIGNMENT_EPOCH
        """Group epoch of the target assignment."""
        self.assigned_at_ms = 0
        self.members: dict[str, Member] = {}
        self.targets: dict[str, Assignment] = {}
        self.regexes: dict[str, ResolvedRegex] = {}
        self.static_members: dict[str, str] = {}
        """Member ids by `group.instance.id`."""
        self.owners: dict[tuple[Uuid, int], str] = {}
        """Owner of each partition, including owners that have not revoked it yet."""
        self.classic_member_count = 0
        self.classic_protocols: Counter[str] = Counter()
        """Number of classic members that support each assignor."""
        self.checked_topics: Mapping[str, Topic] | None = None
        """Topics of the cluster for which `metadata_hash` was verified. Not durable."""
        self.resolutions = Resolutions()
        self.subscriptions: Counter[Subscription] = Counter()
        """Number of members with each subscription."""
        self._topic_counts: Counter[str] = Counter()
        self._name_counts: Counter[frozenset[str]] = Counter()
        self._shared_names: dict[frozenset[str], frozenset[str]] = {}
        self._bytes_of_members: dict[str, int] = {}

    # ---- changes by replay

    def put_member(self, member: Member) -> None:
        """Add or update a member with its assignment."""
        earlier = self.members.get(member.member_id)
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self._hold(member)
        if earlier is not None:
            self._disown_all(earlier)
        self._own(member.member_id, member.assigned)
        self._own(member.member_id, member.revoking)
        if earlier is None or earlier.subscription != member.subscription or earlier.classic is not member.classic:
            self._count(member, 1)
            if earlier is not None:
                self._count(earlier, -1)

    def remove_member(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self.held_bytes.add(-self._bytes_of_members.pop(member_id))
        self._disown_all(member)
        self._count(member, -1)
        if self.static_members.get(member.instance_id or "") == member_id:
            del self.static_members[member.instance_id or ""]

    def shared_names(self, names: frozenset[str]) -> frozenset[str]:
        """One shared object for equal names, so that equal subscriptions are compared quickly."""
        return self._shared_names.get(names, names)

    def bytes_added_by(self, member: Member) -> int:
        """Bytes that the group would hold in addition, with this member in its present form."""
        if self.members.get(member.member_id) is member:
            return 0
        names = member.subscribed_topics
        return (
            bytes_of_member(member)
            - self._bytes_of_members.get(member.member_id, 0)
            + (0 if names in self._shared_names else bytes_of_names(names))
        )

    def _hold(self, member: Member) -> None:
        held_bytes = bytes_of_member(member)
        self.held_bytes.add(held_bytes - self._bytes_of_members.get(member.member_id, 0))
        self._bytes_of_members[member.member_id] = held_bytes

    def _disown_all(self, member: Member) -> None:
        self._disown(member.member_id, member.assigned)
        self._disown(member.member_id, member.revoking)

    def _count(self, member: Member, step: int) -> None:
        _count(self.subscriptions, member.subscription, step)
        self._count_names(member.subscribed_topics, step)
        self._count_classic(member, step)

    def _own(self, member_id: str, holdings: Holdings) -> None:
        for topic_id, partitions in holdings.items():
            for partition in partitions:
                self.owners[topic_id, partition] = member_id

    def _disown(self, member_id: str, holdings: Holdings) -> None:
        for topic_id, partitions in holdings.items():
            for partition in partitions:
                # After compaction the record of a newer owner may precede that of the older one.
                if self.owners.get((topic_id, partition)) == member_id:
                    del self.owners[topic_id, partition]

    def _count_names(self, names: frozenset[str], step: int) -> None:
        if names not in self._shared_names:
            self._shared_names[names] = names
            self.held_bytes.add(bytes_of_names(names))
        if not _count(self._name_counts, names, step):
            del self._shared_names[names]
            self.held_bytes.add(-bytes_of_names(names))
        for topic in names:
            _count(self._topic_counts, topic, step)

    def _count_classic(self, member: Member, step: int) -> None:
        if member.classic is not None:
            self.classic_member_count += step
            for name, _ in member.classic.protocols:
                _count(self.classic_protocols, name, step)

    # ---- queries

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
        """True if all classic members support one of these assignors."""
        if protocol_type != self.protocol_type:
            return False
        return any(self.classic_protocols[name] == self.classic_member_count for name in names)

    # ---- interface of every group

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
        existing = self.member(member.member_id)
        if not is_transactional and not existing.is_classic and api_version < COMMITS_WITH_EPOCH_FROM:
            raise UnsupportedVersion(
                "OffsetCommit version 9 or above must be used by members using the consumer group protocol"
            )
        if existing.is_classic or not member.commits or member.generation_or_epoch > existing.epoch:
            _check_epoch(member, existing)
        elif member.generation_or_epoch < existing.epoch:
            _check_assignment_epochs(member, existing)

    def check_offset_fetch(self, member: Membership) -> None:
        if not member.member_id and member.generation_or_epoch < 0:
            return
        _check_epoch(member, self.member(member.member_id))

    def check_deletion(self) -> None:
        if not self.is_empty:
            raise NonEmptyGroup

    def on_offset_commit(self, member: Membership, effects: Effects) -> None:
        """Does not extend the session: consumers send heartbeats in the background."""

    def offsets_unused_since_ms(self, committed_at_ms: int) -> int | None:
        return committed_at_ms

    def write_tombstones(self, effects: Effects) -> None:
        records.erase_group(effects, self.group_id, self.members, self.regexes)


def _count(counts: Counter[T], thing: T, step: int) -> int:
    """Add `step` and return the new count. A count of 0 is removed."""
    count = counts[thing] + step
    if count:
        counts[thing] = count
    else:
        del counts[thing]
    return count


def _check_assignment_epochs(received: Membership, existing: Member) -> None:
    """An earlier epoch is valid for partitions assigned since then: no other member has consumed them (KIP-1251)."""
    for topic in received.commits:
        for partition in topic.partitions:
            index = partition.partition_index
            since = existing.holds_since(topic.topic_id, index)
            if since is None:
                raise StaleMemberEpoch(
                    f"Partition {topic.name}-{index} is not assigned or pending revocation for member."
                )
            if received.generation_or_epoch < since:
                raise StaleMemberEpoch(
                    f"Received member epoch {received.generation_or_epoch} is older than assignment epoch {since} "
                    f"for partition {topic.name}-{index}."
                )


def _check_epoch(received: Membership, existing: Member) -> None:
    if received.generation_or_epoch == existing.epoch:
        return
    if existing.is_classic:
        raise IllegalGeneration(
            f"The received generation id {received.generation_or_epoch} does not match "
            f"the expected member epoch {existing.epoch}."
        )
    raise StaleMemberEpoch(
        f"The received member epoch {received.generation_or_epoch} does not match"
        f" the expected member epoch {existing.epoch}."
    )
