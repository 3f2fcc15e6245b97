"""Control plane of a broker: LeaderAndIsr, UpdateMetadata and StopReplica requests of the controller.

Requests are validated and processed one at a time, in order. Requests with an old controller epoch or an old broker
epoch are refused.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from tidelog.cluster.image import ClusterImage
from tidelog.cluster.topic_names import check_topic_name
from tidelog.controller.topic_validation import MAX_PARTITIONS_PER_TOPIC
from tidelog.errors import (
    ClusterAuthorizationFailed,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidRequest,
    KafkaError,
    StaleBrokerEpoch,
    StaleControllerEpoch,
)
from tidelog.replication.assignment import LeaderAddress, PartitionAssignment, ReplicaStop
from tidelog.replication.replica_manager import ReplicaManager
from tidelog.server.cluster_state import ClusterState
from tidelog.server.config_changes import ConfigChanges
from tidelog.store.interface import StoreError
from tidelog.types import NO_BROKER, BrokerId, TopicPartition, Uuid

logger = logging.getLogger(__name__)


def check_partition(topic: str, index: int) -> None:
    """The name becomes part of a path, the index the length of a list. Raises InvalidTopic, InvalidPartitions."""
    check_topic_name(topic)
    if not 0 <= index < MAX_PARTITIONS_PER_TOPIC:
        raise InvalidPartitions(f"{topic} cannot have a partition {index}")


def assignment_error(assignment: PartitionAssignment) -> KafkaError | None:
    try:
        check_partition(*assignment.topic_partition)
        _check_role(assignment)
    except KafkaError as error:
        return error
    return None


def _check_role(assignment: PartitionAssignment) -> None:
    replicas = assignment.replicas
    if len(set(replicas)) < len(replicas):
        raise InvalidReplicaAssignment(f"{assignment.topic_partition} names a replica twice: {replicas}")
    if assignment.leader_epoch < 0 or assignment.leader < NO_BROKER:
        raise InvalidRequest(f"{assignment.topic_partition} has an invalid leader or leader epoch")
    if assignment.leader != NO_BROKER and assignment.leader not in assignment.in_sync_replicas:
        raise InvalidRequest(f"the leader of {assignment.topic_partition} is not in its ISR (I1)")


RETRY_PAUSE_S = 0.2
UNKNOWN_EPOCH = -1
REGISTRATION_WAIT_S = 10.0
"""Maximum wait of a request for this broker's registration: less than a controller waits for the response."""

MAX_ROLES_PER_STEP = 12
"""A new log takes a millisecond: directory, segment and metadata files."""

Errors = dict[TopicPartition, KafkaError | None]

T = TypeVar("T")


class Sender:
    """The controller that sent a request, and the broker epoch that it addresses."""

    __slots__ = ("broker_epoch", "controller_epoch", "controller_id")

    def __init__(self, controller_id: BrokerId, controller_epoch: int, broker_epoch: int) -> None:
        self.controller_id = controller_id
        self.controller_epoch = controller_epoch
        self.broker_epoch = broker_epoch


class Registration(Protocol):
    """This broker's current registration: server.membership.Membership."""

    @property
    def broker_epoch(self) -> int: ...

    async def wait_until_registered(self, timeout_s: float) -> None: ...


class ControlPlane:
    """Reads the configs of new topics from the store first. Each partition gets its role in one step without await."""

    def __init__(
        self,
        cluster: ClusterState,
        replicas: ReplicaManager,
        config_changes: ConfigChanges,
        registration: Registration,
    ) -> None:
        self._cluster = cluster
        self._replicas = replicas
        self._config_changes = config_changes
        self._registration = registration
        self._turn = asyncio.Lock()

    async def become_leader_or_follower(
        self,
        sender: Sender,
        assignments: Sequence[PartitionAssignment],
        live_leaders: Mapping[BrokerId, LeaderAddress],
    ) -> Errors:
        """If a partition is named twice, the last assignment wins. Raises StaleControllerEpoch, StaleBrokerEpoch."""
        by_partition = {each.topic_partition: each for each in assignments}
        rejected: Errors = {
            each: error for each, found in by_partition.items() if (error := assignment_error(found)) is not None
        }
        accepted = [found for each, found in by_partition.items() if each not in rejected]
        await self._registration.wait_until_registered(REGISTRATION_WAIT_S)
        async with self._turn:
            self._check(sender)
            await self._prepare((each.topic_partition.topic, each.topic_id) for each in accepted)
            outcomes = await self._in_steps(
                sender,
                accepted,
                lambda step: self._replicas.become_leader_or_follower(sender.controller_epoch, step, live_leaders),
            )
            return outcomes | rejected

    async def stop_replicas(self, sender: Sender, stops: Sequence[ReplicaStop]) -> Errors:
        """Raises StaleControllerEpoch, StaleBrokerEpoch."""
        await self._registration.wait_until_registered(REGISTRATION_WAIT_S)
        async with self._turn:
            return await self._in_steps(
                sender, stops, lambda step: self._replicas.stop_replicas(sender.controller_epoch, step)
            )

    async def _in_steps(self, sender: Sender, changes: Sequence[T], perform: Callable[[Sequence[T]], Errors]) -> Errors:
        """A thousand role changes take seconds: clients are served between the steps."""
        outcomes: Errors = {}
        for first in range(0, max(1, len(changes)), MAX_ROLES_PER_STEP):
            if first:
                await asyncio.sleep(0)
            self._check(sender)
            outcomes |= perform(changes[first : first + MAX_ROLES_PER_STEP])
        return outcomes

    async def update_image(
        self,
        sender: Sender,
        topics: Sequence[tuple[str, Uuid]],
        updated: Callable[[ClusterImage, Callable[[str], Mapping[str, str]]], ClusterImage],
    ) -> None:
        """Apply UpdateMetadata: `updated` computes the new image from the old one and the configs of `topics`.

        Raises StaleControllerEpoch, StaleBrokerEpoch.
        """
        await self._registration.wait_until_registered(REGISTRATION_WAIT_S)
        async with self._turn:
            self._check(sender)
            await self._prepare(topics)
            self._check(sender)
            self._replicas.controller_epoch = sender.controller_epoch
            image = updated(self._cluster.image, self._cluster.topic_configs)
            self._cluster.apply(image, [name for name, _ in topics])
            self._forget_prepared()

    def has_current_broker_epoch(self, sender: Sender) -> bool:
        """Whether the sender knows the current broker epoch, which is never sent to clients."""
        return sender.broker_epoch == self._registration.broker_epoch

    def _check(self, sender: Sender) -> None:
        known_epoch = self._replicas.controller_epoch
        if sender.controller_epoch < known_epoch:
            raise StaleControllerEpoch(f"controller epoch {sender.controller_epoch} is older than {known_epoch}")
        own_epoch = self._registration.broker_epoch
        if sender.broker_epoch == UNKNOWN_EPOCH:
            raise ClusterAuthorizationFailed("the request does not say for which broker epoch it is")
        if sender.broker_epoch != own_epoch:
            raise StaleBrokerEpoch(
                f"the request is for broker epoch {sender.broker_epoch}; the current one is {own_epoch}"
            )

    async def _prepare(self, topics: Iterable[tuple[str, Uuid]]) -> None:
        """Read the configs of topics that are neither in the image nor read by an earlier request."""
        known, prepared = self._cluster.image.topic_names, self._cluster.early_topics
        missing = {
            name: topic_id
            for name, topic_id in topics
            if known.get(topic_id) != name and prepared.get(name) != topic_id
        }
        while missing:
            try:
                await self._config_changes.load_topics(list(missing))
            except StoreError as error:
                logger.warning("controller request waits for topic configs, retrying reason=%s", error)
                await asyncio.sleep(RETRY_PAUSE_S)
            else:
                prepared |= missing
                return

    def _forget_prepared(self) -> None:
        known, prepared = self._cluster.image.topic_names, self._cluster.early_topics
        for name in [name for name, topic_id in prepared.items() if known.get(topic_id) == name]:
            del prepared[name]
