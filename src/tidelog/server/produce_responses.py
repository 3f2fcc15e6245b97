"""Produce responses of appends that failed."""

from tidelog.errors import NO_ERROR, KafkaError, RecordsRejected
from tidelog.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tidelog.runtime.network import Channel


def failed(index: int, error: KafkaError, log_start_offset: int = -1) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index,
        error_code=error.code,
        base_offset=-1,
        log_append_time_ms=-1,
        log_start_offset=log_start_offset,
        record_errors=_record_errors(error),
        error_message=error.message,
    )


def _record_errors(error: KafkaError) -> list[BatchIndexAndErrorMessage]:
    """KIP-467: names the invalid records, so that a producer can drop just these."""
    blamed = error.record_errors if isinstance(error, RecordsRejected) else ()
    return [BatchIndexAndErrorMessage(record.batch_index, record.message) for record in blamed]


def rejected(request: ProduceRequest, error: KafkaError) -> ProduceResponse:
    """The same error for every partition."""
    return ProduceResponse(
        [
            TopicProduceResponse(
                topic.name, topic.topic_id, [failed(data.index, error) for data in topic.partition_data]
            )
            for topic in request.topic_data
        ]
    )


def close_if_failed(response: ProduceResponse, channel: Channel) -> None:
    """With acks=0 a client learns of a failure only by a closed connection."""
    for topic in response.responses:
        for partition in topic.partition_responses:
            if partition.error_code != NO_ERROR:
                channel.close(f"acks=0 and the append failed: {partition.error_message}")
                return
