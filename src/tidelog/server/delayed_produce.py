"""Delayed produce: the response of acks=all waits until every append is committed, or can no longer be (R14)."""

from tidelog.protocol.messages.produce import PartitionProduceResponse, ProduceRequest, ProduceResponse
from tidelog.replication.partition import Partition
from tidelog.runtime.deferred import Deferred
from tidelog.runtime.delayed_reply import DelayedReply
from tidelog.runtime.purgatory import Watchers
from tidelog.server.commit_waits import CommitWait
from tidelog.server.dispatch import RequestContext
from tidelog.server.leader_hints import add_leaders_to_produce


class AppendWait(CommitWait):
    """An acks=all append with its response."""

    __slots__ = ("response",)

    def __init__(self, partition: Partition, end_offset: int, response: PartitionProduceResponse) -> None:
        super().__init__(partition, end_offset)
        self.response = response


def end_waits(waits: list[AppendWait]) -> None:
    """Put an error into the response of each append that is not committed."""
    for wait in waits:
        error = wait.failure()
        if error is not None:
            wait.response.error_code = error.code
            wait.response.error_message = error.message
            wait.response.base_offset = -1


class DelayedProduce(DelayedReply[ProduceResponse]):
    """One acks=all request with its appends (Kafka: DelayedProduce)."""

    __slots__ = ("_context", "_response", "_unreplicated", "_waits")

    kind = "Produce"

    def __init__(self, waits: list[AppendWait], response: ProduceResponse, context: RequestContext) -> None:
        super().__init__()
        self._context = context
        self._waits = waits
        self._unreplicated = list(waits)
        self._response = response

    def is_satisfied(self, changed: Watchers) -> bool:
        waits = self._unreplicated
        while waits and waits[-1].is_committed:
            waits.pop()  # committed stays committed: do not check thousands of partitions at every change
        return all(wait.is_over() for wait in waits)

    def on_completed(self) -> None:
        end_waits(self._waits)
        add_leaders_to_produce(self._response, self._context)
        self.reply.resolve(self._response)


def wait_for_replication(
    request: ProduceRequest, response: ProduceResponse, waits: list[AppendWait], context: RequestContext
) -> Deferred[ProduceResponse]:
    watched = [wait.partition.watchers for wait in waits]
    operation = DelayedProduce(waits, response, context)
    return operation.wait_in(context.services.purgatory, watched, request.timeout_ms / 1000)
