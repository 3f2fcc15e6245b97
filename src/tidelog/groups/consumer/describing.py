"""ConsumerGroupDescribe responses."""

from collections.abc import Sequence

from tidelog.cluster.image import ClusterImage
from tidelog.errors import GroupIdNotFound
from tidelog.groups.consumer.drafts import assignor_name
from tidelog.groups.consumer.group import ConsumerGroup
from tidelog.groups.consumer.members import Assignment, Member, partitions_of
from tidelog.groups.group import Group
from tidelog.protocol.messages import consumer_group_describe as messages

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1


def described(
    group_id: str, group: Group | None, assignors: Sequence[str], image: ClusterImage
) -> messages.DescribedGroup:
    if not isinstance(group, ConsumerGroup):
        what = "not found" if group is None else "is not a consumer group"
        missing = GroupIdNotFound(f"Group {group_id} {what}.").message
        return messages.DescribedGroup(group_id=group_id, error_code=GroupIdNotFound.code, error_message=missing)
    return messages.DescribedGroup(
        group_id=group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=assignor_name(group.members, assignors),
        members=[_member(member, group.targets.get(member.member_id, {}), image) for member in group.members.values()],
    )


def _member(member: Member, target: Assignment, image: ClusterImage) -> messages.Member:
    return messages.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topics),
        subscribed_topic_regex=member.subscribed_regex,
        assignment=_assignment(_held(member), image),
        target_assignment=_assignment(target, image),
        member_type=CLASSIC_MEMBER if member.is_classic else CONSUMER_MEMBER,
    )


def _held(member: Member) -> Assignment:
    """Assigned partitions and those pending revocation, as in Kafka 4.3."""
    held = dict(partitions_of(member.assigned))
    for topic_id, partitions in partitions_of(member.revoking).items():
        held[topic_id] = held.get(topic_id, frozenset()) | partitions
    return held


def _assignment(assignment: Assignment, image: ClusterImage) -> messages.Assignment:
    """Deleted topics are left out: they have no name."""
    return messages.Assignment(
        topic_partitions=[
            messages.TopicPartitions(
                topic_id=topic_id, topic_name=image.topic_names[topic_id], partitions=sorted(partitions)
            )
            for topic_id, partitions in assignment.items()
            if topic_id in image.topic_names
        ]
    )
