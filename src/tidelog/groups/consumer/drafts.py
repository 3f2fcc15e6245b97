"""Draft of a consumer group: its state after the current step. Each change is written as a record at once.

The group itself changes when the records are replayed. Until then the draft has the current values.
"""

import hashlib
import logging
from collections import Counter
from collections.abc import Mapping, Sequence

from tidelog.cluster.image import ClusterImage, Topic
from tidelog.groups.consumer import records
from tidelog.groups.consumer.assignors import ASSIGNORS, Subscriber
from tidelog.groups.consumer.expression_parser import InvalidExpression
from tidelog.groups.consumer.group import ConsumerGroup
from tidelog.groups.consumer.members import JOIN_EPOCH, Assignment, Member, Subscription
from tidelog.groups.consumer.records import ResolvedRegex
from tidelog.groups.consumer.regular_expressions import topic_pattern
from tidelog.groups.statistics import GroupCounts
from tidelog.replicated.machine import Effects
from tidelog.types import Uuid

logger = logging.getLogger(__name__)

ASSIGN_AT_ONCE_UP_TO = 100
"""In larger groups the assignment waits, so that one assignment covers members that join or leave together."""
ASSIGNMENT_INTERVAL_MS = 1_000
"""Maximum wait. Kafka makes groups of any size wait, for `group.consumer.assignment.interval.ms`."""

MAX_RESOLUTION_WORK = 50_000
"""Work of one step to resolve regular expressions again, about a microsecond each."""
WORK_PER_CHARACTER = 3
"""Of an expression, to parse it."""

UNCOUNTED_VERSION = 0
"""Written as the metadata version against which an expression was resolved: Tidelog does not number its metadata."""


class Draft:
    """Changes of one step to a consumer group, and its state with them."""

    def __init__(self, group: ConsumerGroup, image: ClusterImage, effects: Effects, counts: GroupCounts) -> None:
        self._counts = counts
        self._group = group
        self._image = image
        self._effects = effects
        self._changed: dict[str, Member | None] = {}
        """Members that the step adds, changes or, with None, removes. A copy of all would make joins quadratic."""
        self._targets: dict[str, Assignment | None] = {}
        """Targets that differ from those of the group; None if removed."""
        self._regexes: Mapping[str, ResolvedRegex] = group.regexes
        self._epoch = group.epoch
        self._has_new_subscription = False
        self._is_resolved = True
        self._resolution_work = 0
        self._is_urgent = False
        """The assignment must not wait: a member may own partitions of topics that it no longer subscribes to."""

    # ---- members

    def put_member(self, member: Member, earlier: Member) -> None:
        """Add a member that joined, or update one whose values changed."""
        if member == earlier and self._has_member(member.member_id):
            return
        self._changed[member.member_id] = member
        records.write_member(self._effects, self._group.group_id, member)
        if member.subscription != earlier.subscription:
            self._has_new_subscription = True
            self._is_urgent = bool(earlier.assigned)

    def replace_member(self, old: Member, new: Member) -> None:
        """A static member rejoined with another id and keeps its partitions."""
        target = self.target(old.member_id)
        self.remove_members([old])
        self._changed[new.member_id] = new
        self._targets[new.member_id] = target
        group_id = self._group.group_id
        records.write_member(self._effects, group_id, new)
        records.write_target(self._effects, group_id, new.member_id, target)
        records.write_current_assignment(self._effects, group_id, new)

    def remove_members(self, gone: Sequence[Member]) -> None:
        for member in gone:
            self._changed[member.member_id] = None
            self._targets[member.member_id] = None
            records.erase_member(self._effects, self._group.group_id, member.member_id)

    def _has_member(self, member_id: str) -> bool:
        members: Mapping[str, Member | None] = self._changed if member_id in self._changed else self._group.members
        return members.get(member_id) is not None

    def _member_count(self) -> int:
        members = self._group.members
        return len(members) + sum(
            (member is not None) - (member_id in members) for member_id, member in self._changed.items()
        )

    def _members(self) -> dict[str, Member]:
        merged: dict[str, Member | None] = {**self._group.members, **self._changed}
        return {member_id: member for member_id, member in merged.items() if member is not None}

    def _subscriptions(self) -> set[Subscription]:
        """The different subscriptions of the members."""
        counts = dict(self._group.subscriptions)
        for member_id, member in self._changed.items():
            earlier = self._group.members.get(member_id)
            if earlier is not None:
                counts[earlier.subscription] -= 1
            if member is not None:
                counts[member.subscription] = counts.get(member.subscription, 0) + 1
        return {subscription for subscription, count in counts.items() if count}

    # ---- epochs

    def refresh(self, *, needs_new_epoch: bool = False) -> None:
        """Start a new group epoch if subscriptions or the subscribed topics have changed, or `needs_new_epoch`."""
        topics = self._image.topics
        # A member without topics has joined too, and must not get the epoch of a group without it.
        needs_new_epoch |= self._has_new_subscription or self._epoch == JOIN_EPOCH
        if not needs_new_epoch and self._group.checked_topics is topics:
            return
        subscriptions = self._subscriptions()
        named = {names for names, _ in subscriptions}
        needs_new_epoch |= self._resolve_regexes({expression for _, expression in subscriptions if expression})
        existing = map(self._group.resolutions.at(topics).existing, named)
        subscribed = set().union(*existing, *(resolved.topics for resolved in self._regexes.values()))
        self._group.resolutions.keep(self._regexes.keys(), named)
        metadata_hash = _metadata_hash(topics, subscribed)
        if not needs_new_epoch and metadata_hash == self._group.metadata_hash:
            if self._is_resolved:
                self._group.checked_topics = topics
            return
        self._epoch += 1
        self._counts.consumer_rebalances += 1
        records.write_group_epoch(self._effects, self._group.group_id, self._epoch, metadata_hash)
        logger.debug(
            "started group epoch group=%s epoch=%d members=%d", self._group.group_id, self._epoch, self._member_count()
        )

    def _resolve_regexes(self, used: set[str]) -> bool:
        """Resolve the used regular expressions to topics; True if a result has changed.

        When the topics of the cluster have changed, those of hundreds of members are resolved in several steps.
        """
        resolutions = self._group.resolutions.at(self._image.topics)
        resolved = {}
        for expression in sorted(used):
            if resolutions.is_found(expression) or self._resolution_work < MAX_RESOLUTION_WORK:
                resolved[expression] = self._resolve(expression)
            elif expression in self._regexes:
                self._is_resolved = False  # the next heartbeat goes on
                resolved[expression] = self._regexes[expression]
            else:
                resolved[expression] = self._resolve(expression)
        changed = {
            expression: found
            for expression, found in resolved.items()
            if expression not in self._regexes or self._regexes[expression].topics != found.topics
        }
        for expression, found in changed.items():
            records.write_regex(self._effects, self._group.group_id, expression, found)
        for expression in self._regexes.keys() - used:
            records.erase_regex(self._effects, self._group.group_id, expression)
        self._regexes = {expression: changed.get(expression) or self._regexes[expression] for expression in used}
        return bool(changed)

    def _resolve(self, expression: str) -> ResolvedRegex:
        try:
            topics = self._group.resolutions.find(expression, self._matching)
        except InvalidExpression as error:
            logger.warning(
                "failed to match topics group=%s expression=%r reason=%s", self._group.group_id, expression, error
            )
            return self._regexes.get(expression) or ResolvedRegex(frozenset(), UNCOUNTED_VERSION, self._effects.now_ms)
        return ResolvedRegex(topics, UNCOUNTED_VERSION, self._effects.now_ms)

    def _matching(self, expression: str) -> frozenset[str]:
        self._resolution_work += len(expression) * WORK_PER_CHARACTER + len(self._image.topics)
        pattern = topic_pattern(expression)
        try:
            return pattern.matching(self._image.topics)
        finally:
            self._resolution_work += pattern.work

    # ---- target assignment

    def assign(self, assignors: Sequence[str]) -> int:
        """Compute the target assignment of this epoch if it does not exist. Returns the assignment epoch."""
        group = self._group
        if self._epoch <= group.assignment_epoch or not self._is_due():
            return group.assignment_epoch
        members = self._members()
        subscribers = self._subscribers(members)
        counts = {topic_id: self._partition_count(topic_id) for topic_id in _topics_of(subscribers)}
        targets = ASSIGNORS[assignor_name(members, assignors)](subscribers, counts)
        moved = {
            each.member_id: targets[each.member_id]
            for each in subscribers
            if targets[each.member_id] != each.current or not self._has_target(each.member_id)
        }
        for member_id, target in moved.items():
            records.write_target(self._effects, group.group_id, member_id, target)
        records.write_assignment_epoch(self._effects, group.group_id, self._epoch)
        self._targets.update(moved)
        logger.debug(
            "computed target assignment group=%s epoch=%d members=%d changed=%d partitions=%d",
            group.group_id,
            self._epoch,
            len(targets),
            len(moved),
            sum(counts.values()),
        )
        return self._epoch

    def _is_due(self) -> bool:
        if self._is_urgent or self._member_count() <= ASSIGN_AT_ONCE_UP_TO:
            return True
        # Without abs, a clock that was set back could delay the assignment for long.
        return abs(self._effects.now_ms - self._group.assigned_at_ms) >= ASSIGNMENT_INTERVAL_MS

    def target(self, member_id: str) -> Assignment:
        """Target assignment of a member; empty if it has none."""
        if member_id in self._targets:
            return self._targets[member_id] or {}
        return self._group.targets.get(member_id, {})

    def _has_target(self, member_id: str) -> bool:
        targets: Mapping[str, Assignment | None] = self._targets if member_id in self._targets else self._group.targets
        return targets.get(member_id) is not None

    def _subscribers(self, members: Mapping[str, Member]) -> list[Subscriber]:
        topics_of: dict[Subscription, frozenset[Uuid]] = {}
        subscribers = []
        for member in members.values():
            subscription = member.subscription
            topics = topics_of.get(subscription)
            if topics is None:
                topics = topics_of[subscription] = self._topic_ids(*subscription)
            current = self.target(member.member_id)
            subscribers.append(Subscriber(member.member_id, member.instance_id, topics, current))
        return subscribers

    def _topic_ids(self, names: frozenset[str], expression: str) -> frozenset[Uuid]:
        resolved = self._regexes.get(expression)
        topics = self._image.topics
        wanted = self._group.resolutions.at(topics).existing(names)
        if resolved is not None:
            wanted |= resolved.topics
        return frozenset(topics[name].topic_id for name in wanted if name in topics)

    def _partition_count(self, topic_id: Uuid) -> int:
        topic = self._image.topic_by_id(topic_id)
        return 0 if topic is None else len(topic.partitions)


def assignor_name(members: Mapping[str, Member], assignors: Sequence[str]) -> str:
    """Assignor that most members request; the first configured one if none is requested."""
    requested = [member.server_assignor for member in members.values() if member.server_assignor is not None]
    votes = Counter(name for name in requested if name in assignors) if requested else None
    return votes.most_common(1)[0][0] if votes else assignors[0]


def _topics_of(subscribers: Sequence[Subscriber]) -> set[Uuid]:
    return set().union(*{subscriber.topics for subscriber in subscribers})


def _metadata_hash(topics: Mapping[str, Topic], names: set[str]) -> int:
    """Hash that changes when topics are created, deleted, recreated or get partitions. Its value differs from Kafka's:
    a group that moves between Kafka and Tidelog has one more rebalance, in which nothing moves."""
    existing = sorted(name for name in names if name in topics)
    if not existing:
        return 0
    digest = hashlib.blake2b(digest_size=8)
    for name in existing:
        topic = topics[name]
        digest.update(b"%b%d %b\0" % (topic.topic_id, len(topic.partitions), name.encode()))
    return int.from_bytes(digest.digest(), "big", signed=True)
