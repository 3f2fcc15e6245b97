"""LeaderAndIsr (API key 4): the broker becomes leader or follower of partitions, as the controller decided."""

from tidelog.errors import NO_ERROR, KafkaError
from tidelog.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from tidelog.replication.assignment import LeaderAddress, PartitionAssignment
from tidelog.server.control_plane import UNKNOWN_EPOCH, Errors, Sender
from tidelog.server.dispatch import RequestContext
from tidelog.types import TopicPartition, Uuid


async def handle_leader_and_isr(request: LeaderAndIsrRequest, context: RequestContext) -> LeaderAndIsrResponse:
    assignments = [
        _assignment(topic.topic_name, topic.topic_id, state, request.broker_epoch)
        for topic in request.topic_states
        for state in topic.partition_states
    ]
    live_leaders = {
        leader.broker_id: LeaderAddress(leader.broker_id, leader.host_name, leader.port)
        for leader in request.live_leaders
    }
    sender = Sender(request.controller_id, request.controller_epoch, request.broker_epoch)
    try:
        context.require_inter_broker_listener()
        errors = await context.services.control_plane.become_leader_or_follower(sender, assignments, live_leaders)
    except KafkaError as error:
        return LeaderAndIsrResponse(error_code=error.code)
    context.trust_controller(sender)
    return LeaderAndIsrResponse(topics=_results(request, errors))


def _assignment(
    topic: str, topic_id: Uuid, state: LeaderAndIsrPartitionState, broker_epoch: int
) -> PartitionAssignment:
    return PartitionAssignment(
        topic_partition=TopicPartition(topic, state.partition_index),
        topic_id=topic_id,
        controller_epoch=state.controller_epoch,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        in_sync_replicas=tuple(state.isr),
        version=state.partition_epoch,
        replicas=tuple(state.replicas),
        adding_replicas=tuple(state.adding_replicas),
        removing_replicas=tuple(state.removing_replicas),
        is_new=state.is_new,
        in_sync_epochs={
            replica: epoch
            for replica, epoch in zip(state.isr, state.isr_epochs, strict=False)
            if epoch != UNKNOWN_EPOCH
        },
        eligible_leader_epochs=dict(zip(state.elr, state.elr_epochs, strict=False)),
        broker_epoch=broker_epoch,
    )


def _results(request: LeaderAndIsrRequest, errors: Errors) -> list[LeaderAndIsrTopicError]:
    results = []
    for topic in request.topic_states:
        found = [
            (state.partition_index, errors.get(TopicPartition(topic.topic_name, state.partition_index)))
            for state in topic.partition_states
        ]
        partitions = [
            LeaderAndIsrPartitionError(index, NO_ERROR if error is None else error.code) for index, error in found
        ]
        results.append(LeaderAndIsrTopicError(topic.topic_id, partitions))
    return results
