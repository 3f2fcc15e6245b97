"""What the controller reacts to. Events that are equal and wait at the same time are one."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from tidelog.controller.context import Answer
from tidelog.controller.states import Replica
from tidelog.errors import KafkaError
from tidelog.types import BrokerId, TopicPartition


class Event:
    """Equal to every other of its kind, unless the kind has fields."""

    @property
    def name(self) -> str:
        return type(self).__name__

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self)

    def __hash__(self) -> int:
        return hash(type(self))

    def __repr__(self) -> str:
        return f"{self.name}()"


# -- the office


class Startup(Event):
    """Try to become controller."""


class Reelect(Event):
    """/controller changed, or this controller resigned."""


@dataclass(frozen=True, slots=True)
class RegisterBrokerAndReelect(Event):
    """The broker joins anew: first its registration, then the election."""

    register: Callable[[], Awaitable[None]]


class Expire(Event):
    """The session has ended: nothing that waits counts any more."""


# -- what the controller in office watches


class BrokerChange(Event):
    pass


class TopicChange(Event):
    pass


@dataclass(frozen=True, slots=True)
class PartitionModification(Event):
    topic: str


class TopicDeletion(Event):
    pass


class InSyncChange(Event):
    """Leaders have changed their in-sync replicas (R21)."""


class LogDirectoryEvent(Event):
    pass


class PreferredElection(Event):
    pass


class Reassignment(Event):
    pass


@dataclass(frozen=True, slots=True)
class LeaderImbalanceCheck(Event):
    """Time to see whether preferred leaders should be elected (R40)."""

    is_periodic: bool = False


# -- what it is asked


class Question(Event):
    """Somebody waits for the answer."""

    answer: asyncio.Future[Any]


@dataclass(frozen=True, slots=True)
class ControlledShutdown(Question):
    broker_id: BrokerId
    broker_epoch: int
    answer: asyncio.Future[set[TopicPartition]]
    """The partitions that nobody else can lead."""


@dataclass(frozen=True, slots=True)
class ElectLeaders(Question):
    partitions: tuple[TopicPartition, ...] | None
    """None: all there are."""
    is_unclean: bool
    """Whoever is there shall lead what has no leader, in sync or not; else the preferred replicas shall lead."""
    answer: asyncio.Future[dict[TopicPartition, KafkaError | None]]


class OfflinePartitions(Event):
    """Something may help partitions without a leader: unclean elections were allowed, say."""


@dataclass(frozen=True, slots=True)
class TopicSettingsChange(Event):
    """min.insync.replicas decides who stays eligible (R42)."""

    topics: frozenset[str]


# -- what brokers answer


class RefusedReplica(NamedTuple):
    """A replica whose broker did not take the role it was given."""

    replica: Replica
    is_new: bool
    """As it was told: the replica has no records yet."""


@dataclass(frozen=True, slots=True)
class LeaderAndIsrAnswered(Event):
    broker_id: BrokerId
    broker_epoch: int
    """The registration that was asked: of an earlier one the answer means nothing (R43)."""
    failed: frozenset[Replica] = frozenset()
    """Their log directory is offline."""
    healthy: frozenset[Replica] = frozenset()
    refused: frozenset[RefusedReplica] = frozenset()
    """Told again until they are accepted, or something else is decided."""


@dataclass(frozen=True, slots=True)
class ResendLeaderAndIsr(Event):
    """A while after replicas were refused."""

    broker_id: BrokerId
    broker_epoch: int
    replicas: frozenset[RefusedReplica]


@dataclass(frozen=True, slots=True)
class LogEndsAnswered(Event):
    """A broker told where its logs of partitions without leader end (R42)."""

    broker_id: BrokerId
    answers: frozenset[tuple[TopicPartition, Answer]]


@dataclass(frozen=True, slots=True)
class ReplicasDeleted(Event):
    attempt: int
    """Which StopReplica is answered: only the last one that names a replica counts (R43)."""
    deleted: frozenset[Replica]
    failed: frozenset[Replica]
    """Their log directory is offline: they wait until their broker starts anew."""
    refused: frozenset[Replica] = frozenset()
    """They are to be deleted again, a while later."""


@dataclass(frozen=True, slots=True)
class DeleteAgain(Event):
    """A while after a broker failed to delete replicas of these topics."""

    topics: frozenset[str]
