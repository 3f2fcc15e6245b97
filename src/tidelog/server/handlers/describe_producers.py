"""DescribeProducers (API key 61): lists the producer state of partitions."""

from tidelog.authorization.acls import Operation, ResourceType
from tidelog.cluster.topic_names import check_topic_name
from tidelog.errors import NO_ERROR, KafkaError, TopicAuthorizationFailed
from tidelog.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from tidelog.server.dispatch import RequestContext
from tidelog.server.response_fields import error_fields
from tidelog.storage.producer_state import ProducerStateEntry
from tidelog.types import TopicPartition


async def handle_describe_producers(
    request: DescribeProducersRequest, context: RequestContext
) -> DescribeProducersResponse:
    """A partition that is named again is answered once: thousands of producers may have written to it."""
    described: set[TopicPartition] = set()
    topics = []
    for topic in request.topics:
        wanted = [TopicPartition(topic.name, index) for index in dict.fromkeys(topic.partition_indexes)]
        distinct = [each for each in wanted if each not in described]
        described.update(distinct)
        if distinct or not wanted:
            topics.append(
                TopicResponse(name=topic.name, partitions=[await _describe(each, context) for each in distinct])
            )
        await context.services.turns.yield_turn()
    return DescribeProducersResponse(topics=topics)


async def _describe(topic_partition: TopicPartition, context: RequestContext) -> PartitionResponse:
    topic, index = topic_partition
    await context.services.turns.yield_turn()
    try:
        check_topic_name(topic)
        if context.is_denied(Operation.READ, ResourceType.TOPIC, topic):
            raise TopicAuthorizationFailed
        partition = context.services.partition(topic, index)
    except KafkaError as error:
        return PartitionResponse(partition_index=index, **error_fields(error))
    producers = await context.services.turns.each(list(partition.log.producers.by_id.values()), _producer_state)
    return PartitionResponse(partition_index=index, error_code=NO_ERROR, active_producers=producers)


def _producer_state(producer: ProducerStateEntry) -> ProducerState:
    return ProducerState(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        last_sequence=producer.last_sequence,
        last_timestamp=producer.last_timestamp,
        coordinator_epoch=producer.coordinator_epoch,
        current_txn_start_offset=producer.transaction_first_offset,
    )
