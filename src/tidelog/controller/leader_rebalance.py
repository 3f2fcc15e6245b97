"""Automatic preferred leader election (R40): `auto.leader.rebalance.enable`, as Kafka's controller does it.

The check runs every `leader.imbalance.check.interval.seconds`, and soon after a preferred replica rejoins the ISR: an
operator who restarts brokers one by one should not have to wait for the interval each time. A broker rejoins its
partitions over some seconds: the check after a join restores every leader, however few are left, so that the last ones
do not stay elsewhere as tolerated imbalance.
"""

from collections import defaultdict
from collections.abc import Iterable

from tidelog.cluster.image import PartitionRegistration
from tidelog.controller.context import ControllerContext
from tidelog.controller.elections import preferred_replica_leader_election
from tidelog.controller.events import AutoPreferredReplicaLeaderElection
from tidelog.controller.partition_state_machine import Changes, decide_by, elect_leaders_for_partitions
from tidelog.controller.term import ControllerTerm
from tidelog.types import BrokerId, TopicPartition

FIRST_CHECK_S = 5.0
"""Delay of the first check after a controller election, as in Kafka."""

CHECK_AFTER_JOIN_S = 2.0
"""Delay after a preferred replica rejoins. A broker rejoins its partitions one by one: one election covers many."""


def imbalanced_partitions(context: ControllerContext, percentage: int) -> list[TopicPartition]:
    """Partitions to move to their preferred leaders: of brokers whose imbalance exceeds `percentage`."""
    preferred: dict[BrokerId, int] = defaultdict(int)
    led_by_others: dict[BrokerId, list[TopicPartition]] = defaultdict(list)
    for topic_partition, partition in context.partitions():
        broker_id = partition.replicas[0]
        if broker_id not in context.brokers or context.is_being_deleted(topic_partition):
            continue
        preferred[broker_id] += 1
        if partition.leader != broker_id:
            led_by_others[broker_id].append(topic_partition)
    return [
        each
        for broker_id, partitions in led_by_others.items()
        if len(partitions) * 100 > percentage * preferred[broker_id]
        for each in partitions
        if not context.partition(each).is_being_reassigned
    ]


def schedule_checks(term: ControllerTerm) -> None:
    """Start the periodic checks of this term. The first one includes joins that the last controller did not get to."""
    if term.settings().auto_leader_rebalance_enable:
        term.put_later(AutoPreferredReplicaLeaderElection(), FIRST_CHECK_S)
        term.put_later(AutoPreferredReplicaLeaderElection(is_periodic=True), FIRST_CHECK_S)


def schedule_check_after_join(term: ControllerTerm, changed: Iterable[TopicPartition]) -> None:
    """Schedule a check if the preferred replica of one of these partitions is in sync and does not lead."""
    if term.settings().auto_leader_rebalance_enable and any(
        _is_waiting_for_preferred_leader(term.context.partition(each)) for each in changed
    ):
        term.put_once_later(AutoPreferredReplicaLeaderElection(), CHECK_AFTER_JOIN_S)


def _is_waiting_for_preferred_leader(partition: PartitionRegistration) -> bool:
    preferred = partition.replicas[0]
    return partition.leader != preferred and preferred in partition.in_sync_replicas


async def on_auto_preferred_replica_leader_election(
    term: ControllerTerm, event: AutoPreferredReplicaLeaderElection
) -> str | None:
    context, settings = term.context, term.settings()
    if event.is_periodic:
        term.put_later(event, settings.leader_imbalance_check_interval_seconds)
    tolerated_percentage = settings.leader_imbalance_per_broker_percentage if event.is_periodic else 0
    imbalanced = imbalanced_partitions(context, tolerated_percentage)
    changes = Changes()
    await elect_leaders_for_partitions(term, imbalanced, decide_by(context, preferred_replica_leader_election), changes)
    if not changes.changed:
        return None
    return f"elected preferred leaders, leaders were out of balance imbalanced={len(imbalanced)} {changes}"
