"""What a controller could never say: whoever says it is refused, before anything is made of it."""

from tidelog.cluster.topic_names import check_topic_name
from tidelog.controller.topic_rules import MAX_PARTITIONS_PER_TOPIC
from tidelog.errors import InvalidPartitions, InvalidReplicaAssignment, InvalidRequest, KafkaError
from tidelog.replication.assignment import PartitionAssignment
from tidelog.types import NO_BROKER


def check_partition(topic: str, index: int) -> None:
    """A name that is part of a path, a number that is the length of a list. InvalidTopic, InvalidPartitions."""
    check_topic_name(topic)
    if not 0 <= index < MAX_PARTITIONS_PER_TOPIC:
        raise InvalidPartitions(f"{topic} cannot have a partition {index}")


def refusal_of(assignment: PartitionAssignment) -> KafkaError | None:
    try:
        check_partition(*assignment.topic_partition)
        _check_role(assignment)
    except KafkaError as error:
        return error
    return None


def _check_role(assignment: PartitionAssignment) -> None:
    replicas = assignment.replicas
    if len(set(replicas)) < len(replicas):
        raise InvalidReplicaAssignment(f"{assignment.topic_partition} names a replica twice: {replicas}")
    if assignment.leader_epoch < 0 or assignment.leader < NO_BROKER:
        raise InvalidRequest(f"{assignment.topic_partition} has no such leader or leader epoch")
    if assignment.leader != NO_BROKER and assignment.leader not in assignment.in_sync_replicas:
        raise InvalidRequest(f"the leader of {assignment.topic_partition} is not in sync with itself (I1)")
