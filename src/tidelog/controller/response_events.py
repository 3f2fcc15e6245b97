"""What the answers of brokers mean for the controller."""

import logging
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tidelog.controller.context import Answer, Asked
from tidelog.controller.elections import NO_LOG, UNKNOWN_LOG_END, LogEnd
from tidelog.controller.events import (
    Event,
    LeaderAndIsrAnswered,
    LogEndsAnswered,
    RefusedReplica,
    ReplicasDeleted,
)
from tidelog.controller.states import Replica
from tidelog.errors import ERRORS_BY_CODE, NO_ERROR, KafkaStorageError, StaleControllerEpoch, UnknownServerError
from tidelog.protocol.messages.describe_log_dirs import DescribeLogDirsResponse
from tidelog.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from tidelog.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from tidelog.protocol.structs import Response
from tidelog.types import ZERO_UUID, BrokerId, TopicPartition, Uuid

logger = logging.getLogger(__name__)


class AskedLog(NamedTuple):
    topic_id: Uuid
    asked: Asked


def leader_and_isr_answered(broker_id: BrokerId, request: LeaderAndIsrRequest, answer: Response) -> Event:
    """Which replicas have no log directory any more, which have one, and which must be told again.

    A replica whose epoch the broker calls stale is healthy: the broker knew it all already.
    """
    assert isinstance(answer, LeaderAndIsrResponse)
    if answer.error_code != NO_ERROR:
        _log_refusal("LeaderAndIsr", broker_id, answer.error_code)
    errors = {
        (topic.topic_id, each.partition_index): each.error_code
        for topic in answer.topics
        for each in topic.partition_errors
    }
    failed, healthy, refused, told = set(), set(), set(), {}
    for topic in request.topic_states:
        for state in topic.partition_states:
            replica = Replica(TopicPartition(topic.topic_name, state.partition_index), broker_id)
            code = errors.get((topic.topic_id, state.partition_index), UnknownServerError.code)
            told[replica.topic_partition] = code
            if code == KafkaStorageError.code:
                failed.add(replica)
            elif code == NO_ERROR:
                healthy.add(replica)
            elif code != StaleControllerEpoch.code:
                refused.add(RefusedReplica(replica, state.is_new))
    if answer.error_code == NO_ERROR:
        _log_errors("LeaderAndIsr", broker_id, told)
    return LeaderAndIsrAnswered(
        broker_id, request.broker_epoch, frozenset(failed), frozenset(healthy), frozenset(refused)
    )


def stop_replica_answered(
    broker_id: BrokerId, request: StopReplicaRequest, answer: Response, attempt: int
) -> Event | None:
    """Which replicas are deleted. One that was only told to stop has nothing to tell."""
    assert isinstance(answer, StopReplicaResponse)
    asked = set(deletions_in(request))
    if not asked:
        return None
    if answer.error_code != NO_ERROR:
        _log_refusal("StopReplica", broker_id, answer.error_code)
        errors = dict.fromkeys(asked, answer.error_code)
    else:
        errors = {
            TopicPartition(each.topic_name, each.partition_index): each.error_code for each in answer.partition_errors
        }
        _log_errors("StopReplica", broker_id, errors)
    deleted = frozenset(Replica(each, broker_id) for each in asked if errors.get(each, NO_ERROR) == NO_ERROR)
    failed = frozenset(Replica(each, broker_id) for each in asked if errors.get(each) == KafkaStorageError.code)
    refused = frozenset(Replica(each, broker_id) for each in asked) - deleted - failed
    return ReplicasDeleted(attempt, deleted, failed, refused)


def log_ends_answered(broker_id: BrokerId, logs: Mapping[TopicPartition, AskedLog], answer: Response) -> Event:
    """Where the logs end that were asked for; nothing of those that may lie in a directory that is offline."""
    assert isinstance(answer, DescribeLogDirsResponse)
    found = {
        TopicPartition(topic.name, log.partition_index): (topic.topic_id, result.directory_id, log)
        for result in answer.results
        for topic in result.topics
        for log in topic.partitions
    }
    can_tell = any(result.directory_id for result in answer.results)
    is_whole = all(result.error_code == NO_ERROR for result in answer.results)
    answers: dict[TopicPartition, Answer] = {}
    for topic_partition, (topic_id, asked) in logs.items():
        if not can_tell:
            answers[topic_partition] = Answer(asked, UNKNOWN_LOG_END, None)
            continue
        log_topic_id, directory_id, log = found.get(topic_partition, (ZERO_UUID, None, None))
        is_of_topic = topic_id == log_topic_id or ZERO_UUID in (topic_id, log_topic_id)
        if log is not None and is_of_topic:
            answers[topic_partition] = Answer(asked, LogEnd(log.last_epoch, log.log_end_offset), directory_id)
        elif is_whole:
            answers[topic_partition] = Answer(asked, NO_LOG, None)
    return LogEndsAnswered(broker_id, frozenset(answers.items()))


def deletions_in(request: StopReplicaRequest) -> Iterator[TopicPartition]:
    for topic in request.topic_states:
        for partition in topic.partition_states:
            if partition.delete_partition:
                yield TopicPartition(topic.topic_name, partition.partition_index)


def _log_refusal(api: str, broker_id: BrokerId, code: int) -> None:
    logger.warning("%s was refused broker_id=%d error=%s", api, broker_id, _error_name(code))


def _log_errors(api: str, broker_id: BrokerId, errors: dict[TopicPartition, int]) -> None:
    # Of a single partition, a stale epoch says that the broker knew it all already.
    expected = (NO_ERROR, StaleControllerEpoch.code)
    failed = {each: code for each, code in errors.items() if code not in expected}
    if failed:
        first, code = next(iter(failed.items()))
        logger.warning(
            "%s failed for some partitions broker_id=%d partitions=%d first=%s error=%s",
            api,
            broker_id,
            len(failed),
            first,
            _error_name(code),
        )


def _error_name(code: int) -> str:
    known = ERRORS_BY_CODE.get(code)
    return str(code) if known is None else known.__name__
