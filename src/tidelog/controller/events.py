"""What the controller reacts to. Events that are equal and wait at the same time are one."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tidelog.controller.states import Replica
from tidelog.types import BrokerId, TopicPartition


class Event:
    __slots__ = ()

    @property
    def name(self) -> str:
        return type(self).__name__


# -- the office


@dataclass(frozen=True, slots=True)
class Startup(Event):
    """Try to become controller."""


@dataclass(frozen=True, slots=True)
class Reelect(Event):
    """/controller changed, or this controller resigned."""


@dataclass(frozen=True, slots=True)
class RegisterBrokerAndReelect(Event):
    """The broker joins anew: first its registration, then the election."""

    register: Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Expire(Event):
    """The session has ended: nothing that waits counts any more."""


# -- what the controller in office watches


@dataclass(frozen=True, slots=True)
class BrokerChange(Event):
    pass


@dataclass(frozen=True, slots=True)
class TopicChange(Event):
    pass


@dataclass(frozen=True, slots=True)
class PartitionModification(Event):
    topic: str


@dataclass(frozen=True, slots=True)
class TopicDeletion(Event):
    pass


@dataclass(frozen=True, slots=True)
class InSyncChange(Event):
    """Leaders have changed their in-sync replicas (R21)."""


@dataclass(frozen=True, slots=True)
class LogDirectoryEvent(Event):
    pass


@dataclass(frozen=True, slots=True)
class PreferredElection(Event):
    pass


@dataclass(frozen=True, slots=True)
class Reassignment(Event):
    pass


# -- what it is asked


@dataclass(frozen=True, slots=True, eq=False)
class ControlledShutdown(Event):
    broker_id: BrokerId
    broker_epoch: int
    remaining: asyncio.Future[set[TopicPartition]]


@dataclass(frozen=True, slots=True)
class OfflinePartitions(Event):
    """Something may help partitions without a leader: unclean elections were allowed, say."""


# -- what brokers answer


@dataclass(frozen=True, slots=True)
class LeaderAndIsrAnswered(Event):
    failed: frozenset[Replica]
    """Their log directory is offline."""
    healthy: frozenset[Replica]


@dataclass(frozen=True, slots=True)
class ReplicasDeleted(Event):
    deleted: frozenset[Replica]
    failed: frozenset[Replica]
