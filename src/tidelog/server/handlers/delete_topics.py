"""DeleteTopics (API key 20): deletes topics by name or id."""

from tidelog.authorization.acls import Operation, ResourceType
from tidelog.cluster.image import ClusterImage
from tidelog.controller.topics import TopicOutcome
from tidelog.errors import (
    NO_ERROR,
    InvalidRequest,
    KafkaError,
    RequestTimedOut,
    ThrottlingQuotaExceeded,
    TopicAuthorizationFailed,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from tidelog.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from tidelog.server.dispatch import RequestContext
from tidelog.server.forwarding import forward_unless_controller, wait_briefly_until_applied, wait_until_applied
from tidelog.server.response_fields import error_fields
from tidelog.server.services import Services
from tidelog.types import ZERO_UUID, Uuid

TOPIC_IDS_FROM_VERSION = 6
STRICT_QUOTA_FROM_VERSION = 5


async def handle_delete_topics(request: DeleteTopicsRequest, context: RequestContext) -> DeleteTopicsResponse:
    topics = request.topics
    if context.version < TOPIC_IDS_FROM_VERSION:
        topics = [DeleteTopicState(name=name) for name in request.topic_names]
    rejected = [_rejection(topic) for topic in topics if not _is_well_named(topic)]
    named = [topic for topic in topics if _is_well_named(topic)]
    if context.services.authorizer is not None and not context.is_forwarded:
        named, denied = _divide_by_permission(named, context)
        rejected += denied
    named, exceeding = _divide_by_quota(named, context)
    rejected += exceeding
    results = await _delete(named, request.timeout_ms, context) if named else []
    return DeleteTopicsResponse(responses=[*rejected, *results])


def _is_well_named(topic: DeleteTopicState) -> bool:
    return (topic.name is None) != (topic.topic_id == ZERO_UUID)


def _divide_by_quota(
    topics: list[DeleteTopicState], context: RequestContext
) -> tuple[list[DeleteTopicState], list[DeletableTopicResult]]:
    image, is_strict = context.services.cluster.image, context.version >= STRICT_QUOTA_FROM_VERSION
    accepted, exceeding = [], []
    for topic in topics:
        found = image.topic_by_id(topic.topic_id) if topic.name is None else image.topics.get(topic.name)
        if found is None or context.accepts_mutations(len(found.partitions), is_strict=is_strict):
            accepted.append(topic)
        else:
            error = ThrottlingQuotaExceeded()
            exceeding.append(DeletableTopicResult(name=found.name, topic_id=topic.topic_id, **error_fields(error)))
    return accepted, exceeding


def _divide_by_permission(
    topics: list[DeleteTopicState], context: RequestContext
) -> tuple[list[DeleteTopicState], list[DeletableTopicResult]]:
    """Topics that the client may delete, and the answers for the others.

    An id that is unknown here is not passed on: the controller might know it, and asks for no permission.
    """
    image = context.services.cluster.image
    permitted, rejected = [], []
    for topic in topics:
        name = topic.name if topic.name is not None else image.topic_names.get(topic.topic_id)
        error: type[KafkaError] = TopicAuthorizationFailed
        if name is None:
            error = UnknownTopicId
        elif not context.is_denied(Operation.DELETE, ResourceType.TOPIC, name):
            permitted.append(topic)
            continue
        elif topic.name is None and context.is_denied(Operation.DESCRIBE, ResourceType.TOPIC, name, is_logged=False):
            name = None
        elif name not in image.topics and not context.is_denied(
            Operation.DESCRIBE, ResourceType.TOPIC, name, is_logged=False
        ):
            error = UnknownTopicOrPartition
        rejected.append(DeletableTopicResult(name=name, topic_id=topic.topic_id, **error_fields(error())))
    return permitted, rejected


def _rejection(topic: DeleteTopicState) -> DeletableTopicResult:
    message = (
        "Neither topic name nor id were specified."
        if topic.name is None
        else "You may not specify both topic name and topic id."
    )
    return DeletableTopicResult(name=topic.name, topic_id=topic.topic_id, **error_fields(InvalidRequest(message)))


async def _delete(
    topics: list[DeleteTopicState], timeout_ms: int, context: RequestContext
) -> list[DeletableTopicResult]:
    services = context.services
    request = DeleteTopicsRequest(topics=topics, timeout_ms=timeout_ms)
    try:
        response = await forward_unless_controller(
            services, context.client_id, request, DeleteTopicsResponse, timeout_ms
        )
        if response is None:
            return await _delete_here(topics, timeout_ms, services)
    except KafkaError as error:
        return [
            DeletableTopicResult(name=topic.name, topic_id=topic.topic_id, **error_fields(error)) for topic in topics
        ]
    gone = [result.topic_id for result in response.responses if result.error_code == NO_ERROR]
    await wait_briefly_until_applied(
        services, lambda image: not any(topic_id in image.topic_names for topic_id in gone)
    )
    return response.responses


async def _delete_here(
    topics: list[DeleteTopicState], timeout_ms: int, services: Services
) -> list[DeletableTopicResult]:
    names_or_ids: list[str | Uuid] = [topic.topic_id if topic.name is None else topic.name for topic in topics]
    outcomes = await services.membership.topics.delete_topics(names_or_ids)
    deleted = [outcome.topic_id for outcome in outcomes if outcome.error is None]

    def are_gone(image: ClusterImage) -> bool:
        return not any(topic_id in image.topic_names for topic_id in deleted)

    if deleted and not await wait_until_applied(services, are_gone, timeout_ms):
        known = services.cluster.image.topic_names if timeout_ms > 0 else set(deleted)
        outcomes = [
            outcome._replace(error=RequestTimedOut(f"'{outcome.name}' is being deleted"))
            if outcome.error is None and outcome.topic_id in known
            else outcome
            for outcome in outcomes
        ]
    # A client that recreates the topic at once should find its name free, unless brokers are down.
    names = [outcome.name for outcome in outcomes if outcome.error is None]
    await services.membership.controller.wait_for_deletions(names, timeout_ms / 1000)
    return [_result(outcome) for outcome in outcomes]


def _result(outcome: TopicOutcome) -> DeletableTopicResult:
    is_unknown_id = not outcome.name and outcome.topic_id != ZERO_UUID
    return DeletableTopicResult(
        name=None if is_unknown_id else outcome.name, topic_id=outcome.topic_id, **error_fields(outcome.error)
    )
