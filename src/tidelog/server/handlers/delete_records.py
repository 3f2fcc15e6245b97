"""DeleteRecords (API key 21): deletes records before an offset, and answers when all live replicas have done so."""

from tidelog.authorization.acls import Operation, ResourceType
from tidelog.cluster.topic_names import is_internal
from tidelog.errors import NO_ERROR, InvalidTopic, KafkaError, RequestTimedOut, TopicAuthorizationFailed
from tidelog.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from tidelog.replication.partition import Partition
from tidelog.runtime.deferred import Deferred
from tidelog.runtime.delayed_reply import DelayedReply
from tidelog.runtime.purgatory import Watchers
from tidelog.server.dispatch import RequestContext


def handle_delete_records(
    request: DeleteRecordsRequest, context: RequestContext
) -> DeleteRecordsResponse | Deferred[DeleteRecordsResponse]:
    waits: list[_Wait] = []
    response = DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                # If a partition is named twice, the last offset wins.
                partitions=[
                    _delete(topic.name, requested, context, waits)
                    for requested in {requested.partition_index: requested for requested in topic.partitions}.values()
                ],
            )
            for topic in request.topics
        ]
    )
    if all(wait.is_over() for wait in waits):
        return response
    watched = [wait.partition.low_watermark_watchers for wait in waits]
    operation = DelayedDeleteRecords(waits, response)
    return operation.wait_in(context.services.purgatory, watched, max(request.timeout_ms, 0) / 1000)


def _delete(
    topic: str, requested: DeleteRecordsPartition, context: RequestContext, waits: list["_Wait"]
) -> DeleteRecordsPartitionResult:
    result = DeleteRecordsPartitionResult(partition_index=requested.partition_index, low_watermark=-1)
    try:
        if context.is_denied(Operation.DELETE, ResourceType.TOPIC, topic):
            raise TopicAuthorizationFailed
        partition = context.services.partition(topic, requested.partition_index)
        if is_internal(topic):
            raise InvalidTopic(f"{topic} is internal: only brokers delete from it")
        target = partition.delete_records_before(requested.offset)
        result.low_watermark = partition.low_watermark()
    except KafkaError as error:
        result.error_code = error.code
    else:
        result.error_code = RequestTimedOut.code  # replaced if the wait ends in time
        waits.append(_Wait(partition, target, result))
    return result


class _Wait:
    """One partition whose followers have not advanced their log start offset yet."""

    __slots__ = ("offset", "partition", "result")

    def __init__(self, partition: Partition, offset: int, result: DeleteRecordsPartitionResult) -> None:
        self.partition = partition
        self.offset = offset
        self.result = result

    def is_over(self) -> bool:
        if self.result.error_code != RequestTimedOut.code:
            return True
        try:
            low_watermark = self.partition.low_watermark()
        except KafkaError as error:
            self.result.error_code, self.result.low_watermark = error.code, -1
            return True
        if low_watermark < self.offset:
            return False
        self.result.error_code, self.result.low_watermark = NO_ERROR, low_watermark
        return True


class DelayedDeleteRecords(DelayedReply[DeleteRecordsResponse]):
    """Delays the response until the low watermark of every partition has reached its offset."""

    __slots__ = ("_response", "_waits")

    kind = "DeleteRecords"

    def __init__(self, waits: list[_Wait], response: DeleteRecordsResponse) -> None:
        super().__init__()
        self._waits = waits
        self._response = response

    def is_satisfied(self, changed: Watchers) -> bool:
        return all(wait.is_over() for wait in self._waits)

    def on_completed(self) -> None:
        for wait in self._waits:
            wait.is_over()  # some may be done, though others timed out
        self.reply.resolve(self._response)
