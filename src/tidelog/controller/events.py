"""Controller events. Equal events that are queued at the same time are handled once."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from tidelog.cluster.image import PartitionRegistration
from tidelog.controller.alter_partition import ProposedIsr
from tidelog.controller.context import LogEndResponse
from tidelog.controller.states import Replica
from tidelog.errors import KafkaError
from tidelog.types import BrokerId, TopicPartition


class Event:
    """An event without fields equals every other event of its class."""

    @property
    def name(self) -> str:
        return type(self).__name__

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self)

    def __hash__(self) -> int:
        return hash(type(self))

    def __repr__(self) -> str:
        return f"{self.name}()"


# ---- election


class Startup(Event):
    """Try to become controller."""


class Reelect(Event):
    """/controller changed, or this controller resigned."""


@dataclass(frozen=True, slots=True)
class RegisterBrokerAndReelect(Event):
    """The broker rejoins the cluster: first the registration, then the election."""

    register: Callable[[], Awaitable[None]]


class Expire(Event):
    """The session has ended: queued events are void."""


# ---- watches of the controller


class BrokerChange(Event):
    pass


class TopicChange(Event):
    pass


@dataclass(frozen=True, slots=True)
class PartitionModifications(Event):
    topic: str


class TopicDeletion(Event):
    pass


class IsrChangeNotification(Event):
    """Leaders changed the in-sync replicas of partitions (R21)."""


class LogDirEventNotification(Event):
    pass


class PreferredReplicaElection(Event):
    pass


class PartitionReassignment(Event):
    """/admin/reassign_partitions changed."""


@dataclass(frozen=True, slots=True)
class AutoPreferredReplicaLeaderElection(Event):
    """Check whether leadership is out of balance (R40)."""

    is_periodic: bool = False
    """Tolerates some imbalance; other checks restore all preferred leaders that are in sync."""


# ---- requests to the controller


class ControllerRequest(Event):
    """An event whose caller waits for `answer`."""

    answer: asyncio.Future[Any]


@dataclass(frozen=True, slots=True)
class ControlledShutdown(ControllerRequest):
    broker_id: BrokerId
    broker_epoch: int
    answer: asyncio.Future[set[TopicPartition]]
    """Partitions that no other broker can lead."""


@dataclass(frozen=True, slots=True)
class ElectLeaders(ControllerRequest):
    partitions: tuple[TopicPartition, ...] | None
    """None: all partitions."""
    is_unclean: bool
    """True: elect any live replica for partitions without a leader. False: elect the preferred replicas."""
    answer: asyncio.Future[dict[TopicPartition, KafkaError | None]]


@dataclass(frozen=True, slots=True)
class AlterPartitionReassignments(ControllerRequest):
    targets: tuple[tuple[TopicPartition, tuple[BrokerId, ...] | None], ...]
    """The replicas that each partition shall have; None cancels what is under way."""
    allow_replication_factor_change: bool
    answer: asyncio.Future[dict[TopicPartition, KafkaError | None]]


@dataclass(frozen=True, slots=True)
class AlterPartition(ControllerRequest):
    """A leader that does not write its ISR to the store itself, as Apache Kafka's brokers since 2.7, proposes one."""

    broker_id: BrokerId
    broker_epoch: int
    proposals: tuple[tuple[TopicPartition, ProposedIsr], ...]
    answer: asyncio.Future[dict[TopicPartition, PartitionRegistration | KafkaError]]


class UncleanLeaderElectionEnable(Event):
    """Unclean elections may now be allowed for partitions without a leader."""


@dataclass(frozen=True, slots=True)
class TopicSettingsChange(Event):
    """Topic settings changed: min.insync.replicas determines which replicas stay eligible (R42)."""

    topics: frozenset[str]


# ---- responses of brokers, and retries


class RejectedReplica(NamedTuple):
    """A replica whose broker refused its LeaderAndIsr state."""

    replica: Replica
    is_new: bool
    """`is_new` of the refused state: the replica has no records yet."""


@dataclass(frozen=True, slots=True)
class LeaderAndIsrResponseReceived(Event):
    broker_id: BrokerId
    broker_epoch: int
    """Registration to which the request was sent; a response of an earlier registration is ignored (R43)."""
    failed: frozenset[Replica] = frozenset()
    """Replicas whose log directory is offline."""
    healthy: frozenset[Replica] = frozenset()
    rejected: frozenset[RejectedReplica] = frozenset()
    """Sent again until accepted, or until the state changes."""


@dataclass(frozen=True, slots=True)
class ResendLeaderAndIsr(Event):
    """Retry, after a pause, of LeaderAndIsr for refused replicas."""

    broker_id: BrokerId
    broker_epoch: int
    replicas: frozenset[RejectedReplica]


@dataclass(frozen=True, slots=True)
class LogEndsResponseReceived(Event):
    """A broker reported the log ends of partitions without a leader (R42)."""

    broker_id: BrokerId
    responses: frozenset[tuple[TopicPartition, LogEndResponse]]


@dataclass(frozen=True, slots=True)
class TopicDeletionStopReplicaResponseReceived(Event):
    attempt: int
    """Number of the StopReplica. A response counts only if it is to the last one sent for a replica (R43)."""
    deleted: frozenset[Replica]
    failed: frozenset[Replica]
    """Replicas whose log directory is offline: they wait until their broker restarts."""
    rejected: frozenset[Replica] = frozenset()
    """Replicas to delete again after a pause."""


@dataclass(frozen=True, slots=True)
class RetryTopicDeletion(Event):
    """Retry, after a pause, of topic deletions that a broker refused."""

    topics: frozenset[str]


class DeleteRemovedReplicas(Event):
    """A while after a broker failed to delete replicas that reassignments have removed (R37)."""
