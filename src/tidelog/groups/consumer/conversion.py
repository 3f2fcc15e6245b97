"""Online upgrade and downgrade between classic and consumer groups (`group.consumer.migration.policy`).

The first member with the new protocol upgrades a classic group of consumers to a consumer group; classic members keep
their partitions. When the last member with the new protocol leaves, the group is downgraded to a classic group.
"""

import logging
from collections.abc import Sequence

from tidelog.cluster.image import ClusterImage
from tidelog.errors import GroupIdNotFound
from tidelog.groups.classic.group import ClassicGroup
from tidelog.groups.classic.member import CONSUMER_PROTOCOL_TYPE
from tidelog.groups.classic.member import ClassicMember as MemberOfClassicGroup
from tidelog.groups.classic.records import write_group
from tidelog.groups.consumer import embedded, records, timers
from tidelog.groups.consumer.group import ConsumerGroup
from tidelog.groups.consumer.members import Assignment, ClassicMember, Member, MemberState
from tidelog.groups.group import GroupSettings
from tidelog.protocol.errors import MalformedMessage
from tidelog.replicated.machine import Effects

logger = logging.getLogger(__name__)

UPGRADES = ("upgrade", "bidirectional")
DOWNGRADES = ("downgrade", "bidirectional")
DISABLED = "disabled"
ASSIGNORS_OF_CLIENTS = ("range", "roundrobin", "sticky", "cooperative-sticky")
"""Assignors whose user data only they can read: librdkafka's sticky assignor, which Kafka refuses."""


# ---- upgrade to a consumer group


def upgrade(classic: ClassicGroup, settings: GroupSettings, image: ClusterImage, effects: Effects) -> ConsumerGroup:
    """The group as a consumer group; its records are written to `effects`."""
    if classic.is_empty:
        classic.write_tombstones(effects)
        logger.info("upgraded empty classic group to consumer group group=%s", classic.group_id)
        return ConsumerGroup(classic.group_id)
    _check_upgrade(classic, settings)
    try:
        group = _consumer_group_of(classic, image)
    except MalformedMessage as error:
        raise GroupIdNotFound(
            f"Cannot upgrade classic group {classic.group_id} to consumer group because "
            "the embedded consumer protocol is malformed."
        ) from error
    classic.write_tombstones(effects)
    _write(group, effects)
    logger.info("upgraded classic group to consumer group group=%s members=%d", classic.group_id, len(group.members))
    return group


def _check_upgrade(classic: ClassicGroup, settings: GroupSettings) -> None:
    rejection = None
    if settings.group_consumer_migration_policy.lower() not in UPGRADES:
        rejection = "online upgrade is disabled."
    elif not classic.is_of_consumers:
        rejection = "the group does not use the consumer embedded protocol."
    elif len(classic.members) > settings.group_consumer_max_size:
        rejection = "the group size exceeds the consumer group maximum size."
    if rejection is not None:
        raise GroupIdNotFound(f"Cannot upgrade classic group {classic.group_id} to consumer group because {rejection}")


def _consumer_group_of(classic: ClassicGroup, image: ClusterImage) -> ConsumerGroup:
    group = ConsumerGroup(classic.group_id)
    group.epoch = group.assignment_epoch = classic.generation
    for member in classic.members.values():
        assignment = _assignment_of(classic, member, image)
        group.targets[member.member_id] = assignment
        group.put_member(_converted(classic, member, assignment))
    return group


def _assignment_of(classic: ClassicGroup, member: MemberOfClassicGroup, image: ClusterImage) -> Assignment:
    assignment = embedded.assignment_of(member.assignment)
    if assignment.user_data and classic.protocol_name not in ASSIGNORS_OF_CLIENTS:
        raise GroupIdNotFound(
            f"Cannot upgrade classic group {classic.group_id} to consumer group because an unsupported custom assignor "
            "is in use. Please refer to the documentation or switch to a default assignor before re-attempting "
            "the upgrade."
        )
    return embedded.by_topic_id(assignment.assigned_partitions, image)


def _converted(classic: ClassicGroup, member: MemberOfClassicGroup, assignment: Assignment) -> Member:
    metadata = member.metadata(classic.protocol_name) or member.protocols[0][1]
    subscription = embedded.subscription_of(metadata)
    epoch = classic.generation
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topics=frozenset(subscription.topics),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicMember(member.session_timeout_ms, member.protocols),
        epoch=epoch,
        previous_epoch=epoch,
        state=MemberState.STABLE,
        assigned={topic_id: dict.fromkeys(partitions, epoch) for topic_id, partitions in assignment.items()},
    )


def _write(group: ConsumerGroup, effects: Effects) -> None:
    for member in group.members.values():
        records.write_member(effects, group.group_id, member)
    records.write_group_epoch(effects, group.group_id, group.epoch, group.metadata_hash)
    for member_id, target in group.targets.items():
        records.write_target(effects, group.group_id, member_id, target)
    records.write_assignment_epoch(effects, group.group_id, group.assignment_epoch)
    for member in group.members.values():
        records.write_current_assignment(effects, group.group_id, member)


# ---- downgrade to a classic group


def may_downgrade(remaining: Sequence[Member], settings: GroupSettings, group_id: str) -> bool:
    """True if no remaining member uses the new protocol and the policy allows a downgrade."""
    if not remaining or not all(member.is_classic for member in remaining):
        return False
    if settings.group_consumer_migration_policy.lower() not in DOWNGRADES:
        logger.info("group stays a consumer group group=%s reason=online downgrade is disabled", group_id)
        return False
    if len(remaining) > settings.group_max_size:
        logger.info("group stays a consumer group group=%s reason=it is larger than group.max.size", group_id)
        return False
    return True


def downgrade(
    group: ConsumerGroup, targets: Sequence[tuple[Member, Assignment]], image: ClusterImage, effects: Effects
) -> None:
    """Write the records of the classic group. Each member keeps its target assignment until it has to rejoin.

    The rebalance starts when the records have been replayed, because only then the classic group exists.
    """
    classic = ClassicGroup(group.group_id, effects.now_ms)
    classic.protocol_type = CONSUMER_PROTOCOL_TYPE
    classic.generation = group.epoch
    for member, _ in targets:
        assert member.classic is not None
        classic.members.add(
            MemberOfClassicGroup(
                member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                session_timeout_ms=member.classic.session_timeout_ms,
                protocols=member.classic.protocols,
            )
        )
    classic.protocol_name = classic.members.select_protocol()
    assignments = {
        member.member_id: embedded.encoded_assignment(
            target, classic.members[member.member_id].metadata(classic.protocol_name), image
        )
        for member, target in targets
    }
    group.write_tombstones(effects)
    write_group(classic, assignments, effects)
    effects.set_timer((timers.OWNER, timers.DOWNGRADED, group.group_id), 0)
    logger.info("downgraded consumer group to classic group group=%s members=%d", group.group_id, len(targets))
