"""Produce responses of appends that failed."""

from collections.abc import Sequence

from tidelog.errors import NO_ERROR, KafkaError, NotLeaderOrFollower, RecordsRejected
from tidelog.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tidelog.replication.leader_confirmation import LeaderConfirmation
from tidelog.replication.partition import Partition
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


async def confirm_order(
    unconfirmed: Sequence[tuple[Partition, PartitionProduceResponse]], confirmation: LeaderConfirmation
) -> None:
    """A batch that is out of order here may be in order at another leader, which this broker does not know yet."""
    confirmed = await confirmation.ask_all(partition for partition, _ in unconfirmed)
    for (partition, response), is_leader in zip(unconfirmed, confirmed, strict=True):
        if not is_leader:
            error = NotLeaderOrFollower(f"this broker may not lead {partition.topic_partition} any more")
            response.error_code, response.error_message = error.code, error.message
