"""Metadata: the brokers of the cluster, and which of them leads what."""

from tidelog.cluster.image import ClusterImage, Partition, Topic
from tidelog.cluster.topic_names import check_topic_name, is_internal
from tidelog.controller.topic_rules import NewTopic
from tidelog.errors import (
    NO_ERROR,
    InvalidRequest,
    KafkaError,
    LeaderNotAvailable,
    TopicAlreadyExists,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from tidelog.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tidelog.server.dispatch import Call
from tidelog.types import NO_BROKER, ZERO_UUID

TOPIC_IDS_FROM_VERSION = 10
NULLABLE_NAMES_FROM_VERSION = 12
AUTO_CREATION_IS_A_CHOICE_FROM_VERSION = 4


async def handle_metadata(request: MetadataRequest, call: Call) -> MetadataResponse:
    cluster = call.services.cluster
    wanted = _wanted(request, call)
    if wanted is None:
        topics = [_describe(topic, cluster.image) for topic in cluster.image.topics.values()]
    else:
        topics = [await _find(topic, request, call) for topic in wanted]
    image = cluster.image
    return MetadataResponse(
        brokers=_brokers(image, call.connection.listener),
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        topics=topics,
    )


def _wanted(request: MetadataRequest, call: Call) -> list[MetadataRequestTopic] | None:
    """None asks for all topics; in version 0 an empty list does."""
    if request.topics is None or (call.version == 0 and not request.topics):
        return None
    return request.topics


def _brokers(image: ClusterImage, listener: str) -> list[MetadataResponseBroker]:
    """Each as it can be reached through the kind of listener that the client came in by."""
    found = []
    for broker in image.brokers.values():
        endpoint = broker.endpoint(listener)
        if endpoint is not None:
            found.append(
                MetadataResponseBroker(node_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
            )
    return found


async def _find(wanted: MetadataRequestTopic, request: MetadataRequest, call: Call) -> MetadataResponseTopic:
    image = call.services.cluster.image
    name = wanted.name
    try:
        if call.version >= TOPIC_IDS_FROM_VERSION and wanted.topic_id != ZERO_UUID:
            if call.version < NULLABLE_NAMES_FROM_VERSION:
                raise InvalidRequest(f"topics can be asked for by id from version {NULLABLE_NAMES_FROM_VERSION} on")
            if wanted.topic_id not in image.topic_names:
                raise UnknownTopicId
            name = image.topic_names[wanted.topic_id]
        if name is None:
            raise InvalidRequest("a topic is asked for by its name or its id")
        topic = image.topics.get(name) or await _create(name, request, call)
    except KafkaError as error:
        return MetadataResponseTopic(
            error_code=error.code,
            name=name if name is not None or call.version >= NULLABLE_NAMES_FROM_VERSION else "",
            topic_id=wanted.topic_id,
            is_internal=is_internal(name or ""),
        )
    return _describe(topic, call.services.cluster.image)


async def _create(name: str, request: MetadataRequest, call: Call) -> Topic:
    check_topic_name(name)
    is_wanted = call.version < AUTO_CREATION_IS_A_CHOICE_FROM_VERSION or request.allow_auto_topic_creation
    if not is_wanted or not call.services.settings.auto_create_topics_enable:
        raise UnknownTopicOrPartition
    (outcome,) = await call.services.create_topics([NewTopic(name)])
    topic = call.services.cluster.image.topics.get(name)
    if topic is None:
        # Where somebody else was faster, the client asks again and finds the topic.
        is_final = outcome.error is not None and not isinstance(outcome.error, TopicAlreadyExists)
        raise outcome.error if is_final and outcome.error else LeaderNotAvailable()
    return topic


def _describe(topic: Topic, image: ClusterImage) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=NO_ERROR,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=is_internal(topic.name),
        partitions=[_describe_partition(partition, image) for partition in topic.partitions],
    )


def _describe_partition(partition: Partition, image: ClusterImage) -> MetadataResponsePartition:
    leader = partition.leader if partition.leader in image.brokers else NO_BROKER
    return MetadataResponsePartition(
        error_code=NO_ERROR if leader != NO_BROKER else LeaderNotAvailable.code,
        partition_index=partition.index,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.in_sync_replicas),
        offline_replicas=[broker for broker in partition.replicas if broker not in image.brokers],
    )
