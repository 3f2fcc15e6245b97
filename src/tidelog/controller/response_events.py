"""Conversion of broker responses (LeaderAndIsr, StopReplica, log end queries) into controller events."""

import logging
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tidelog.controller.context import LogEndQuery, LogEndResponse
from tidelog.controller.elections import NO_LOG, UNKNOWN_LOG_END, LogEnd
from tidelog.controller.events import (
    Event,
    LeaderAndIsrResponseReceived,
    LogEndsResponseReceived,
    RejectedReplica,
    TopicDeletionStopReplicaResponseReceived,
)
from tidelog.controller.states import Replica
from tidelog.errors import ERRORS_BY_CODE, NO_ERROR, KafkaStorageError, StaleControllerEpoch, UnknownServerError
from tidelog.protocol.messages.describe_log_dirs import DescribeLogDirsResponse
from tidelog.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from tidelog.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from tidelog.protocol.structs import Response
from tidelog.types import ZERO_UUID, BrokerId, TopicPartition, Uuid

logger = logging.getLogger(__name__)


class QueriedLog(NamedTuple):
    topic_id: Uuid
    query: LogEndQuery


def is_plain_success(request: LeaderAndIsrRequest, response: Response) -> bool:
    """Whether the broker has accepted every partition of the request: cheaper than the event that would say so."""
    assert isinstance(response, LeaderAndIsrResponse)
    accepted: dict[Uuid, set[int]] = {}
    for topic in response.topics:
        if any([each.error_code for each in topic.partition_errors]):  # noqa: C419 - a third of the time
            return False
        accepted.setdefault(topic.topic_id, set()).update([each.partition_index for each in topic.partition_errors])
    return response.error_code == NO_ERROR and all(
        accepted.get(topic.topic_id, set()).issuperset([each.partition_index for each in topic.partition_states])
        for topic in request.topic_states
    )


def leader_and_isr_response_event(broker_id: BrokerId, request: LeaderAndIsrRequest, response: Response) -> Event:
    """Replicas with an offline log directory, healthy replicas, and replicas to send again.

    A replica that is answered with a stale epoch is healthy: the broker has the state already.
    """
    assert isinstance(response, LeaderAndIsrResponse)
    if response.error_code != NO_ERROR:
        _log_rejection("LeaderAndIsr", broker_id, response.error_code)
    errors = {
        (topic.topic_id, each.partition_index): each.error_code
        for topic in response.topics
        for each in topic.partition_errors
    }
    failed, healthy, rejected, codes = set(), set(), set(), {}
    for topic in request.topic_states:
        for state in topic.partition_states:
            replica = Replica(TopicPartition(topic.topic_name, state.partition_index), broker_id)
            code = errors.get((topic.topic_id, state.partition_index), UnknownServerError.code)
            codes[replica.topic_partition] = code
            if code == KafkaStorageError.code:
                failed.add(replica)
            elif code == NO_ERROR:
                healthy.add(replica)
            elif code != StaleControllerEpoch.code:
                rejected.add(RejectedReplica(replica, state.is_new))
    if response.error_code == NO_ERROR:
        _log_errors("LeaderAndIsr", broker_id, codes)
    return LeaderAndIsrResponseReceived(
        broker_id, request.broker_epoch, frozenset(failed), frozenset(healthy), frozenset(rejected)
    )


def stop_replica_response_event(
    broker_id: BrokerId, request: StopReplicaRequest, response: Response, attempt: int
) -> Event | None:
    """Event with the deleted replicas; None if the request only stopped replicas."""
    assert isinstance(response, StopReplicaResponse)
    deletions = set(deletions_in(request))
    if not deletions:
        return None
    if response.error_code != NO_ERROR:
        _log_rejection("StopReplica", broker_id, response.error_code)
        errors = dict.fromkeys(deletions, response.error_code)
    else:
        errors = {
            TopicPartition(each.topic_name, each.partition_index): each.error_code for each in response.partition_errors
        }
        _log_errors("StopReplica", broker_id, errors)
    deleted = frozenset(Replica(each, broker_id) for each in deletions if errors.get(each, NO_ERROR) == NO_ERROR)
    failed = frozenset(Replica(each, broker_id) for each in deletions if errors.get(each) == KafkaStorageError.code)
    rejected = frozenset(Replica(each, broker_id) for each in deletions) - deleted - failed
    return TopicDeletionStopReplicaResponseReceived(attempt, deleted, failed, rejected)


def log_ends_response_event(
    broker_id: BrokerId, logs: Mapping[TopicPartition, QueriedLog], response: Response
) -> Event:
    """Event with the reported log ends. A log that may lie in an offline directory is left out."""
    assert isinstance(response, DescribeLogDirsResponse)
    found = {
        TopicPartition(topic.name, log.partition_index): (topic.topic_id, result.directory_id, log)
        for result in response.results
        for topic in result.topics
        for log in topic.partitions
        if not log.is_future_key  # a copy that is not the replica yet (R30)
    }
    has_directory_ids = any(result.directory_id for result in response.results)
    is_whole = all(result.error_code == NO_ERROR for result in response.results)
    responses: dict[TopicPartition, LogEndResponse] = {}
    for topic_partition, (topic_id, query) in logs.items():
        if not has_directory_ids:
            responses[topic_partition] = LogEndResponse(query, UNKNOWN_LOG_END, None)
            continue
        log_topic_id, directory_id, log = found.get(topic_partition, (ZERO_UUID, None, None))
        is_of_topic = topic_id == log_topic_id or ZERO_UUID in (topic_id, log_topic_id)
        if log is not None and is_of_topic:
            responses[topic_partition] = LogEndResponse(query, LogEnd(log.last_epoch, log.log_end_offset), directory_id)
        elif is_whole:
            responses[topic_partition] = LogEndResponse(query, NO_LOG, None)
    return LogEndsResponseReceived(broker_id, frozenset(responses.items()))


def deletions_in(request: StopReplicaRequest) -> Iterator[TopicPartition]:
    for topic in request.topic_states:
        for partition in topic.partition_states:
            if partition.delete_partition:
                yield TopicPartition(topic.topic_name, partition.partition_index)


def _log_rejection(api: str, broker_id: BrokerId, code: int) -> None:
    logger.warning("broker refused request api=%s broker_id=%d error=%s", api, broker_id, _error_name(code))


def _log_errors(api: str, broker_id: BrokerId, errors: dict[TopicPartition, int]) -> None:
    # For a single partition, a stale epoch means that the broker has the state already.
    expected = (NO_ERROR, StaleControllerEpoch.code)
    failed = {each: code for each, code in errors.items() if code not in expected}
    if failed:
        first, code = next(iter(failed.items()))
        logger.warning(
            "request failed for some partitions api=%s broker_id=%d partitions=%d first=%s error=%s",
            api,
            broker_id,
            len(failed),
            first,
            _error_name(code),
        )


def _error_name(code: int) -> str:
    error = ERRORS_BY_CODE.get(code)
    return str(code) if error is None else error.__name__
