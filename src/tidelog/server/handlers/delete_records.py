"""DeleteRecords: give up everything before an offset."""

from tidelog.cluster.topic_names import is_internal
from tidelog.errors import NO_ERROR, InvalidTopic, KafkaError
from tidelog.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from tidelog.server.dispatch import Call


def handle_delete_records(request: DeleteRecordsRequest, call: Call) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                # Of several offsets for one partition the last counts.
                partitions=[
                    _delete(topic.name, wanted, call)
                    for wanted in {wanted.partition_index: wanted for wanted in topic.partitions}.values()
                ],
            )
            for topic in request.topics
        ]
    )


def _delete(topic: str, wanted: DeleteRecordsPartition, call: Call) -> DeleteRecordsPartitionResult:
    try:
        partition = call.services.replicas.get(topic, wanted.partition_index)
        if is_internal(topic):
            raise InvalidTopic(f"{topic} is internal: only brokers delete from it")
        low_watermark = partition.delete_records_before(wanted.offset)
    except KafkaError as error:
        return DeleteRecordsPartitionResult(
            partition_index=wanted.partition_index, low_watermark=-1, error_code=error.code
        )
    return DeleteRecordsPartitionResult(
        partition_index=wanted.partition_index, low_watermark=low_watermark, error_code=NO_ERROR
    )
