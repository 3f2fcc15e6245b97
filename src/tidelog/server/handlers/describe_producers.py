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


async def handle_describe_producers(
    request: DescribeProducersRequest, context: RequestContext
) -> DescribeProducersResponse:
    each = context.services.turns.each
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=await each(
                    dict.fromkeys(topic.partition_indexes),
                    lambda index, name=topic.name: _describe(name, index, context),  # type: ignore[misc]
                ),
            )
            for topic in request.topics
        ]
    )


def _describe(topic: str, index: int, context: RequestContext) -> PartitionResponse:
    try:
        check_topic_name(topic)
        if context.is_denied(Operation.READ, ResourceType.TOPIC, topic):
            raise TopicAuthorizationFailed
        partition = context.services.partition(topic, index)
    except KafkaError as error:
        return PartitionResponse(partition_index=index, **error_fields(error))
    return PartitionResponse(
        partition_index=index,
        error_code=NO_ERROR,
        active_producers=[
            ProducerState(
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.last_timestamp,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=producer.transaction_first_offset,
            )
            for producer in partition.log.producers.by_id.values()
        ],
    )
