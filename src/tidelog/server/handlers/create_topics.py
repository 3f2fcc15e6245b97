"""CreateTopics (API key 19): creates topics on the controller, with the cluster's defaults for missing values."""

from collections import Counter
from collections.abc import Container, Mapping

from tidelog.authorization.acls import Operation, ResourceType
from tidelog.cluster.topic_names import is_internal, prohibited_creation
from tidelog.config.resolution import ConfigSource, describe_topic
from tidelog.controller.topic_validation import NewTopic
from tidelog.controller.topics import TopicOutcome
from tidelog.errors import NO_ERROR, KafkaError, RequestTimedOut, ThrottlingQuotaExceeded, TopicAuthorizationFailed
from tidelog.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.server.dispatch import RequestContext
from tidelog.server.forwarding import (
    add_broker_identity,
    forward_unless_controller,
    has_leaders,
    wait_briefly_until_applied,
    wait_until_applied,
)
from tidelog.server.rack_warnings import warn_of_shared_racks
from tidelog.server.response_fields import error_fields
from tidelog.server.services import Services
from tidelog.types import NO_BROKER

STRICT_QUOTA_FROM_VERSION = 6
MAX_TOPICS_WITH_SETTINGS = 1000
"""Responses with more topics leave out the configs, which are encoded for each topic: DescribeConfigs has them."""


async def handle_create_topics(request: CreateTopicsRequest, context: RequestContext) -> CreateTopicsResponse:
    """Internal topics are created by brokers only, when coordinators need them."""
    if context.is_from_broker(request.broker_id, request.broker_epoch):
        return await create_topics(request, context.services, context.client_id)
    request.broker_id = NO_BROKER
    if context.services.authorizer is not None and not context.is_forwarded:
        return await _create_permitted(request, context)
    return await _create_within_quota(request, context)


async def _create_permitted(request: CreateTopicsRequest, context: RequestContext) -> CreateTopicsResponse:
    names = Counter(topic.name for topic in request.topics)
    denied: Container[str] = ()
    if context.is_denied(Operation.CREATE, ResourceType.CLUSTER, is_logged=False):
        # A name that is given twice is refused as such.
        denied = context.denied(Operation.CREATE, ResourceType.TOPIC, (name for name in names if names[name] == 1))
    hidden = context.denied(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, names, is_logged=False)
    request.topics = [topic for topic in request.topics if topic.name not in denied]
    response = await _create_within_quota(request, context) if request.topics else CreateTopicsResponse()
    for result in response.topics:
        if result.name in hidden and result.error_code == NO_ERROR:
            _hide_configs(result)
    error = TopicAuthorizationFailed("Authorization failed.")
    response.topics += [_rejected(name, error) for name in names if name in denied]
    return response


def _hide_configs(result: CreatableTopicResult) -> None:
    result.num_partitions = result.replication_factor = -1
    result.configs, result.topic_config_error_code = [], TopicAuthorizationFailed.code


async def _create_within_quota(request: CreateTopicsRequest, context: RequestContext) -> CreateTopicsResponse:
    is_strict = context.version >= STRICT_QUOTA_FROM_VERSION
    default = context.services.settings.num_partitions
    accepted: list[CreatableTopic] = []
    exceeding: list[CreatableTopic] = []
    for topic in request.topics:
        count = len(topic.assignments) or (topic.num_partitions if topic.num_partitions > 0 else default)
        (accepted if context.accepts_mutations(count, is_strict=is_strict) else exceeding).append(topic)
    request.topics = accepted
    response = await _create_for_client(request, context) if accepted or not exceeding else CreateTopicsResponse()
    response.topics += [_rejected(topic.name, ThrottlingQuotaExceeded()) for topic in exceeding]
    return response


async def _create_for_client(request: CreateTopicsRequest, context: RequestContext) -> CreateTopicsResponse:
    existing = context.services.cluster.image.topics
    prohibited = {topic.name for topic in request.topics if is_internal(topic.name) and topic.name not in existing}
    if not prohibited:
        return await create_topics(request, context.services, context.client_id)
    request.topics = [topic for topic in request.topics if topic.name not in prohibited]
    response = CreateTopicsResponse()
    if request.topics:
        response = await create_topics(request, context.services, context.client_id)
    response.topics += [_rejected(name, prohibited_creation(name)) for name in sorted(prohibited)]
    return response


async def create_topics_of_brokers(
    request: CreateTopicsRequest, services: Services, client_id: str | None = None
) -> CreateTopicsResponse:
    """Topics that a broker creates itself: internal topics and auto-created ones."""
    add_broker_identity(request, services)
    return await create_topics(request, services, client_id)


async def create_topics(
    request: CreateTopicsRequest, services: Services, client_id: str | None
) -> CreateTopicsResponse:
    """Create here if this broker is the controller, else forward."""
    try:
        response = await forward_unless_controller(
            services, client_id, request, CreateTopicsResponse, request.timeout_ms
        )
        if response is None:
            return await _create_here(request, services)
    except KafkaError as error:
        names = dict.fromkeys(topic.name for topic in request.topics)
        return CreateTopicsResponse(topics=[_rejected(name, error) for name in names])
    if not request.validate_only:
        created = [result.name for result in response.topics if result.error_code == NO_ERROR]
        await wait_briefly_until_applied(services, lambda image: all(name in image.topics for name in created))
    return response


async def _create_here(request: CreateTopicsRequest, services: Services) -> CreateTopicsResponse:
    new_topics = [
        NewTopic(
            topic.name,
            topic.num_partitions,
            topic.replication_factor,
            [(assignment.partition_index, tuple(assignment.broker_ids)) for assignment in topic.assignments],
            {config.name: config.value for config in topic.configs},
        )
        for topic in request.topics
    ]
    outcomes = await services.membership.topics.create_topics(new_topics, validate_only=request.validate_only)
    created = [outcome.topic for outcome in outcomes if outcome.topic is not None and outcome.error is None]
    if created and not request.validate_only:
        warn_of_shared_racks(created, services.cluster.image.racks)
        await wait_until_applied(
            services, lambda image: all(has_leaders(image, topic) for topic in created), request.timeout_ms
        )
        outcomes = [_timed_out_unless_applied(outcome, services, request.timeout_ms) for outcome in outcomes]
    # Brokers that create topics themselves do not read the configs, which take most of the time of a large response.
    is_for_client = request.broker_id == NO_BROKER
    configs = _ResponseConfigs(services) if is_for_client and len(outcomes) <= MAX_TOPICS_WITH_SETTINGS else None
    results = await services.turns.each(outcomes, lambda each: _result(each, configs))
    return CreateTopicsResponse(topics=results)


def _timed_out_unless_applied(outcome: TopicOutcome, services: Services, timeout_ms: int) -> TopicOutcome:
    if outcome.topic is None or outcome.error is not None:
        return outcome
    if timeout_ms > 0 and has_leaders(services.cluster.image, outcome.topic):
        return outcome
    return TopicOutcome(outcome.name, error=RequestTimedOut(f"'{outcome.name}' is created, but not ready yet"))


def _rejected(name: str, error: KafkaError | None) -> CreatableTopicResult:
    # Null configs would mean that the client is not authorized to see them.
    return CreatableTopicResult(name=name, configs=[], **error_fields(error))


class _ResponseConfigs:
    """Configs of new topics in the response: dozens per topic, nearly all of them the same for all topics.

    Common configs are created once and shared, so that a response with thousands of topics costs little more.
    """

    def __init__(self, services: Services) -> None:
        cluster = services.cluster
        self._common = [
            CreatableTopicConfigs(
                name=setting.name,
                value=setting.value,
                read_only=setting.is_read_only,
                config_source=setting.source,
                is_sensitive=setting.is_sensitive,
            )
            for setting in describe_topic(cluster.static_settings, cluster.dynamic_configs, {})
        ]

    def of(self, configs: Mapping[str, str]) -> list[CreatableTopicConfigs]:
        if not configs:
            return self._common
        return [
            _topic_config(common, configs[common.name]) if common.name in configs else common for common in self._common
        ]


def _topic_config(common: CreatableTopicConfigs, value: str) -> CreatableTopicConfigs:
    return CreatableTopicConfigs(
        name=common.name,
        value=value,
        read_only=common.read_only,
        config_source=ConfigSource.DYNAMIC_TOPIC_CONFIG,
        is_sensitive=common.is_sensitive,
    )


def _result(outcome: TopicOutcome, configs: _ResponseConfigs | None) -> CreatableTopicResult:
    topic = outcome.topic
    if topic is None:
        return _rejected(outcome.name, outcome.error)
    return CreatableTopicResult(
        name=topic.name,
        topic_id=topic.topic_id,
        error_code=NO_ERROR,
        num_partitions=len(topic.partitions),
        replication_factor=len(topic.partitions[0].replicas),
        configs=[] if configs is None else configs.of(topic.configs),
    )
