"""StopReplica (API key 5): the broker stops replicas, and deletes them if the controller says so."""

from tidelog.errors import NO_ERROR, KafkaError
from tidelog.protocol.messages.stop_replica import StopReplicaPartitionError, StopReplicaRequest, StopReplicaResponse
from tidelog.replication.assignment import ReplicaStop
from tidelog.server.control_plane import Sender
from tidelog.server.dispatch import RequestContext
from tidelog.types import TopicPartition


async def handle_stop_replica(request: StopReplicaRequest, context: RequestContext) -> StopReplicaResponse:
    stops = [
        ReplicaStop(
            TopicPartition(topic.topic_name, state.partition_index),
            state.leader_epoch,
            state.delete_partition,
            topic.topic_id,
        )
        for topic in request.topic_states
        for state in topic.partition_states
    ]
    sender = Sender(request.controller_id, request.controller_epoch, request.broker_epoch)
    try:
        context.require_inter_broker_listener()
        errors = await context.services.control_plane.stop_replicas(sender, stops)
    except KafkaError as error:
        return StopReplicaResponse(error_code=error.code)
    return StopReplicaResponse(
        partition_errors=[
            StopReplicaPartitionError(*topic_partition, NO_ERROR if error is None else error.code)
            for topic_partition, error in errors.items()
        ]
    )
