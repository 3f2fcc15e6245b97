"""Partition leader election algorithms: pure functions of a partition and its replicas' health (R35, R41, R42)."""

# Core: no clock, no I/O, no await.

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from tidelog.cluster.image import PartitionRegistration
from tidelog.types import NO_BROKER, BrokerId

NO_STATE_VERSION = -1
"""Version of a partition that has no state in the store: it never had a leader."""
FIRST_STATE_VERSION = 0
FIRST_LEADER_EPOCH = 0

NO_BROKERS: frozenset[BrokerId] = frozenset()
NO_EPOCHS: Mapping[BrokerId, int] = MappingProxyType({})


class LogEnd(NamedTuple):
    """End of a replica's log, as its broker reported it. The greater log contains the smaller one (log matching)."""

    last_epoch: int
    """Leader epoch of the last record."""
    end_offset: int


NO_LOG = LogEnd(-1, 0)
UNKNOWN_LOG_END = LogEnd(-2, -1)
"""Log end of a broker that does not support the query: Apache Kafka, or an earlier version of this one."""


class Health(NamedTuple):
    """State of the replicas of one partition, input of an election."""

    online: AbstractSet[BrokerId]
    """Replicas whose broker and log directory are online."""
    restarted: AbstractSet[BrokerId] = NO_BROKERS
    """Replicas whose broker epoch differs from the one recorded in the partition's state (R41)."""
    shutting_down: AbstractSet[BrokerId] = NO_BROKERS
    """Brokers in controlled shutdown."""
    clean: AbstractSet[BrokerId] = NO_BROKERS
    """Restarted replicas whose recorded incarnation shut down cleanly, directly before the current one."""
    lost: AbstractSet[BrokerId] = NO_BROKERS
    """Restarted replicas that came back without their log directory (KIP-858)."""
    doubtful: AbstractSet[BrokerId] = NO_BROKERS
    """Restarted replicas that came back with some new log directories; their log may have been in a lost one."""
    epochs: Mapping[BrokerId, int] = NO_EPOCHS
    """Current broker epochs."""
    responses: Mapping[BrokerId, LogEnd] = MappingProxyType({})
    """Log ends that restarted replicas reported since the partition lost its leader."""
    min_in_sync: int = 1
    """min.insync.replicas of the topic."""

    @property
    def candidates(self) -> AbstractSet[BrokerId]:
        return self.online - self.shutting_down

    @property
    def trusted(self) -> AbstractSet[BrokerId]:
        """Candidates that still hold all records they held when the state was written."""
        return self.candidates - (self.restarted - self.clean)


class Decision(NamedTuple):
    partition: PartitionRegistration
    """The new state; its version is the one expected in the store."""
    is_unclean: bool = False
    """The new leader was not in sync: acknowledged records may be lost."""


def updated_leader_and_isr(
    partition: PartitionRegistration, health: Health, *, unclean_allowed: bool = False
) -> Decision | None:
    """New leader and ISR after brokers failed or started; None if nothing has to change."""
    if partition.version == NO_STATE_VERSION:
        return _first_leader(partition, health)
    is_in_sync = partition.leader in partition.in_sync_replicas  # false only if another writer broke I1
    if is_in_sync and partition.leader in health.online and partition.leader not in health.restarted:
        return _without_failed(partition, health)
    return _offline_leader_election(partition, health, unclean_allowed)


def preferred_replica_leader_election(partition: PartitionRegistration, health: Health) -> Decision | None:
    """Elect the first assigned replica, if it is in sync and not the leader."""
    preferred = partition.replicas[0]
    if preferred == partition.leader or preferred not in partition.in_sync_replicas:
        return None
    if preferred not in health.candidates - health.restarted:
        return None
    return _changed(partition, preferred, partition.in_sync_replicas, health)


def unclean_leader_election(partition: PartitionRegistration, health: Health) -> Decision | None:
    """Elect any live replica if there is no leader. An operator requested it and accepts the loss of records."""
    return updated_leader_and_isr(partition, health, unclean_allowed=True) if partition.leader == NO_BROKER else None


def controlled_shutdown_leader_election(partition: PartitionRegistration, health: Health) -> Decision | None:
    """Remove brokers in controlled shutdown from leadership and ISR; None if no other replica can lead."""
    staying = tuple(broker for broker in partition.in_sync_replicas if broker not in health.shutting_down)
    if not staying:
        return None
    if partition.leader not in health.shutting_down:
        is_unchanged = staying == partition.in_sync_replicas or partition.leader == NO_BROKER
        return None if is_unchanged else _changed(partition, partition.leader, staying, health)
    leader = _first_of(partition.replicas, (health.online - health.restarted) & set(staying))
    return None if leader is None else _changed(partition, leader, staying, health)


def replicas_to_query(partition: PartitionRegistration, health: Health) -> AbstractSet[BrokerId]:
    """Replicas whose log end must be known before one of them can lead: see `_best_of_restarted`."""
    if partition.leader != NO_BROKER or partition.version == NO_STATE_VERSION:
        return NO_BROKERS
    members = _members(partition)
    if not members.isdisjoint(health.trusted):
        return NO_BROKERS
    return (members & health.candidates) - health.lost - health.responses.keys()


def missing_members(partition: PartitionRegistration, health: Health) -> list[BrokerId]:
    """Replicas that a partition without a leader waits for: they may hold records that the others lost."""
    return [each for each in partition.replicas if each in _members(partition) - health.lost - health.responses.keys()]


def effective_min_in_sync(partition: PartitionRegistration, health: Health) -> int:
    """min.insync.replicas, limited to the number of replicas as in Kafka.

    Replicas that are being added do not count before the reassignment is complete (R37).
    """
    return max(1, min(health.min_in_sync, len(partition.replicas) - len(partition.adding_replicas)))


def _first_leader(partition: PartitionRegistration, health: Health) -> Decision | None:
    """First election: all live replicas are in sync, because the log has no records."""
    alive = tuple(broker for broker in partition.replicas if broker in health.candidates)
    if not alive:
        return None
    epochs = {each: health.epochs[each] for each in alive if each in health.epochs}
    return Decision(
        replace(
            partition, leader=alive[0], leader_epoch=FIRST_LEADER_EPOCH, in_sync_replicas=alive, in_sync_epochs=epochs
        )
    )


def _without_failed(partition: PartitionRegistration, health: Health) -> Decision | None:
    """Remove failed replicas from the ISR. The leader stays and gets a new leader epoch, as in Kafka."""
    steady = health.online - health.restarted
    in_sync = tuple(broker for broker in partition.in_sync_replicas if broker in steady)
    return None if in_sync == partition.in_sync_replicas else _changed(partition, partition.leader, in_sync, health)


def _offline_leader_election(
    partition: PartitionRegistration, health: Health, unclean_allowed: bool
) -> Decision | None:
    """Elect an in-sync replica, else an eligible one, else the best of those that restarted uncleanly (R42)."""
    trusted = health.trusted
    leader = _first_of(partition.replicas, trusted & set(partition.in_sync_replicas))
    if leader is not None:
        in_sync = tuple(each for each in partition.in_sync_replicas if each in trusted)
        return _changed(partition, leader, in_sync, health)
    leader = _first_of(partition.replicas, trusted & set(partition.eligible_leader_replicas))
    if leader is None:
        leader = _best_of_restarted(partition, health)
    if leader is not None:
        return _changed(partition, leader, (leader,), health)
    if unclean_allowed and not replicas_to_query(replace(partition, leader=NO_BROKER), health):
        leader = _least_lossy_leader(partition, health)
        if leader is not None:
            return _unclean(partition, leader, health)
    if partition.leader == NO_BROKER:
        return None
    return _without_leader_now(partition)


def _best_of_restarted(partition: PartitionRegistration, health: Health) -> BrokerId | None:
    """The replica that certainly holds all committed records when all live members restarted uncleanly, if any.

    Every member (in-sync or eligible) held them. Fewer than min ISR members lose records at a time (I4). So among min
    ISR members at least one still holds them, and by log matching the greatest log among these members contains them.
    A member that lost its log directory is one of those that lost records: it counts towards the quorum and cannot
    lead. A member that does not support the query counts as if it had answered with the smallest log.
    """
    members = _members(partition)
    lost = members & health.lost
    restarted = (members & health.candidates) - lost
    min_in_sync = effective_min_in_sync(partition, health)
    if min_in_sync == 1 and restarted - health.doubtful:
        # With min ISR 1 nothing is promised after a loss: any member may lead, so waiting for more is no use.
        return _first_of(partition.replicas, restarted - health.doubtful)
    quorum = max(1, min_in_sync - len(lost))
    responses = {
        each: health.responses[each] for each in partition.replicas if each in restarted & health.responses.keys()
    }
    is_complete = len(responses) == len(members - lost)
    if responses and (len(responses) >= quorum or is_complete):
        return max(responses, key=responses.__getitem__)  # the first in assignment order if several are equal
    if lost == members == set(partition.replicas):
        return _first_of(partition.replicas, lost & health.candidates)  # no other replica ever had records
    if lost == members and _has_never_had_min_in_sync(partition, health):
        return _first_of(partition.replicas, health.candidates)
    return None


def _has_never_had_min_in_sync(partition: PartitionRegistration, health: Health) -> bool:
    """True if no record was ever committed: the first leader was elected below min ISR and lost before any change."""
    is_first_isr = partition.leader_epoch <= FIRST_LEADER_EPOCH + 1 and partition.version <= FIRST_STATE_VERSION + 1
    return is_first_isr and len(partition.in_sync_replicas) < effective_min_in_sync(partition, health)


def _least_lossy_leader(partition: PartitionRegistration, health: Health) -> BrokerId | None:
    """Leader of an unclean election: the greatest known log, else a replica with its directory, else any candidate."""
    responses = {each: health.responses[each] for each in partition.replicas if each in health.responses}
    with_known_log = {each for each in responses if each in health.candidates - health.lost}
    if with_known_log:
        return max(with_known_log, key=lambda each: (responses[each], -partition.replicas.index(each)))
    with_directory = health.candidates - health.lost
    not_restarted = with_directory - health.restarted
    return _first_of(partition.replicas, not_restarted or with_directory or health.candidates)


def _members(partition: PartitionRegistration) -> set[BrokerId]:
    """In-sync and eligible replicas: they held all committed records in their recorded incarnation."""
    assigned = set(partition.replicas)
    return assigned.intersection((*partition.in_sync_replicas, *partition.eligible_leader_replicas))


def _first_of(replicas: tuple[BrokerId, ...], eligible: AbstractSet[BrokerId]) -> BrokerId | None:
    return next((broker for broker in replicas if broker in eligible), None)


def _changed(
    partition: PartitionRegistration, leader: BrokerId, in_sync_replicas: tuple[BrokerId, ...], health: Health
) -> Decision:
    """Decision with a new leader epoch. A replica that leaves the ISR stays eligible below min ISR (KIP-966)."""
    assert leader in in_sync_replicas or leader == partition.leader, "an elected leader is in sync (I1)"
    assert {*partition.in_sync_replicas, leader}.issuperset(in_sync_replicas), (
        "only a leader adds replicas to the ISR (I2)"
    )
    eligible: tuple[BrokerId, ...] = ()
    if len(in_sync_replicas) < effective_min_in_sync(partition, health):
        eligible = tuple(
            each for each in partition.replicas if each in _members(partition).difference(in_sync_replicas)
        )
    return Decision(
        PartitionRegistration(
            index=partition.index,
            replicas=partition.replicas,
            leader=leader,
            leader_epoch=partition.leader_epoch + 1,
            in_sync_replicas=in_sync_replicas,
            controller_epoch=partition.controller_epoch,
            version=partition.version,
            adding_replicas=partition.adding_replicas,
            removing_replicas=partition.removing_replicas,
            in_sync_epochs=_in_sync_epochs(partition, leader, in_sync_replicas, health),
            eligible_leader_replicas=eligible,
            eligible_leader_epochs=_recorded_epochs(partition, eligible, health),
            removed_replicas=partition.removed_replicas,
        )
    )


def _unclean(partition: PartitionRegistration, leader: BrokerId, health: Health) -> Decision:
    """The new leader's log becomes the log of the partition. No other replica is known to match it."""
    changed = replace(
        partition,
        leader=leader,
        leader_epoch=partition.leader_epoch + 1,
        in_sync_replicas=(leader,),
        in_sync_epochs=_in_sync_epochs(partition, leader, (leader,), health),
        eligible_leader_replicas=(),
        eligible_leader_epochs={},
    )
    return Decision(changed, is_unclean=True)


def _without_leader_now(partition: PartitionRegistration) -> Decision:
    """The ISR is kept with its broker epochs: it determines who may lead again (KAFKA-3096)."""
    return Decision(replace(partition, leader=NO_BROKER, leader_epoch=partition.leader_epoch + 1))


def _in_sync_epochs(
    partition: PartitionRegistration, leader: BrokerId, in_sync_replicas: Iterable[BrokerId], health: Health
) -> dict[BrokerId, int]:
    """Broker epochs on which this decision is based. A broker may have restarted by the time it is written (R41)."""
    doubted = health.restarted - health.clean
    found: dict[BrokerId, int] = {}
    for each in in_sync_replicas:
        is_present = each == leader or (each in health.online and each not in doubted)
        epoch = (health.epochs if is_present else partition.in_sync_epochs).get(each)
        if epoch is not None:
            found[each] = epoch
    return found


def _recorded_epochs(
    partition: PartitionRegistration, replicas: Iterable[BrokerId], health: Health
) -> dict[BrokerId, int]:
    """Broker epochs in which the replicas held all records; if not recorded, the current one unless they restarted."""
    found: dict[BrokerId, int] = {}
    for each in replicas:
        epoch = partition.recorded_epoch(each)
        if epoch is None and each not in health.restarted:
            epoch = health.epochs.get(each)
        if epoch is not None:
            found[each] = epoch
    return found
