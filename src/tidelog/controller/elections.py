"""Elections and in-sync replicas of one partition, decided from who is there: pure functions (R35, R41, R42)."""

# Core: no clock, no I/O, no await.

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from tidelog.cluster.image import Partition
from tidelog.types import NO_BROKER, BrokerId

NO_STATE_VERSION = -1
"""The version of a partition whose state is not in the store: it never had a leader."""

NOBODY: frozenset[BrokerId] = frozenset()
NOTHING: Mapping[BrokerId, int] = MappingProxyType({})


class LogEnd(NamedTuple):
    """Where a replica's log ends, as its broker answered. The greater one holds all that the smaller one holds."""

    last_epoch: int
    """The leader epoch of its last record."""
    end_offset: int


NO_LOG = LogEnd(-1, 0)
UNKNOWN_LOG_END = LogEnd(-2, -1)
"""Of a broker that cannot be asked: Apache Kafka, or an earlier version of this one."""


class Health(NamedTuple):
    """What is known of the replicas of one partition."""

    online: AbstractSet[BrokerId]
    """Their broker is alive, and the log directory they are in."""
    restarted: AbstractSet[BrokerId] = NOBODY
    """In another incarnation than the one that is recorded in the partition's state (R41)."""
    leaving: AbstractSet[BrokerId] = NOBODY
    """In controlled shutdown."""
    clean: AbstractSet[BrokerId] = NOBODY
    """Of those restarted: the recorded incarnation ended without loss, and this one came right after it."""
    lost: AbstractSet[BrokerId] = NOBODY
    """Of those restarted: came back without the log directory that they had (KIP-858)."""
    doubtful: AbstractSet[BrokerId] = NOBODY
    """Of those restarted: came back with a new log directory beside old ones; their log may have been in a lost one."""
    epochs: Mapping[BrokerId, int] = NOTHING
    """Their present incarnations."""
    answers: Mapping[BrokerId, LogEnd] = MappingProxyType({})
    """Where the logs of those end who were asked, since there is no leader."""
    min_in_sync: int = 1
    """min.insync.replicas of the topic."""

    @property
    def candidates(self) -> AbstractSet[BrokerId]:
        return self.online - self.leaving

    @property
    def trusted(self) -> AbstractSet[BrokerId]:
        """Candidates that hold what they held when the state was written."""
        return self.candidates - (self.restarted - self.clean)


class Decision(NamedTuple):
    partition: Partition
    """As it shall be; its version is the one that must be found in the store."""
    is_unclean: bool = False
    """The leader was not in sync: records that were acknowledged may be lost."""


def repaired(partition: Partition, health: Health, *, unclean_allowed: bool = False) -> Decision | None:
    """What must change after brokers went or came; None if the partition is as well as it can be."""
    if partition.version == NO_STATE_VERSION:
        return _first_leader(partition, health)
    is_in_sync = partition.leader in partition.in_sync_replicas  # I1: or somebody else wrote this
    if is_in_sync and partition.leader in health.online and partition.leader not in health.restarted:
        return _without_failed(partition, health)
    return _offline_election(partition, health, unclean_allowed)


def preferred_leader(partition: Partition, health: Health) -> Decision | None:
    """The first of the assigned replicas, if it is in sync and does not lead already."""
    preferred = partition.replicas[0]
    if preferred == partition.leader or preferred not in partition.in_sync_replicas:
        return None
    if preferred not in health.candidates - health.restarted:
        return None
    return _changed(partition, preferred, partition.in_sync_replicas, health)


def any_leader(partition: Partition, health: Health) -> Decision | None:
    """Whoever is there, if nobody leads: somebody asked for it, even at the price of acknowledged records."""
    return repaired(partition, health, unclean_allowed=True) if partition.leader == NO_BROKER else None


def after_leaving(partition: Partition, health: Health) -> Decision | None:
    """Leave the brokers that go, as leaders and as in-sync replicas; None if nobody can take over."""
    staying = tuple(broker for broker in partition.in_sync_replicas if broker not in health.leaving)
    if not staying:
        return None
    if partition.leader not in health.leaving:
        is_unchanged = staying == partition.in_sync_replicas or partition.leader == NO_BROKER
        return None if is_unchanged else _changed(partition, partition.leader, staying, health)
    leader = _first_of(partition.replicas, (health.online - health.restarted) & set(staying))
    return None if leader is None else _changed(partition, leader, staying, health)


def to_be_asked(partition: Partition, health: Health) -> AbstractSet[BrokerId]:
    """Whose logs must be known before one of them can lead: see `_best_of_restarted`."""
    if partition.leader != NO_BROKER or partition.version == NO_STATE_VERSION:
        return NOBODY
    members = _members(partition)
    if not members.isdisjoint(health.trusted):
        return NOBODY
    return (members & health.candidates) - health.lost - health.answers.keys()


def missing_members(partition: Partition, health: Health) -> list[BrokerId]:
    """For whom a partition without leader waits: those who may have what the others have lost."""
    return [each for each in partition.replicas if each in _members(partition) - health.lost - health.answers.keys()]


def effective_min_in_sync(partition: Partition, health: Health) -> int:
    """As Kafka: a topic cannot ask for more than it has replicas."""
    return max(1, min(health.min_in_sync, len(partition.replicas)))


def _first_leader(partition: Partition, health: Health) -> Decision | None:
    """All replicas that are there are in sync with a log that has no records."""
    alive = tuple(broker for broker in partition.replicas if broker in health.candidates)
    if not alive:
        return None
    epochs = {each: health.epochs[each] for each in alive if each in health.epochs}
    return Decision(replace(partition, leader=alive[0], leader_epoch=0, in_sync_replicas=alive, in_sync_epochs=epochs))


def _without_failed(partition: Partition, health: Health) -> Decision | None:
    """The leader goes on with those that are still there. It learns of it by a new leader epoch, as in Kafka."""
    steady = health.online - health.restarted
    in_sync = tuple(broker for broker in partition.in_sync_replicas if broker in steady)
    return None if in_sync == partition.in_sync_replicas else _changed(partition, partition.leader, in_sync, health)


def _offline_election(partition: Partition, health: Health, unclean_allowed: bool) -> Decision | None:
    """In-sync replicas first, then eligible ones, then the best of those who may have lost something (R42)."""
    trusted = health.trusted
    leader = _first_of(partition.replicas, trusted & set(partition.in_sync_replicas))
    if leader is not None:
        in_sync = tuple(each for each in partition.in_sync_replicas if each in trusted)
        return _changed(partition, leader, in_sync, health)
    leader = _first_of(partition.replicas, trusted & set(partition.eligible_replicas))
    if leader is None:
        leader = _best_of_restarted(partition, health)
    if leader is not None:
        return _changed(partition, leader, (leader,), health)
    if unclean_allowed and not to_be_asked(replace(partition, leader=NO_BROKER), health):
        leader = _least_loss(partition, health)
        if leader is not None:
            return _unclean(partition, leader, health)
    if partition.leader == NO_BROKER:
        return None
    return _left_without_leader(partition)


def _best_of_restarted(partition: Partition, health: Health) -> BrokerId | None:
    """All members that are there restarted uncleanly: who of them surely has everything that is committed?

    Every member, in-sync or eligible, had it. Fewer than min ISR lose records at a time (I4). So of min ISR members one
    at least still has it, and by log matching the greatest log among them has all that this one has. A member known to
    have lost its directory is one of those who lost; it counts, and does not lead. Who cannot be asked counts as if it
    had answered, behind all that did: so it was before there were questions.
    """
    members = _members(partition)
    lost = members & health.lost
    restarted = (members & health.candidates) - lost
    min_in_sync = effective_min_in_sync(partition, health)
    if min_in_sync == 1 and restarted - health.doubtful:
        # Nothing is promised if any of them lost records: one is as good as another, and nobody needs to wait.
        return _first_of(partition.replicas, restarted - health.doubtful)
    quorum = max(1, min_in_sync - len(lost))
    answers = {each: health.answers[each] for each in partition.replicas if each in restarted & health.answers.keys()}
    is_complete = len(answers) == len(members - lost)
    if answers and (len(answers) >= quorum or is_complete):
        return max(answers, key=answers.__getitem__)  # of equal ones the first in order of assignment
    if lost == members == set(partition.replicas):
        return _first_of(partition.replicas, lost & health.candidates)  # nobody else ever had records
    return None


def _least_loss(partition: Partition, health: Health) -> BrokerId | None:
    """Somebody must lead, and records may be lost: who answered, then who lost nothing since, then whoever is there."""
    answers = {each: health.answers[each] for each in partition.replicas if each in health.answers}
    there = {each for each in answers if each in health.candidates - health.lost}
    if there:
        return max(there, key=lambda each: (answers[each], -partition.replicas.index(each)))
    whole = health.candidates - health.lost
    return _first_of(partition.replicas, (whole - health.restarted) or whole or health.candidates)


def _members(partition: Partition) -> set[BrokerId]:
    """Those who had everything that is committed, in their recorded incarnation."""
    assigned = set(partition.replicas)
    return assigned.intersection((*partition.in_sync_replicas, *partition.eligible_replicas))


def _first_of(replicas: tuple[BrokerId, ...], eligible: AbstractSet[BrokerId]) -> BrokerId | None:
    return next((broker for broker in replicas if broker in eligible), None)


def _changed(
    partition: Partition, leader: BrokerId, in_sync_replicas: tuple[BrokerId, ...], health: Health
) -> Decision:
    """A new leader epoch. Who leaves the in-sync replicas stays eligible below min ISR (KIP-966)."""
    assert leader in in_sync_replicas or leader == partition.leader, "who is elected is in sync (I1)"
    assert {*partition.in_sync_replicas, leader}.issuperset(in_sync_replicas), "only a leader adds others (I2)"
    eligible: tuple[BrokerId, ...] = ()
    if len(in_sync_replicas) < effective_min_in_sync(partition, health):
        eligible = tuple(
            each for each in partition.replicas if each in _members(partition).difference(in_sync_replicas)
        )
    return Decision(
        Partition(
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
            eligible_replicas=eligible,
            eligible_epochs=_recorded(partition, eligible, health),
        )
    )


def _unclean(partition: Partition, leader: BrokerId, health: Health) -> Decision:
    """What the new leader has is the truth from now on: nobody else is known to hold it."""
    changed = replace(
        partition,
        leader=leader,
        leader_epoch=partition.leader_epoch + 1,
        in_sync_replicas=(leader,),
        in_sync_epochs=_in_sync_epochs(partition, leader, (leader,), health),
        eligible_replicas=(),
        eligible_epochs={},
    )
    return Decision(changed, is_unclean=True)


def _left_without_leader(partition: Partition) -> Decision:
    """The in-sync replicas are kept with their incarnations: they say who may lead again (KAFKA-3096)."""
    return Decision(replace(partition, leader=NO_BROKER, leader_epoch=partition.leader_epoch + 1))


def _in_sync_epochs(
    partition: Partition, leader: BrokerId, in_sync_replicas: Iterable[BrokerId], health: Health
) -> dict[BrokerId, int]:
    """The incarnations that this decision is about; whoever is registered when it is written may be another (R41)."""
    doubted = health.restarted - health.clean
    found: dict[BrokerId, int] = {}
    for each in in_sync_replicas:
        is_present = each == leader or (each in health.online and each not in doubted)
        epoch = (health.epochs if is_present else partition.in_sync_epochs).get(each)
        if epoch is not None:
            found[each] = epoch
    return found


def _recorded(partition: Partition, replicas: Iterable[BrokerId], health: Health) -> dict[BrokerId, int]:
    """In which incarnation they had everything; where nobody wrote it down, the present one if they never went."""
    found: dict[BrokerId, int] = {}
    for each in replicas:
        epoch = partition.recorded_epoch(each)
        if epoch is None and each not in health.restarted:
            epoch = health.epochs.get(each)
        if epoch is not None:
            found[each] = epoch
    return found
