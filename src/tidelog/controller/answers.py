"""What the answers of brokers mean for the controller."""

import logging
from collections.abc import Iterator

from tidelog.controller.events import Event, LeaderAndIsrAnswered, ReplicasDeleted
from tidelog.controller.states import Replica
from tidelog.errors import ERRORS_BY_CODE, NO_ERROR, KafkaStorageError, StaleControllerEpoch
from tidelog.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from tidelog.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from tidelog.protocol.structs import Response
from tidelog.types import BrokerId, TopicPartition

logger = logging.getLogger(__name__)


def leader_and_isr_answered(broker_id: BrokerId, request: LeaderAndIsrRequest, answer: Response) -> Event | None:
    """Which replicas have no log directory any more, and which have one."""
    assert isinstance(answer, LeaderAndIsrResponse)
    if answer.error_code != NO_ERROR:
        _log_refusal("LeaderAndIsr", broker_id, answer.error_code)
        return None
    names = {topic.topic_id: topic.topic_name for topic in request.topic_states}
    errors = {
        TopicPartition(names[topic.topic_id], each.partition_index): each.error_code
        for topic in answer.topics
        if topic.topic_id in names
        for each in topic.partition_errors
    }
    _log_errors("LeaderAndIsr", broker_id, errors)
    return LeaderAndIsrAnswered(
        failed=frozenset(Replica(each, broker_id) for each, code in errors.items() if code == KafkaStorageError.code),
        healthy=frozenset(Replica(each, broker_id) for each, code in errors.items() if code == NO_ERROR),
    )


def stop_replica_answered(broker_id: BrokerId, request: StopReplicaRequest, answer: Response) -> Event | None:
    """Which replicas are deleted. One that was only told to stop has nothing to tell."""
    assert isinstance(answer, StopReplicaResponse)
    asked = set(_deletions(request))
    if not asked:
        return None
    if answer.error_code != NO_ERROR:
        _log_refusal("StopReplica", broker_id, answer.error_code)
        return ReplicasDeleted(frozenset(), failed=frozenset(Replica(each, broker_id) for each in asked))
    errors = {
        TopicPartition(each.topic_name, each.partition_index): each.error_code for each in answer.partition_errors
    }
    _log_errors("StopReplica", broker_id, errors)
    deleted = frozenset(Replica(each, broker_id) for each in asked if errors.get(each, NO_ERROR) == NO_ERROR)
    return ReplicasDeleted(deleted, failed=frozenset(Replica(each, broker_id) for each in asked) - deleted)


def _deletions(request: StopReplicaRequest) -> Iterator[TopicPartition]:
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
