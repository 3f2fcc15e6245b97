"""Metadata (API key 3): lists brokers, topics and partition leaders; may create topics automatically."""

from collections.abc import Collection, Container, Coroutine, Iterable, Iterator
from typing import Any

from tidelog.authorization.acls import Operation, ResourceType
from tidelog.cluster.image import BrokerRegistration, ClusterImage, Topic
from tidelog.cluster.topic_names import METADATA_TOPIC, check_topic_name, is_internal
from tidelog.config.listeners import Endpoint
from tidelog.errors import (
    ERRORS_BY_CODE,
    NO_ERROR,
    InvalidRequest,
    KafkaError,
    LeaderNotAvailable,
    TopicAlreadyExists,
    TopicAuthorizationFailed,
    UnknownServerError,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from tidelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tidelog.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tidelog.runtime.deferred import awaited
from tidelog.server.dispatch import RequestContext
from tidelog.server.handlers.create_topics import create_topics_of_brokers
from tidelog.server.response_fields import partition_fields, reachable_brokers
from tidelog.types import NO_BROKER, ZERO_UUID, BrokerId, Uuid

TOPIC_IDS_FROM_VERSION = 12
"""Versions 10 and 11 have the field, but clients must not use it."""

AUTO_CREATION_TIMEOUT_MS = 5000
"""Maximum wait for topics that the request creates. After it the client gets LEADER_NOT_AVAILABLE and retries."""


MANY_TOPICS = 100
"""Requests with more topics are answered in slices."""

ELECTION_WAIT_S = 0.25
"""Maximum wait for the new leader of a requested partition. Other responses on the connection wait behind it."""


def handle_metadata(
    request: MetadataRequest, context: RequestContext
) -> MetadataResponse | Coroutine[Any, Any, MetadataResponse]:
    """Answered at once if no topic must be created and few are requested, as is usual."""
    requested = request.topics or []
    if not all(_is_well_named(topic, context.version) for topic in requested):
        return _rejected(requested)
    if requested and _is_being_elected(request, context):
        return _answer_after_election(request, context)
    return _answer_now(request, context)


def _answer_now(
    request: MetadataRequest, context: RequestContext
) -> MetadataResponse | Coroutine[Any, Any, MetadataResponse]:
    requested = request.topics or []
    known = context.services.cluster.image.topics
    if context.services.authorizer is not None:
        return _find_and_answer(request, context)
    if len(requested or known) > MANY_TOPICS or any(
        topic.name not in known for topic in requested if topic.name is not None
    ):
        return _find_and_answer(request, context)
    return _answer(_find_known(request, context), request, context)


def _is_being_elected(request: MetadataRequest, context: RequestContext) -> bool:
    """Whether a requested partition has a leader whose connection was lost a moment ago."""
    doubted, image = context.services.replicas.suspected_leaders(), context.services.cluster.image
    if not doubted:
        return False
    topic_ids, names = _asked_for(request)
    topics = map(image.topic_by_id, topic_ids) if topic_ids else map(image.topics.get, names)
    return any(each.leader in doubted for topic in topics if topic is not None for each in topic.partitions)


async def _answer_after_election(request: MetadataRequest, context: RequestContext) -> MetadataResponse:
    """Clients ask at once when a leader dies, and librdkafka asks again only after a second: the new leader is worth
    a short wait."""
    await context.services.cluster.wait_until(lambda _: not _is_being_elected(request, context), ELECTION_WAIT_S)
    return await awaited(_answer_now(request, context))


async def _find_and_answer(request: MetadataRequest, context: RequestContext) -> MetadataResponse:
    return _answer(await _find(request, context), request, context)


def _answer(topics: list[MetadataResponseTopic], request: MetadataRequest, context: RequestContext) -> MetadataResponse:
    doubted = context.services.replicas.suspected_leaders()
    if doubted:
        _hide_doubted_leaders(topics, doubted)
    if request.include_topic_authorized_operations:
        _add_operations(topics, context)
    image = context.services.cluster.image
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
            for broker, endpoint in _reachable_brokers(topics, request, context)
        ],
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        topics=topics,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = (
            0
            if context.is_denied(Operation.DESCRIBE, ResourceType.CLUSTER)
            else context.authorized_operations(ResourceType.CLUSTER)
        )
    return response


def _reachable_brokers(
    topics: Iterable[MetadataResponseTopic], request: MetadataRequest, context: RequestContext
) -> Iterator[tuple[BrokerRegistration, Endpoint]]:
    """Live brokers, and those replicas of the requested topics that left a moment ago."""
    services, listener = context.services, context.session.listener
    yield from reachable_brokers(services.cluster.image.brokers.values(), listener)
    if request.topics:  # a list of all topics, or of none, is asked for by tools that want to know who is alive
        replicas = (replica for topic in topics for each in topic.partitions for replica in each.offline_replicas)
        yield from reachable_brokers(services.departed_brokers.among(replicas), listener)


def _hide_doubted_leaders(topics: Iterable[MetadataResponseTopic], doubted: Container[BrokerId]) -> None:
    """A client that gets the same leader again would connect to it, and refresh its metadata only later."""
    for topic in topics:
        for partition in topic.partitions:
            if partition.leader_id in doubted:
                partition.leader_id, partition.error_code = NO_BROKER, LeaderNotAvailable.code


def _is_well_named(topic: MetadataRequestTopic, version: int) -> bool:
    if version < TOPIC_IDS_FROM_VERSION:
        return topic.name is not None and topic.topic_id == ZERO_UUID
    return topic.name is not None or topic.topic_id != ZERO_UUID


def _rejected(requested: list[MetadataRequestTopic]) -> MetadataResponse:
    code = InvalidRequest.code
    return MetadataResponse(
        topics=[
            MetadataResponseTopic(error_code=code, name=topic.name or "", topic_id=topic.topic_id)
            for topic in requested
        ],
        error_code=code,
    )


def _find_known(request: MetadataRequest, context: RequestContext) -> list[MetadataResponseTopic]:
    image = context.services.cluster.image
    if _wants_all(request, context):
        return [_describe(topic, image) for topic in image.topics.values()]
    topic_ids, names = _asked_for(request)
    if topic_ids:
        return [_describe_by_id(topic_id, image, ()) for topic_id in topic_ids]
    return [_describe_by_name(name, image, {}) for name in names]


async def _find(request: MetadataRequest, context: RequestContext) -> list[MetadataResponseTopic]:
    image, each = context.services.cluster.image, context.services.turns.each
    if _wants_all(request, context):
        denied = context.denied(Operation.DESCRIBE, ResourceType.TOPIC, image.topics, is_logged=False)
        return await each(
            [topic for topic in image.topics.values() if topic.name not in denied],
            lambda topic: _describe(topic, image),
        )
    topic_ids, names = _asked_for(request)
    if topic_ids:
        known = (image.topic_names[each] for each in topic_ids if each in image.topic_names)
        denied = context.denied(Operation.DESCRIBE, ResourceType.TOPIC, known)
        return await each(topic_ids, lambda topic_id: _describe_by_id(topic_id, image, denied))
    denied = context.denied(Operation.DESCRIBE, ResourceType.TOPIC, names)
    not_creatable = _denied_creations(request, [name for name in names if name not in denied], context)
    permitted = [name for name in names if name not in denied and name not in not_creatable]
    failures = await _create_missing(permitted, context, may_create=request.allow_auto_topic_creation)
    image = context.services.cluster.image
    return [
        *await each(permitted, lambda name: _describe_by_name(name, image, failures)),
        *(_denied(name, is_internal=is_internal(name)) for name in not_creatable),
        *(_denied(name, is_internal=False) for name in names if name in denied),
    ]


def _denied_creations(request: MetadataRequest, names: Iterable[str], context: RequestContext) -> frozenset[str]:
    """Missing topics that would be created, if the client had the permission on the cluster or the topic."""
    if not request.allow_auto_topic_creation or not context.services.settings.auto_create_topics_enable:
        return frozenset()
    known = context.services.cluster.image.topics
    missing = [name for name in names if name not in known]
    if not missing or not context.is_denied(Operation.CREATE, ResourceType.CLUSTER, is_logged=False):
        return frozenset()
    return context.denied(Operation.CREATE, ResourceType.TOPIC, missing)


def _denied(name: str, *, is_internal: bool) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=TopicAuthorizationFailed.code, name=name, is_internal=is_internal)


def _wants_all(request: MetadataRequest, context: RequestContext) -> bool:
    return request.topics is None or (context.version == 0 and not request.topics)


def _asked_for(request: MetadataRequest) -> tuple[Collection[Uuid], Collection[str]]:
    """Topic ids and names without duplicates. Names are ignored if there are ids."""
    requested = request.topics or []
    topic_ids = dict.fromkeys(topic.topic_id for topic in requested if topic.topic_id != ZERO_UUID)
    return topic_ids, dict.fromkeys(topic.name for topic in requested if topic.name is not None)


def _add_operations(topics: Iterable[MetadataResponseTopic], context: RequestContext) -> None:
    for topic in topics:
        if topic.name is not None and topic.error_code != TopicAuthorizationFailed.code:
            topic.topic_authorized_operations = context.authorized_operations(ResourceType.TOPIC, topic.name)


async def _create_missing(names: Iterable[str], context: RequestContext, *, may_create: bool) -> dict[str, KafkaError]:
    """Create missing topics in one request. Returns the error of each topic that still does not exist."""
    missing, failures = await _missing(names, context)
    if not may_create or not context.services.settings.auto_create_topics_enable:
        return failures | dict.fromkeys(missing, UnknownTopicOrPartition())
    not_creatable = [name for name in missing if not _may_be_created(name, context)]
    failures |= {name: UnknownTopicOrPartition() for name in not_creatable}
    topics = [_creatable(name, context) for name in missing if name not in not_creatable]
    if topics:
        # Accepted in any case: the client pauses after them, as in Kafka.
        default = context.services.settings.num_partitions
        count = sum(topic.num_partitions if topic.num_partitions > 0 else default for topic in topics)
        context.accepts_mutations(count, is_strict=False)
        request = CreateTopicsRequest(topics=topics, timeout_ms=AUTO_CREATION_TIMEOUT_MS)
        for result in (await create_topics_of_brokers(request, context.services, context.client_id)).topics:
            error = ERRORS_BY_CODE.get(result.error_code, UnknownServerError)(result.error_message or "")
            if result.error_code != NO_ERROR and not _may_exist_soon(error):
                failures[result.name] = error
    return failures


def _may_be_created(name: str, context: RequestContext) -> bool:
    """Internal topics can be created with the configs of coordinators only."""
    if name == METADATA_TOPIC:
        return False
    return not is_internal(name) or context.services.internal_topics.creatable_topic(name) is not None


def _creatable(name: str, context: RequestContext) -> CreatableTopic:
    """A topic with the cluster's defaults; an internal topic with the configs of its coordinator."""
    internal = context.services.internal_topics.creatable_topic(name)
    return internal or CreatableTopic(name=name, num_partitions=-1, replication_factor=-1)


def _may_exist_soon(error: KafkaError) -> bool:
    return error.retriable or isinstance(error, TopicAlreadyExists)


async def _missing(names: Iterable[str], context: RequestContext) -> tuple[list[str], dict[str, KafkaError]]:
    """Missing topics with a valid name, and the errors of invalid names."""
    known = context.services.cluster.image.topics
    unknown = [name for name in names if name not in known]
    rejections = await context.services.turns.each(unknown, _rejection_of_name)
    failures = {name: error for name, error in zip(unknown, rejections, strict=True) if error is not None}
    return [name for name in unknown if name not in failures], failures


def _rejection_of_name(name: str) -> KafkaError | None:
    try:
        check_topic_name(name)
    except KafkaError as error:
        return error.as_value()
    return None


def _describe_by_id(topic_id: Uuid, image: ClusterImage, denied: Container[str]) -> MetadataResponseTopic:
    """The response has no name if the client may not describe the topic; the client knows the id already."""
    topic = image.topic_by_id(topic_id)
    if topic is None or topic.name in denied:
        error = UnknownTopicId if topic is None else TopicAuthorizationFailed
        return MetadataResponseTopic(error_code=error.code, name=None, topic_id=topic_id)
    return _describe(topic, image)


def _describe_by_name(name: str, image: ClusterImage, failures: dict[str, KafkaError]) -> MetadataResponseTopic:
    topic = image.topics.get(name)
    if topic is not None:
        return _describe(topic, image)
    # All clients retry after LEADER_NOT_AVAILABLE, but not after every retriable error of CreateTopics.
    error = failures.get(name) or LeaderNotAvailable()
    return MetadataResponseTopic(error_code=error.code, name=name, is_internal=is_internal(name))


def _describe(topic: Topic, image: ClusterImage) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=NO_ERROR,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=is_internal(topic.name),
        partitions=[MetadataResponsePartition(**partition_fields(each, image)) for each in topic.partitions],
    )
