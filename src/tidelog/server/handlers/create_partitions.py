"""CreatePartitions (API key 37): adds partitions to topics."""

from collections import Counter

from tidelog.authorization.acls import Operation, ResourceType
from tidelog.controller.topic_validation import MorePartitions
from tidelog.controller.topics import TopicOutcome
from tidelog.errors import NO_ERROR, KafkaError, RequestTimedOut, ThrottlingQuotaExceeded, TopicAuthorizationFailed
from tidelog.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from tidelog.server.dispatch import RequestContext
from tidelog.server.forwarding import (
    forward_unless_controller,
    has_leaders,
    wait_briefly_until_applied,
    wait_until_applied,
)
from tidelog.server.response_fields import error_fields
from tidelog.server.services import Services

STRICT_QUOTA_FROM_VERSION = 3


async def handle_create_partitions(
    request: CreatePartitionsRequest, context: RequestContext
) -> CreatePartitionsResponse:
    if context.services.authorizer is None or context.is_forwarded:
        return await _create_within_quota(request, context)
    names = Counter(topic.name for topic in request.topics)
    # A name that is given twice is refused as such.
    denied = context.denied(Operation.ALTER, ResourceType.TOPIC, (name for name in names if names[name] == 1))
    request.topics = [topic for topic in request.topics if topic.name not in denied]
    response = await _create_within_quota(request, context) if request.topics else CreatePartitionsResponse()
    error = TopicAuthorizationFailed()
    response.results += [CreatePartitionsTopicResult(name=name, **error_fields(error)) for name in sorted(denied)]
    return response


async def _create_within_quota(request: CreatePartitionsRequest, context: RequestContext) -> CreatePartitionsResponse:
    known, is_strict = context.services.cluster.image.topics, context.version >= STRICT_QUOTA_FROM_VERSION
    accepted: list[CreatePartitionsTopic] = []
    exceeding: list[CreatePartitionsTopic] = []
    for topic in request.topics:
        count = topic.count - len(known[topic.name].partitions) if topic.name in known else 0
        is_accepted = count <= 0 or context.accepts_mutations(count, is_strict=is_strict)
        (accepted if is_accepted else exceeding).append(topic)
    request.topics = accepted
    response = await _create(request, context) if accepted or not exceeding else CreatePartitionsResponse()
    error = ThrottlingQuotaExceeded()
    response.results += [CreatePartitionsTopicResult(name=topic.name, **error_fields(error)) for topic in exceeding]
    return response


async def _create(request: CreatePartitionsRequest, context: RequestContext) -> CreatePartitionsResponse:
    services = context.services
    try:
        response = await forward_unless_controller(
            services, context.client_id, request, CreatePartitionsResponse, request.timeout_ms
        )
        if response is None:
            return await _create_here(request, services)
    except KafkaError as error:
        names = dict.fromkeys(topic.name for topic in request.topics)
        return CreatePartitionsResponse(
            results=[CreatePartitionsTopicResult(name=name, **error_fields(error)) for name in names]
        )
    if not request.validate_only:
        await _wait_for_new_partitions(request, response, services)
    return response


async def _wait_for_new_partitions(
    request: CreatePartitionsRequest, response: CreatePartitionsResponse, services: Services
) -> None:
    grown = {result.name for result in response.results if result.error_code == NO_ERROR}
    counts = {topic.name: topic.count for topic in request.topics if topic.name in grown}
    await wait_briefly_until_applied(
        services,
        lambda image: all(
            name in image.topics and len(image.topics[name].partitions) >= count for name, count in counts.items()
        ),
    )


async def _create_here(request: CreatePartitionsRequest, services: Services) -> CreatePartitionsResponse:
    new_partitions = [
        MorePartitions(
            topic.name,
            topic.count,
            None if topic.assignments is None else [tuple(given.broker_ids) for given in topic.assignments],
        )
        for topic in request.topics
    ]
    outcomes = await services.membership.topics.create_partitions(new_partitions, validate_only=request.validate_only)
    grown = [outcome.topic for outcome in outcomes if outcome.topic is not None and outcome.error is None]
    if grown and not request.validate_only:
        await wait_until_applied(
            services, lambda image: all(has_leaders(image, topic) for topic in grown), request.timeout_ms
        )
        return CreatePartitionsResponse(
            results=[_result(outcome, _error(outcome, services, request.timeout_ms)) for outcome in outcomes]
        )
    return CreatePartitionsResponse(results=[_result(outcome, outcome.error) for outcome in outcomes])


def _error(outcome: TopicOutcome, services: Services, timeout_ms: int) -> KafkaError | None:
    if outcome.topic is None or outcome.error is not None:
        return outcome.error
    if timeout_ms > 0 and has_leaders(services.cluster.image, outcome.topic):
        return None
    return RequestTimedOut(f"the new partitions of '{outcome.name}' are not ready yet")


def _result(outcome: TopicOutcome, error: KafkaError | None) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(name=outcome.name, **error_fields(error))
