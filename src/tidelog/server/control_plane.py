"""Requests of the controller to this broker: checked, taken one at a time, in order, and only from the present one."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from tidelog.cluster.image import ClusterImage
from tidelog.cluster.topic_names import check_topic_name
from tidelog.controller.topic_validation import MAX_PARTITIONS_PER_TOPIC
from tidelog.errors import (
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
    """A name that is part of a path, a number that is the length of a list. InvalidTopic, InvalidPartitions."""
    check_topic_name(topic)
    if not 0 <= index < MAX_PARTITIONS_PER_TOPIC:
        raise InvalidPartitions(f"{topic} cannot have a partition {index}")


def refusal_of(assignment: PartitionAssignment) -> KafkaError | None:
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
        raise InvalidRequest(f"{assignment.topic_partition} has no such leader or leader epoch")
    if assignment.leader != NO_BROKER and assignment.leader not in assignment.in_sync_replicas:
        raise InvalidRequest(f"the leader of {assignment.topic_partition} is not in sync with itself (I1)")


RETRY_PAUSE_S = 0.2
UNKNOWN_EPOCH = -1
PATIENCE_FOR_OWN_EPOCH_S = 10.0
"""How long a request waits for this broker's registration: less than a controller waits for its answer."""

Errors = dict[TopicPartition, KafkaError | None]


class Sender:
    """Who sent a request, and for which life of this broker it was meant."""

    __slots__ = ("broker_epoch", "controller_epoch", "controller_id")

    def __init__(self, controller_id: BrokerId, controller_epoch: int, broker_epoch: int) -> None:
        self.controller_id = controller_id
        self.controller_epoch = controller_epoch
        self.broker_epoch = broker_epoch


class Registration(Protocol):
    """This broker's registration of now: server.membership.Membership."""

    @property
    def broker_epoch(self) -> int: ...

    async def wait_until_registered(self, timeout_s: float) -> None: ...


class ControlPlane:
    """The settings of topics that are new here are read from the store first; the change itself is one step."""

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
        """Of two assignments of one partition the last counts. Raises StaleControllerEpoch, StaleBrokerEpoch."""
        wanted = {each.topic_partition: each for each in assignments}
        refused: Errors = {each: error for each, found in wanted.items() if (error := refusal_of(found)) is not None}
        accepted = [found for each, found in wanted.items() if each not in refused]
        await self._registration.wait_until_registered(PATIENCE_FOR_OWN_EPOCH_S)
        async with self._turn:
            self._check(sender)
            await self._prepare((each.topic_partition.topic, each.topic_id) for each in accepted)
            self._check(sender)
            outcomes = self._replicas.become_leader_or_follower(sender.controller_epoch, accepted, live_leaders)
            return outcomes | refused

    async def stop_replicas(self, sender: Sender, stops: Sequence[ReplicaStop]) -> Errors:
        """Raises StaleControllerEpoch, StaleBrokerEpoch."""
        await self._registration.wait_until_registered(PATIENCE_FOR_OWN_EPOCH_S)
        async with self._turn:
            self._check(sender)
            return self._replicas.stop_replicas(sender.controller_epoch, stops)

    async def update_image(
        self,
        sender: Sender,
        topics: Sequence[tuple[str, Uuid]],
        updated: Callable[[ClusterImage, Callable[[str], Mapping[str, str]]], ClusterImage],
    ) -> None:
        """`updated` makes the new image of the old one and of the settings of `topics`, those that the change names.

        Raises StaleControllerEpoch, StaleBrokerEpoch.
        """
        await self._registration.wait_until_registered(PATIENCE_FOR_OWN_EPOCH_S)
        async with self._turn:
            self._check(sender)
            await self._prepare(topics)
            self._check(sender)
            self._replicas.controller_epoch = sender.controller_epoch
            image = updated(self._cluster.image, self._cluster.topic_configs)
            self._cluster.apply(image, [name for name, _ in topics])
            self._forget_prepared()

    def knows_this_life(self, sender: Sender) -> bool:
        """The sender names the present epoch of this broker: no client is told it."""
        return sender.broker_epoch == self._registration.broker_epoch

    def _check(self, sender: Sender) -> None:
        known_epoch = self._replicas.controller_epoch
        if sender.controller_epoch < known_epoch:
            raise StaleControllerEpoch(f"controller epoch {sender.controller_epoch} is over: {known_epoch} is known")
        own_epoch = self._registration.broker_epoch
        if sender.broker_epoch != UNKNOWN_EPOCH and sender.broker_epoch < own_epoch:
            raise StaleBrokerEpoch(
                f"meant for the broker when its epoch was {sender.broker_epoch}; it is {own_epoch} now"
            )

    async def _prepare(self, topics: Iterable[tuple[str, Uuid]]) -> None:
        """Read the settings of topics that neither the image nor an earlier request has."""
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
                logger.warning("the controller's request waits for the settings of its topics reason=%s", error)
                await asyncio.sleep(RETRY_PAUSE_S)
            else:
                prepared |= missing
                return

    def _forget_prepared(self) -> None:
        known, prepared = self._cluster.image.topic_names, self._cluster.early_topics
        for name in [name for name, topic_id in prepared.items() if known.get(topic_id) == name]:
            del prepared[name]
