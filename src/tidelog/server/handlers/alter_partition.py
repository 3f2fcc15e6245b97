"""AlterPartition (API key 56): the controller changes the ISR for a leader of Apache Kafka (KIP-497)."""

from collections.abc import Mapping

from tidelog.cluster.image import PartitionRegistration
from tidelog.controller.alter_partition import UNKNOWN_EPOCH, ProposedIsr
from tidelog.errors import KafkaError, UnknownTopicId
from tidelog.protocol.messages.alter_partition import (
    AlterPartitionPartition,
    AlterPartitionPartitionResponse,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopicResponse,
)
from tidelog.server.dispatch import RequestContext
from tidelog.types import TopicPartition

TOPIC_ID_WITHOUT_EPOCHS = 2


async def handle_alter_partition(request: AlterPartitionRequest, context: RequestContext) -> AlterPartitionResponse:
    controller = context.services.membership.controller
    names = {topic.topic_id: name for name, topic in controller.context.topics.items()}
    proposals = {
        TopicPartition(names[topic.topic_id], partition.partition_index): _proposed(partition, context.version)
        for topic in request.topics
        if topic.topic_id in names
        for partition in topic.partitions
    }
    try:
        context.require_inter_broker_listener()
        outcomes = await controller.alter_partition(request.broker_id, request.broker_epoch, proposals)
    except KafkaError as error:
        return AlterPartitionResponse(error_code=error.code)
    return AlterPartitionResponse(
        topics=[
            AlterPartitionTopicResponse(
                topic_id=topic.topic_id,
                partitions=[
                    _result(each.partition_index, names.get(topic.topic_id), outcomes) for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _proposed(partition: AlterPartitionPartition, version: int) -> ProposedIsr:
    if version == TOPIC_ID_WITHOUT_EPOCHS:
        in_sync = [(each, UNKNOWN_EPOCH) for each in partition.new_isr]
    else:
        in_sync = [(each.broker_id, each.broker_epoch) for each in partition.new_isr_with_epochs]
    return ProposedIsr(partition.leader_epoch, partition.partition_epoch, tuple(in_sync))


def _result(
    index: int, topic: str | None, outcomes: Mapping[TopicPartition, PartitionRegistration | KafkaError]
) -> AlterPartitionPartitionResponse:
    found = UnknownTopicId() if topic is None else outcomes[TopicPartition(topic, index)]
    if isinstance(found, KafkaError):
        return AlterPartitionPartitionResponse(partition_index=index, error_code=found.code)
    return AlterPartitionPartitionResponse(
        partition_index=index,
        leader_id=found.leader,
        leader_epoch=found.leader_epoch,
        isr=found.in_sync_replicas,
        partition_epoch=found.version,
    )
