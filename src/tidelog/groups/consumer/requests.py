"""Validation of ConsumerGroupHeartbeat, with Kafka's error messages."""

from collections.abc import Sequence

from tidelog.errors import FencedMemberEpoch, InvalidRegularExpression, InvalidRequest, UnsupportedAssignor
from tidelog.groups.consumer.expression_parser import InvalidExpression
from tidelog.groups.consumer.members import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    Assignment,
    Holdings,
    Member,
    assignment_of,
)
from tidelog.groups.consumer.regular_expressions import topic_pattern
from tidelog.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

MEMBER_ID_BY_CLIENT_FROM = 1
NOT_GIVEN = -1
_BLANKS = "".join(map(chr, range(ord(" ") + 1)))


def check_heartbeat(request: ConsumerGroupHeartbeatRequest, api_version: int, assignors: Sequence[str]) -> None:
    """Raises the errors that Kafka returns."""
    _reject(_is_blank(request.group_id), "GroupId can't be empty.")
    _reject(_is_blank(request.instance_id), "InstanceId can't be empty.")
    _reject(_is_blank(request.rack_id), "RackId can't be empty.")
    is_joining = request.member_epoch == JOIN_EPOCH
    if api_version >= MEMBER_ID_BY_CLIENT_FROM or not is_joining:
        _reject(request.member_epoch >= STATIC_LEAVE_EPOCH and _is_blank(request.member_id), "MemberId can't be empty.")
    if is_joining:
        _check_join(request)
    elif request.member_epoch == STATIC_LEAVE_EPOCH:
        _reject(request.instance_id is None, "InstanceId can't be null.")
    _reject(request.member_epoch < STATIC_LEAVE_EPOCH, "MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise UnsupportedAssignor(
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(assignors)}."
        )
    if request.subscribed_topic_regex:
        check_expression(request.subscribed_topic_regex)


def _check_join(request: ConsumerGroupHeartbeatRequest) -> None:
    _reject(request.rebalance_timeout_ms == NOT_GIVEN, "RebalanceTimeoutMs must be provided in first request.")
    _reject(
        request.topic_partitions is None or bool(request.topic_partitions),
        "TopicPartitions must be empty when (re-)joining.",
    )
    _reject(
        request.subscribed_topic_names is None and request.subscribed_topic_regex is None,
        "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
    )


def _is_blank(text: str | None) -> bool:
    """True if the text has only blanks and control characters, as in Java's `trim`."""
    return text is not None and not text.lstrip(_BLANKS)


def _reject(is_wrong: bool, message: str) -> None:
    if is_wrong:
        raise InvalidRequest(message)


def check_expression(expression: str) -> None:
    try:
        topic_pattern(expression)
    except InvalidExpression as error:
        raise InvalidRegularExpression(
            f"SubscribedTopicRegex `{expression}` is not a valid regular expression: {error}."
        ) from error


def owned_partitions(request: ConsumerGroupHeartbeatRequest) -> Assignment | None:
    return None if request.topic_partitions is None else assignment_of(request.topic_partitions)


def is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """True for a full request, which needs a full response: the member joins, or lost a response."""
    return request.member_epoch == JOIN_EPOCH or (
        request.rebalance_timeout_ms != NOT_GIVEN
        and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
        and request.topic_partitions is not None
    )


def is_leaving(request: ConsumerGroupHeartbeatRequest) -> bool:
    return request.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH)


def check_epoch(member: Member, received: int, owned: Assignment | None) -> None:
    """The previous epoch is valid if the member owns only partitions of that epoch: a response was lost."""
    if received > member.epoch:
        raise FencedMemberEpoch(_wrong_epoch("greater", received, member.epoch))
    is_previous = received == member.previous_epoch and _is_subset(owned, member.assigned)
    if received < member.epoch and not is_previous:
        raise FencedMemberEpoch(_wrong_epoch("smaller", received, member.epoch))


def _wrong_epoch(how: str, received: int, existing: int) -> str:
    return (
        f"The consumer group member has a {how} member epoch ({received}) than the one known by the group coordinator "
        f"({existing}). The member must abandon all its partitions and rejoin."
    )


def _is_subset(owned: Assignment | None, assigned: Holdings) -> bool:
    if owned is None:
        return False
    return all(partitions <= assigned.get(topic_id, {}).keys() for topic_id, partitions in owned.items())
