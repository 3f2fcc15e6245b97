"""OffsetForLeaderEpoch (API key 23): returns the end offset of an epoch in the leader's log, for truncation (R27)."""

from collections.abc import Callable, Collection, Coroutine, Iterable
from functools import partial
from itertools import islice
from typing import Any

from tidelog.authorization.acls import Operation, ResourceType
from tidelog.errors import NO_ERROR, KafkaError, TopicAuthorizationFailed
from tidelog.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from tidelog.server.dispatch import RequestContext
from tidelog.server.sliced_requests import MANY
from tidelog.types import BrokerId


def handle_offset_for_leader_epoch(
    request: OffsetForLeaderEpochRequest, context: RequestContext
) -> OffsetForLeaderEpochResponse | Coroutine[Any, Any, OffsetForLeaderEpochResponse]:
    """Of brokers with ClusterAction, of clients with Describe on the topic (KIP-320)."""
    wanted = [(topic.topic, requested) for topic in request.topics for requested in topic.partitions]
    find = partial(_find, request.replica_id, _denied_topics(request, context), context)
    if len(wanted) > MANY:
        return _handle_in_slices(request, wanted, find, context)
    return _response(request, [find(*each) for each in wanted])


def _denied_topics(request: OffsetForLeaderEpochRequest, context: RequestContext) -> Collection[str]:
    if not context.is_denied(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, is_logged=False):
        return ()
    return context.denied(Operation.DESCRIBE, ResourceType.TOPIC, (topic.topic for topic in request.topics))


def _find(
    replica_id: BrokerId,
    denied: Collection[str],
    context: RequestContext,
    topic: str,
    requested: OffsetForLeaderPartition,
) -> EpochEndOffset:
    if topic in denied:
        return EpochEndOffset(partition=requested.partition, error_code=TopicAuthorizationFailed.code)
    return _end_of_epoch(replica_id, topic, requested, context)


async def _handle_in_slices(
    request: OffsetForLeaderEpochRequest,
    wanted: list[tuple[str, OffsetForLeaderPartition]],
    find: Callable[[str, OffsetForLeaderPartition], EpochEndOffset],
    context: RequestContext,
) -> OffsetForLeaderEpochResponse:
    return _response(request, await context.services.turns.each(wanted, lambda each: find(*each)))


def _response(request: OffsetForLeaderEpochRequest, found: Iterable[EpochEndOffset]) -> OffsetForLeaderEpochResponse:
    ends = iter(found)
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(topic=topic.topic, partitions=list(islice(ends, len(topic.partitions))))
            for topic in request.topics
        ]
    )


def _end_of_epoch(
    replica_id: BrokerId, topic: str, requested: OffsetForLeaderPartition, context: RequestContext
) -> EpochEndOffset:
    try:
        if replica_id >= 0:
            context.require_inter_broker_listener()
        partition = context.services.partition(topic, requested.partition)
        partition.require_leader(requested.current_leader_epoch)
        epoch, end_offset = partition.log.end_offset_for_epoch(requested.leader_epoch)
    except KafkaError as error:
        return EpochEndOffset(partition=requested.partition, error_code=error.code)
    return EpochEndOffset(partition=requested.partition, error_code=NO_ERROR, leader_epoch=epoch, end_offset=end_offset)
