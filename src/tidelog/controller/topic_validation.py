"""Validation and replica placement for CreateTopics and CreatePartitions: pure functions."""

# Core: no clock, no I/O, no await.

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tidelog.cluster.image import ClusterImage, PartitionRegistration, Topic
from tidelog.cluster.placement import place_replicas, random_start, start_after
from tidelog.cluster.topic_names import METADATA_TOPIC, check_topic_name, colliding_topics, prohibited_creation
from tidelog.config.resolution import validated_topic_settings
from tidelog.config.topic import TopicSettings
from tidelog.controller.elections import NO_STATE_VERSION
from tidelog.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopic,
    PolicyViolation,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from tidelog.types import NO_BROKER, BrokerId, Uuid

USE_DEFAULT = -1
MAX_PARTITIONS_PER_TOPIC = 100_000
MAX_NEW_PARTITIONS_PER_REQUEST = 10_000
"""Larger requests are taken for mistakes: they would delay all other requests."""


@dataclass(frozen=True, slots=True)
class NewTopic:
    """One topic of a CreateTopics request."""

    name: str
    partition_count: int = USE_DEFAULT
    replication_factor: int = USE_DEFAULT
    assignments: Sequence[tuple[int, tuple[BrokerId, ...]]] = ()
    """Replicas by partition index, if the client assigned them."""
    configs: Mapping[str, str | None] = field(default_factory=dict)


class MorePartitions(NamedTuple):
    """One topic of a CreatePartitions request, with the new total number of partitions."""

    name: str
    partition_count: int
    assignments: Sequence[tuple[BrokerId, ...]] | None = None


class TopicDefaults(NamedTuple):
    partition_count: int
    replication_factor: int
    settings: TopicSettings


def check_request_size(requests: Iterable[NewTopic], default_partition_count: int) -> None:
    """PolicyViolation if all topics of a request together have too many partitions."""
    total = 0
    for request in requests:
        count = default_partition_count if request.partition_count == USE_DEFAULT else request.partition_count
        total += len(request.assignments) or max(count, 0)
    if total > MAX_NEW_PARTITIONS_PER_REQUEST:
        raise PolicyViolation("Excessively large number of partitions per request.")


def decide_topic(
    request: NewTopic,
    image: ClusterImage,
    defaults: TopicDefaults,
    topic_id: Uuid,
    below: Callable[[int], int],
    absent: Sequence[BrokerId] = (),
) -> Topic:
    """The new topic. Raises the error that refuses it. `absent`: members of the cluster that are down."""
    _check_name(request.name, image)
    configs = _checked_configs(request.configs, defaults.settings)
    if request.assignments:
        replicas = _manual_assignment(request, image, absent)
    else:
        replicas = _placed(request, image, defaults, below, absent)
    partitions = tuple(partition_without_leader(index, assigned) for index, assigned in enumerate(replicas))
    return Topic(request.name, topic_id, partitions, configs)


def decide_more_partitions(
    request: MorePartitions, topic: Topic | None, image: ClusterImage, absent: Sequence[BrokerId] = ()
) -> tuple[PartitionRegistration, ...]:
    """The partitions to add. Raises the error that refuses them."""
    if topic is None:
        raise UnknownTopicOrPartition(f"The topic '{request.name}' does not exist.")
    count = len(topic.partitions)
    if request.partition_count == count:
        raise InvalidPartitions(f"Topic already has {count} partition(s).")
    if request.partition_count < count:
        raise InvalidPartitions(
            f"The topic {request.name} currently has {count} partition(s);"
            f" {request.partition_count} would not be an increase."
        )
    _check_partition_limit(request.partition_count)
    replicas = _added_replicas(request, topic, image, absent)
    return tuple(partition_without_leader(count + number, assigned) for number, assigned in enumerate(replicas))


def partition_without_leader(index: int, replicas: tuple[BrokerId, ...]) -> PartitionRegistration:
    """A partition before its first election."""
    return PartitionRegistration(index, replicas, NO_BROKER, 0, (), version=NO_STATE_VERSION)


def _check_name(name: str, image: ClusterImage) -> None:
    check_topic_name(name)
    if name == METADATA_TOPIC:
        raise prohibited_creation(name)
    if name in image.topics:
        raise TopicAlreadyExists(f"Topic '{name}' already exists.")
    collisions = colliding_topics(name, image.topics)
    if collisions:
        raise InvalidTopic(f"Topic '{name}' collides with existing topic: {', '.join(collisions)}")


def _checked_configs(configs: Mapping[str, str | None], defaults: TopicSettings) -> dict[str, str]:
    nulls = [name for name, value in configs.items() if value is None]
    if nulls:
        raise InvalidConfig(f"Null value not supported for topic configs: {','.join(nulls)}")
    given = {name: value for name, value in configs.items() if value is not None}
    validated_topic_settings(defaults, given)
    return given


def _placed(
    request: NewTopic,
    image: ClusterImage,
    defaults: TopicDefaults,
    below: Callable[[int], int],
    absent: Sequence[BrokerId],
) -> list[tuple[BrokerId, ...]]:
    factor = request.replication_factor
    if factor < USE_DEFAULT or factor == 0:
        raise InvalidReplicationFactor("Replication factor must be larger than 0, or -1 to use the default value.")
    count = defaults.partition_count if request.partition_count == USE_DEFAULT else request.partition_count
    factor = defaults.replication_factor if factor == USE_DEFAULT else factor
    return place_replicas(image.racks, count, factor, random_start(max(len(image.brokers), 1), below), absent)


def _manual_assignment(
    request: NewTopic, image: ClusterImage, absent: Sequence[BrokerId]
) -> list[tuple[BrokerId, ...]]:
    if request.replication_factor != USE_DEFAULT:
        raise InvalidRequest("A manual partition assignment was specified, but replication factor was not set to -1.")
    if request.partition_count != USE_DEFAULT:
        raise InvalidRequest("A manual partition assignment was specified, but numPartitions was not set to -1.")
    assigned: dict[int, tuple[BrokerId, ...]] = {}
    for index, replicas in request.assignments:
        if index in assigned:
            raise InvalidReplicaAssignment(f"Found multiple manual partition assignments for partition {index}")
        assigned[index] = replicas
    if sorted(assigned) != list(range(len(assigned))):
        raise InvalidReplicaAssignment("partitions should be a consecutive 0-based integer sequence")
    factor = len(assigned[0])
    for index, replicas in assigned.items():
        _check_replicas(index, replicas, factor, image, absent)
    return [assigned[index] for index in range(len(assigned))]


def _added_replicas(
    request: MorePartitions, topic: Topic, image: ClusterImage, absent: Sequence[BrokerId]
) -> list[tuple[BrokerId, ...]]:
    additional = request.partition_count - len(topic.partitions)
    first = topic.partitions[0].target_replicas  # while it moves it has those of both ends
    if request.assignments is None:
        start = start_after(len(topic.partitions), first[0], sorted(image.brokers))
        return place_replicas(image.racks, additional, len(first), start, absent)
    if len(request.assignments) != additional:
        raise InvalidReplicaAssignment(
            f"Attempted to add {additional} additional partition(s), but only {len(request.assignments)}"
            " assignment(s) were specified."
        )
    for index, replicas in enumerate(request.assignments, len(topic.partitions)):
        _check_replicas(index, replicas, len(first), image, absent)
    return list(request.assignments)


def _check_replicas(
    index: int, replicas: tuple[BrokerId, ...], factor: int, image: ClusterImage, absent: Sequence[BrokerId]
) -> None:
    if not replicas:
        raise InvalidReplicaAssignment("The manual partition assignment includes an empty replica list.")
    for broker in replicas:
        if broker not in image.brokers and broker not in absent:
            raise InvalidReplicaAssignment(
                f"The manual partition assignment includes broker {broker}, but no such broker is registered."
            )
        if replicas.count(broker) > 1:
            raise InvalidReplicaAssignment(
                f"The manual partition assignment includes the broker {broker} more than once."
            )
    if len(replicas) != factor:
        raise InvalidReplicaAssignment(
            f"The manual partition assignment includes a partition with {len(replicas)} replica(s),"
            f" but this is not consistent with previous partitions, which have {factor} replica(s)."
        )
    if image.brokers.keys().isdisjoint(replicas):
        raise InvalidReplicaAssignment(
            f"All brokers specified in the manual partition assignment for partition {index} are fenced or in"
            " controlled shutdown."
        )


def _check_partition_limit(count: int) -> None:
    if count > MAX_PARTITIONS_PER_TOPIC:
        raise InvalidPartitions(f"{count} partitions are more than the {MAX_PARTITIONS_PER_TOPIC} a topic may have.")
