"""Answers of coordinators from memory, confirmed by the store.

An answer that waited for a commit proves that this broker led its partition meanwhile. One that is given at once proves
nothing: a coordinator that is cut off from its peers may have a successor with later records. It would take the commit
of a transaction for that of the last one, which is done; return offsets from which records are copied twice; or fence
a producer whose epoch it does not know.
"""

from collections.abc import Callable
from typing import TypeVar

from tidelog.errors import KafkaError, NotCoordinator
from tidelog.runtime.deferred import Deferred
from tidelog.server.services import Services
from tidelog.types import TopicPartition

R = TypeVar("R")

HEARTBEAT_CONFIRMATION_MS = 2000
"""Heartbeats are confirmed by the store so often. Less than the shortest session of a member: a successor, which hears
no heartbeat, gives the partitions of a member away no sooner."""


def confirmed(
    reply: Deferred[R],
    coordinated_by: TopicPartition,
    reject: Callable[[KafkaError], R],
    services: Services,
    max_age_ms: int = 0,
) -> Deferred[R]:
    """The reply, once it has waited for a commit or the store; else a rejection with NOT_COORDINATOR.

    An earlier confirmation by the store counts for `max_age_ms`.
    """
    if not reply.has_value:
        return reply
    try:
        partition = services.replicas.get(*coordinated_by)
    except KafkaError:
        return reply
    confirmation = services.replicas.leader_confirmation
    if max_age_ms and confirmation.is_recent(partition, max_age_ms):
        return reply
    not_coordinator = NotCoordinator("this broker may not be the coordinator any more")
    return confirmation.ask(partition).map(lambda is_leader: reply.value if is_leader else reject(not_coordinator))
