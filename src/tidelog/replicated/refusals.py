"""What a client of a coordinator is told when the coordinator's own records cannot be written, as in Kafka."""

from tidelog.errors import (
    CoordinatorNotAvailable,
    KafkaError,
    KafkaStorageError,
    NotCoordinator,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    RequestTimedOut,
    UnknownTopicOrPartition,
)
from tidelog.storage.disk_errors import is_passing

_MOVED = (NotLeaderOrFollower, KafkaStorageError)
_NOT_NOW = (NotEnoughReplicas, NotEnoughReplicasAfterAppend, RequestTimedOut, UnknownTopicOrPartition)


def as_coordinator_error(error: KafkaError) -> KafkaError:
    """Errors of other kinds, such as a batch that is too large, stay what they are."""
    if is_passing(error):
        return CoordinatorNotAvailable(error.message)
    if isinstance(error, _MOVED):
        return NotCoordinator(error.message)
    if isinstance(error, _NOT_NOW):
        return CoordinatorNotAvailable(error.message)
    return error
