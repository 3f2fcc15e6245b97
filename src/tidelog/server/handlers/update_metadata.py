"""UpdateMetadata (API key 6): the broker updates its metadata cache with the state that the controller sends."""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from tidelog.cluster.image import BrokerRegistration, ClusterImage, PartitionRegistration, Topic
from tidelog.config.listeners import PROTOCOL_NUMBERS, Endpoint
from tidelog.controller.request_batch import LEADER_DURING_DELETE, WHOLE_CLUSTER
from tidelog.errors import KafkaError
from tidelog.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
    UpdateMetadataTopicState,
)
from tidelog.server.control_plane import Sender, check_partition
from tidelog.server.dispatch import RequestContext
from tidelog.types import NO_BROKER, NO_LEADER_EPOCH, BrokerId

logger = logging.getLogger(__name__)

TopicConfigs: TypeAlias = Callable[[str], Mapping[str, str]]

_PROTOCOL_NAMES = {number: name for name, number in PROTOCOL_NUMBERS.items()}


async def handle_update_metadata(request: UpdateMetadataRequest, context: RequestContext) -> UpdateMetadataResponse:
    sender = Sender(request.controller_id, request.controller_epoch, request.broker_epoch)
    request.topic_states = list(filter(_is_possible, request.topic_states))
    topics = [(topic.topic_name, topic.topic_id) for topic in request.topic_states if not _is_deleted(topic)]
    try:
        context.require_inter_broker_listener()
        await context.services.control_plane.update_image(sender, topics, partial(updated_image, request))
    except KafkaError as error:
        return UpdateMetadataResponse(error_code=error.code)
    context.trust_controller(sender)
    return UpdateMetadataResponse()


def _is_possible(topic: UpdateMetadataTopicState) -> bool:
    """An invalid topic must not keep the others out of the image."""
    indexes = [state.partition_index for state in topic.partition_states] or [0]
    try:
        check_partition(topic.topic_name, min(indexes))
        check_partition(topic.topic_name, max(indexes))
    except KafkaError as error:
        logger.warning("ignored invalid topic from the controller reason=%s", error)
        return False
    return True


def updated_image(request: UpdateMetadataRequest, image: ClusterImage, configs: TopicConfigs) -> ClusterImage:
    """Brokers are replaced as a whole, topics partition by partition. Unchanged parts stay the same object."""
    image = _with_topics(request.topic_states, image, configs)
    if request.type == WHOLE_CLUSTER:
        named = {topic.topic_name for topic in request.topic_states}
        gone = [name for name in image.topics if name not in named]
        image = image.without_topics(*gone) if gone else image
    brokers = _brokers(request.live_brokers)
    if brokers == image.brokers and image.controller_id == request.controller_id:
        return image
    return replace(image, brokers=brokers, controller_id=request.controller_id)


def _with_topics(
    states: Iterable[UpdateMetadataTopicState], image: ClusterImage, configs: TopicConfigs
) -> ClusterImage:
    deleted, changed = [], []
    for state in states:
        earlier = image.topics.get(state.topic_name)
        if earlier is not None and earlier.topic_id != state.topic_id:
            earlier = None
        if not _is_deleted(state):
            changed.append(_topic(state, earlier, configs(state.topic_name)))
        elif earlier is not None:
            deleted.append(state.topic_name)
    image = image.without_topics(*deleted) if deleted else image
    return image.with_topics(*changed) if changed else image


def _is_deleted(topic: UpdateMetadataTopicState) -> bool:
    return any(state.leader == LEADER_DURING_DELETE for state in topic.partition_states)


def _topic(state: UpdateMetadataTopicState, earlier: Topic | None, configs: Mapping[str, str]) -> Topic:
    partitions = [] if earlier is None else list(earlier.partitions)
    for partition in state.partition_states:
        for missing in range(len(partitions), partition.partition_index + 1):
            # A partition that the controller has not sent yet, or could not start.
            partitions.append(PartitionRegistration(missing, (), NO_BROKER, NO_LEADER_EPOCH, ()))
        partitions[partition.partition_index] = _partition(partition)
    return Topic(state.topic_name, state.topic_id, tuple(partitions), configs)


def _partition(state: UpdateMetadataPartitionState) -> PartitionRegistration:
    return PartitionRegistration(
        index=state.partition_index,
        replicas=tuple(state.replicas),
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        in_sync_replicas=tuple(state.isr),
        controller_epoch=state.controller_epoch,
        version=state.zk_version,
        eligible_leader_replicas=tuple(state.elr),
        last_known_eligible=tuple(state.last_known_elr),
    )


def _brokers(live_brokers: Iterable[UpdateMetadataBroker]) -> dict[BrokerId, BrokerRegistration]:
    return {
        broker.id: BrokerRegistration(
            broker.id,
            tuple(
                Endpoint(
                    endpoint.listener,
                    endpoint.host,
                    endpoint.port,
                    _PROTOCOL_NAMES.get(endpoint.security_protocol, str(endpoint.security_protocol)),
                )
                for endpoint in broker.endpoints
            ),
            broker.rack,
            broker.epoch,
        )
        for broker in live_brokers
    }
