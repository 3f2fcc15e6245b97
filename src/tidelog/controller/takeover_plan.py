"""Takeover plan: topics, replicas and leaders derived from the log inventories of all brokers (R44)."""

# Core: no clock, no I/O, no await.

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import NamedTuple

from tidelog.cluster.inventory import Backup, FoundLog, Inventory
from tidelog.cluster.topic_names import check_topic_name
from tidelog.errors import InvalidTopic
from tidelog.types import NO_LEADER_EPOCH, NO_PRODUCER_ID, BrokerId, TopicPartition, Uuid, ids_text, uuid_text

FORCE = "--set unclean.takeover.enable=true"
NAMED_AT_MOST = 5
SPARE_PRODUCER_IDS = 1_000_000
"""Added if no backup has the last producer id: some ids may be in use without a record in the logs."""
SPARE_LEADER_EPOCHS = 1000
"""Backups lag behind the epochs that clients have seen, and clients ignore metadata with an older epoch."""

Holders = Mapping[BrokerId, FoundLog]


class Problem(NamedTuple):
    """Reason why the available logs may lack acknowledged records."""

    sentence: str
    may_pass: bool = False
    """The problem may disappear when more brokers start."""
    can_be_forced: bool = True


@dataclass(frozen=True, slots=True)
class PlannedPartition:
    index: int
    replicas: tuple[BrokerId, ...]
    """The leader comes first."""
    in_sync_replicas: tuple[BrokerId, ...]
    leader_epoch: int


class PlannedTopic(NamedTuple):
    name: str
    topic_id: Uuid | None
    partitions: tuple[PlannedPartition, ...]
    configs: Mapping[str, str] | None
    """None: unknown."""


class TakeoverPlan(NamedTuple):
    topics: tuple[PlannedTopic, ...]
    last_producer_id: int
    problems: tuple[Problem, ...]
    broker_configs: Mapping[str, Mapping[str, str]] = {}
    group_configs: Mapping[str, Mapping[str, str]] = {}
    """Dynamic settings, as the newest backup has them."""
    security_nodes: Mapping[str, str] = {}
    """Users, client quotas and ACLs, as the newest backup has them."""

    @property
    def found(self) -> str:
        """Number of topics and partitions, as text."""
        partitions = sum(len(topic.partitions) for topic in self.topics)
        return f"{_plural(len(self.topics), 'topic')} with {_plural(partitions, 'partition')}"

    def obstacle(self, *, is_forced: bool, has_waited: bool) -> Problem | None:
        """The problem that delays or forbids the takeover; None if it may proceed."""
        if not is_forced:
            return next(iter(self.problems), None)
        pending = (each for each in self.problems if not each.can_be_forced or (each.may_pass and not has_waited))
        return next(pending, None)


def plan_takeover(
    inventories: Mapping[BrokerId, Inventory], silent: Collection[BrokerId] = (), restored_by: BrokerId | None = None
) -> TakeoverPlan:
    """Deterministic for given inventories. `silent`: registered brokers without an inventory.

    `restored_by`: the broker whose log directories had the cluster id.
    """
    holders: dict[str, dict[int, dict[BrokerId, FoundLog]]] = {}
    for broker_id in sorted(inventories):
        for log in inventories[broker_id].logs:
            topic, partition = log.topic_partition
            if _is_possible(topic):
                holders.setdefault(topic, {}).setdefault(partition, {})[broker_id] = log
    backups = [each.backup for each in inventories.values() if each.backup is not None]
    newest = max(backups, key=lambda backup: (backup.controller_epoch, backup.written_ms), default=Backup())
    configs = newest.topic_configs
    members = frozenset[BrokerId]().union(*(backup.members for backup in backups))
    restorer = frozenset(() if restored_by is None else (restored_by,))
    problems = [
        *_conflicting_ids(holders),
        *_missing_brokers(inventories, silent, members | restorer),
        *_missing_directories(inventories, members),
        *_missing_partitions(holders),
        *_diverging_logs(holders, configs),
    ]
    leading: Counter[BrokerId] = Counter()
    backup_epoch = max((backup.leader_epoch for backup in backups), default=NO_LEADER_EPOCH)
    topics = tuple(
        PlannedTopic(
            name,
            next(iter(_ids(partitions)), None),
            tuple(_partitions(partitions, leading, backup_epoch)),
            configs.get(name),
        )
        for name, partitions in sorted(holders.items())
    )
    last_producer_id = _last_producer_id(list(inventories.values()), backups) if topics else NO_PRODUCER_ID
    return TakeoverPlan(
        topics,
        last_producer_id,
        tuple(problems),
        newest.broker_configs,
        newest.group_configs,
        newest.security_nodes,
    )


def _is_possible(topic: str) -> bool:
    """True if the name of a log directory can be a topic name."""
    try:
        check_topic_name(topic)
    except InvalidTopic:
        return False
    return True


def _partitions(
    found: Mapping[int, Holders], leading: Counter[BrokerId], backup_epoch: int
) -> Iterable[PlannedPartition]:
    """Partitions from 0 to the highest index. A missing one starts empty on the replicas of the first one."""
    for index in range(max(found) + 1):
        holders = found.get(index) or dict.fromkeys(found[min(found)], _empty_log(index))
        yield _partition(index, holders, leading, backup_epoch)


def _empty_log(index: int) -> FoundLog:
    return FoundLog(TopicPartition("", index), None, NO_LEADER_EPOCH, 0, 0)


def _partition(index: int, holders: Holders, leading: Counter[BrokerId], backup_epoch: int) -> PlannedPartition:
    """Brokers with the newest log are in sync; of these, the one that leads the fewest partitions is the leader."""
    newest = max(log.completeness for log in holders.values())
    equal = sorted(broker_id for broker_id, log in holders.items() if log.completeness == newest)
    leader = min(equal, key=lambda broker_id: (leading[broker_id], broker_id))
    leading[leader] += 1
    followers = _rotated([each for each in equal if each != leader], index)
    behind = [broker_id for broker_id in sorted(holders) if broker_id not in equal]
    last_epoch = max(backup_epoch, *(log.latest_epoch for log in holders.values()))
    return PlannedPartition(
        index, (leader, *followers, *behind), (leader, *followers), last_epoch + 1 + SPARE_LEADER_EPOCHS
    )


def _rotated(brokers: Sequence[BrokerId], index: int) -> list[BrokerId]:
    """Rotate the replicas, so that the leaders of a failed broker spread over the others."""
    start = index % len(brokers) if brokers else 0
    return [*brokers[start:], *brokers[:start]]


def _last_producer_id(inventories: Collection[Inventory], backups: Iterable[Backup]) -> int:
    """The highest producer id that may be in use."""
    noted = max((backup.last_producer_id for backup in backups), default=NO_PRODUCER_ID)
    found = max((each.last_producer_id for each in inventories if each.logs), default=NO_PRODUCER_ID)
    has_notes = all(each.backup is not None for each in inventories if each.logs)
    return max(noted, found if has_notes else found + SPARE_PRODUCER_IDS)


def _ids(partitions: Mapping[int, Holders]) -> dict[Uuid, set[BrokerId]]:
    """Topic ids found in the logs of a topic, with the brokers that have them."""
    found: dict[Uuid, set[BrokerId]] = {}
    for holders in partitions.values():
        for broker_id, log in holders.items():
            if log.topic_id is not None:
                found.setdefault(log.topic_id, set()).add(broker_id)
    return found


def _conflicting_ids(holders: Mapping[str, Mapping[int, Holders]]) -> Iterable[Problem]:
    for name, partitions in sorted(holders.items()):
        ids = _ids(partitions)
        if len(ids) > 1:
            listed = " and ".join(
                f"{uuid_text(topic_id)} on {_brokers(brokers)}" for topic_id, brokers in sorted(ids.items())
            )
            yield Problem(
                f"there are two topics named {name}: {listed} (see partition.metadata in their directories)."
                f" Rename the directories of the one you do not want so that they end in -stray"
                f" (mv {name}-0 {name}-0-stray), or restore the store",
                can_be_forced=False,
            )


def _missing_brokers(
    inventories: Mapping[BrokerId, Inventory], silent: Collection[BrokerId], members: frozenset[BrokerId]
) -> Iterable[Problem]:
    missing = members - inventories.keys()
    if missing:
        yield Problem(
            f"{_brokers(missing)} of this cluster {_is(missing)} not running, and may hold newer records."
            f" Start {_it(missing)}, or restore the store; to go on without {_it(missing)}, start with {FORCE}",
            may_pass=True,
        )
    unheard = set(silent) - missing
    if unheard:
        yield Problem(
            f"{_brokers(unheard)} {_is(unheard)} running, but did not list what {_is(unheard)} in the log directories;"
            " start all brokers with the same version",
            may_pass=True,
            can_be_forced=False,
        )


def _missing_directories(inventories: Mapping[BrokerId, Inventory], members: frozenset[BrokerId]) -> Iterable[Problem]:
    remedy = f"Put back what was there, or restore the store; to go on without it, start with {FORCE}"
    for broker_id, inventory in sorted(inventories.items()):
        if inventory.offline_directories:
            paths = ", ".join(inventory.offline_directories)
            yield Problem(f"broker {broker_id} cannot read {paths}, where newer records may be. {remedy}")
        elif inventory.backup is None and broker_id in members:
            yield Problem(f"broker {broker_id} held replicas, and its log directories are new. {remedy}")
        elif inventory.empty_directories and broker_id in members:
            paths = ", ".join(inventory.empty_directories)
            yield Problem(f"broker {broker_id} held replicas, and {paths} is new. {remedy}")
        elif inventory.missing_directories and broker_id in members:
            ids = ", ".join(inventory.missing_directories)
            yield Problem(
                f"broker {broker_id} held replicas, and a log directory that it had is not in log.dirs any more"
                f" (directory.id={ids} in meta.properties). {remedy}"
            )


def _missing_partitions(holders: Mapping[str, Mapping[int, Holders]]) -> Iterable[Problem]:
    for name, partitions in sorted(holders.items()):
        gaps = sorted(set(range(max(partitions) + 1)) - partitions.keys())
        if gaps:
            yield Problem(
                f"no running broker holds partition {_listed(gaps)} of topic {name}, of which there are"
                f" {_listed(sorted(partitions))}. Start the other brokers, or restore the store; to have"
                f" {'it' if len(gaps) == 1 else 'them'} empty, start with {FORCE}",
                may_pass=True,
            )


def _diverging_logs(
    holders: Mapping[str, Mapping[int, Holders]], configs: Mapping[str, Mapping[str, str]]
) -> Iterable[Problem]:
    """Logs with committed records that the log of the future leader lacks: an unclean leader was elected before."""
    for name, partitions in sorted(holders.items()):
        if configs.get(name, {}).get("unclean.leader.election.enable") == "true":
            continue  # the topic allows it
        for index, logs in sorted(partitions.items()):
            leader = max(logs, key=lambda broker_id: logs[broker_id].completeness)
            for broker_id, log in sorted(logs.items()):
                # What retention has deleted nobody lacks: a log that it emptied has no epochs to compare.
                shared = max(log.shared_end(logs[leader]), log.log_start_offset)
                if shared < log.high_watermark:
                    yield Problem(
                        f"broker {broker_id} has records of {TopicPartition(name, index)} up to offset"
                        f" {log.high_watermark - 1} that were committed, while broker {leader} has later ones that go"
                        f" on from offset {shared}. Keep a copy of both directories, and restore the store; to go on"
                        f" with what broker {leader} has, start with {FORCE}"
                    )


def _listed(numbers: Sequence[int]) -> str:
    more = f" and {len(numbers) - NAMED_AT_MOST} more" if len(numbers) > NAMED_AT_MOST else ""
    return ", ".join(map(str, numbers[:NAMED_AT_MOST])) + more


def _brokers(broker_ids: AbstractSet[BrokerId]) -> str:
    return f"broker{'' if len(broker_ids) == 1 else 's'} {ids_text(sorted(broker_ids)).replace(',', ', ')}"


def _is(broker_ids: AbstractSet[BrokerId]) -> str:
    return "is" if len(broker_ids) == 1 else "are"


def _it(broker_ids: AbstractSet[BrokerId]) -> str:
    return "it" if len(broker_ids) == 1 else "them"


def _plural(count: int, thing: str) -> str:
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"
