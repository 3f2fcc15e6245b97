"""DeleteRecords: give up everything before an offset, on all live replicas."""

from tidelog.cluster.topic_names import is_internal
from tidelog.errors import NO_ERROR, InvalidTopic, KafkaError, RequestTimedOut
from tidelog.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from tidelog.replication.partition import Partition
from tidelog.runtime.deferred import Deferred
from tidelog.runtime.purgatory import DelayedOperation, Watchers
from tidelog.server.dispatch import Call


def handle_delete_records(
    request: DeleteRecordsRequest, call: Call
) -> DeleteRecordsResponse | Deferred[DeleteRecordsResponse]:
    waits: list[_Wait] = []
    response = DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                # Of several offsets for one partition the last counts.
                partitions=[
                    _delete(topic.name, wanted, call, waits)
                    for wanted in {wanted.partition_index: wanted for wanted in topic.partitions}.values()
                ],
            )
            for topic in request.topics
        ]
    )
    if all(wait.is_over() for wait in waits):
        return response
    deferred: Deferred[DeleteRecordsResponse] = Deferred()
    operation = DelayedDeleteRecords(waits, response, deferred)
    deferred.on_abandoned = operation.abandon
    watched = [wait.partition.low_watermark_watchers for wait in waits]
    call.services.purgatory.wait(operation, watched, max(request.timeout_ms, 0) / 1000)
    return deferred


def _delete(
    topic: str, wanted: DeleteRecordsPartition, call: Call, waits: list["_Wait"]
) -> DeleteRecordsPartitionResult:
    result = DeleteRecordsPartitionResult(partition_index=wanted.partition_index, low_watermark=-1)
    try:
        partition = call.services.partition(topic, wanted.partition_index)
        if is_internal(topic):
            raise InvalidTopic(f"{topic} is internal: only brokers delete from it")
        target = partition.delete_records_before(wanted.offset)
        result.low_watermark = partition.low_watermark()
    except KafkaError as error:
        result.error_code = error.code
    else:
        result.error_code = RequestTimedOut.code  # unless it is over in time
        waits.append(_Wait(partition, target, result))
    return result


class _Wait:
    """One partition whose followers have yet to move their log start."""

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


class DelayedDeleteRecords(DelayedOperation):
    """Holds the answer back until every live replica has let go of the records."""

    __slots__ = ("_deferred", "_response", "_waits")

    kind = "DeleteRecords"

    def __init__(
        self, waits: list[_Wait], response: DeleteRecordsResponse, deferred: Deferred[DeleteRecordsResponse]
    ) -> None:
        super().__init__()
        self._waits = waits
        self._response = response
        self._deferred = deferred

    def is_satisfied(self, changed: Watchers) -> bool:
        return all(wait.is_over() for wait in self._waits)

    def on_completed(self) -> None:
        for wait in self._waits:
            wait.is_over()  # some may be, though time is up for others
        self._deferred.resolve(self._response)
