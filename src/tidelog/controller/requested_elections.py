"""Requested leader elections: preferred replica election, ElectLeaders and controlled shutdown."""

import logging
from collections.abc import Iterable

from tidelog.cluster import znodes
from tidelog.cluster.image import PartitionRegistration
from tidelog.controller.broker_changes import on_broker_change
from tidelog.controller.context_loading import load_topic_configs
from tidelog.controller.elections import (
    NO_STATE_VERSION,
    Decision,
    controlled_shutdown_leader_election,
    preferred_replica_leader_election,
    unclean_leader_election,
)
from tidelog.controller.events import (
    BrokerChange,
    ControlledShutdown,
    ControllerRequest,
    ElectLeaders,
    PreferredReplicaElection,
    TopicSettingsChange,
    UncleanLeaderElectionEnable,
)
from tidelog.controller.notifications import remove_nodes
from tidelog.controller.partition_state_machine import (
    Changes,
    decide_by,
    elect_leaders_for_partitions,
    elect_offline_leaders,
)
from tidelog.controller.reassignment_events import advance_reassignments
from tidelog.controller.replica_state_machine import move_replicas
from tidelog.controller.states import Replica, ReplicaState
from tidelog.controller.term import ControllerTerm
from tidelog.errors import (
    BrokerNotAvailable,
    ClusterAuthorizationFailed,
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    KafkaError,
    PreferredLeaderNotAvailable,
    StaleBrokerEpoch,
    UnknownTopicOrPartition,
)
from tidelog.types import NO_BROKER, TopicPartition

logger = logging.getLogger(__name__)

UNKNOWN_EPOCH = -1


async def on_preferred_replica_election(term: ControllerTerm, event: PreferredReplicaElection) -> str | None:
    node = await term.store.exists(znodes.PREFERRED_REPLICA_ELECTION, term.watch(event))
    if node is None:
        return None
    try:
        named = znodes.decode_partition_list(node.data, znodes.PREFERRED_REPLICA_ELECTION)
    except znodes.MalformedNode as error:
        logger.warning("ignored malformed preferred replica election reason=%s", error)
        named = []
    wanted = _present(term, named)
    changes = Changes()
    preferred = decide_by(term.context, preferred_replica_leader_election)
    await elect_leaders_for_partitions(term, wanted, preferred, changes)
    await remove_nodes(term.store, [znodes.PREFERRED_REPLICA_ELECTION])
    return f"elected preferred leaders requested={len(named)} elected={changes.elected}"


async def on_elect_leaders(term: ControllerTerm, event: ElectLeaders) -> str | None:
    context = term.context
    rule = unclean_leader_election if event.is_unclean else preferred_replica_leader_election
    named = [each for each, _ in context.partitions()] if event.partitions is None else event.partitions
    wanted = _present(term, named)
    changes = Changes()
    await elect_leaders_for_partitions(term, wanted, decide_by(context, rule), changes)
    outcomes: dict[TopicPartition, KafkaError | None] = {
        each: UnknownTopicOrPartition(f"There is no partition {each}.") for each in event.partitions or ()
    }
    for each in wanted:
        is_elected = each in changes.changed
        outcomes[each] = None if is_elected else _why_not_elected(context.partition(each), is_unclean=event.is_unclean)
    _answer(event, outcomes)
    return f"elected leaders on request requested={len(outcomes)} {changes}"


def _present(term: ControllerTerm, named: Iterable[TopicPartition]) -> list[TopicPartition]:
    context = term.context
    return [
        each for each in dict.fromkeys(named) if context.find(each) is not None and not context.is_being_deleted(each)
    ]


def _why_not_elected(partition: PartitionRegistration, *, is_unclean: bool) -> KafkaError:
    if is_unclean:
        return EligibleLeadersNotAvailable() if partition.leader == NO_BROKER else ElectionNotNeeded()
    return ElectionNotNeeded() if partition.leader == partition.replicas[0] else PreferredLeaderNotAvailable()


async def on_unclean_leader_election_enable(term: ControllerTerm, _: UncleanLeaderElectionEnable) -> str | None:
    waiting = term.context.without_leader()
    return (
        f"retried election of partitions without leader {await elect_offline_leaders(term, waiting)}"
        if waiting
        else None
    )


async def on_topic_settings_change(term: ControllerTerm, event: TopicSettingsChange) -> str | None:
    """Apply min.insync.replicas and retry elections: unclean ones may be allowed now."""
    topics = [each for each in sorted(event.topics) if each in term.context.topics]
    for topic, configs in (await load_topic_configs(term.store, topics)).items():
        if topic in term.context.topics:
            term.context.topics[topic].configs = configs
    await advance_reassignments(term, term.context.reassigning())
    return await on_unclean_leader_election_enable(term, UncleanLeaderElectionEnable())


async def on_controlled_shutdown(term: ControllerTerm, event: ControlledShutdown) -> str | None:
    """Move leaders away before the broker stops. The answer has the partitions that no other broker can lead (R39)."""
    registered = term.context.brokers.get(event.broker_id)
    if registered is None or registered.epoch < event.broker_epoch:
        # The broker registered after the last broker change: process that change first.
        await on_broker_change(term, BrokerChange())
    try:
        _check_incarnation(term, event)
    except KafkaError as error:
        _answer(event, error)
        return None
    context = term.context
    context.shutting_down.add(event.broker_id)
    replicated = [
        each
        for each in context.partitions_on({event.broker_id})
        if len(context.partition(each).replicas) > 1 and not context.is_being_deleted(each)
    ]

    def decide(topic_partition: TopicPartition, partition: PartitionRegistration) -> Decision | None:
        is_decided = partition.version != NO_STATE_VERSION
        return controlled_shutdown_leader_election(partition, context.health(topic_partition)) if is_decided else None

    changes = Changes()
    await elect_leaders_for_partitions(term, replicated, decide, changes)
    remaining = {each for each in replicated if context.partition(each).leader == event.broker_id}
    stopped = [Replica(each, event.broker_id) for each in replicated if each not in remaining]
    move_replicas(term, stopped, ReplicaState.OFFLINE, f"broker {event.broker_id} is shutting down")
    _answer(event, remaining)
    return f"broker is shutting down broker_id={event.broker_id} remaining={len(remaining)} {changes}"


def _check_incarnation(term: ControllerTerm, event: ControlledShutdown) -> None:
    broker = term.context.brokers.get(event.broker_id)
    if broker is None:
        raise BrokerNotAvailable(f"broker {event.broker_id} is not registered")
    if event.broker_epoch == UNKNOWN_EPOCH:
        raise ClusterAuthorizationFailed("the request does not carry the epoch of the broker")
    if event.broker_epoch != broker.epoch:
        raise StaleBrokerEpoch(f"broker {event.broker_id} is registered with epoch {broker.epoch}")


def _answer(event: ControllerRequest, outcome: object) -> None:
    if event.answer.done():  # the caller has gone
        return
    if isinstance(outcome, KafkaError):
        event.answer.set_exception(outcome)
    else:
        event.answer.set_result(outcome)
