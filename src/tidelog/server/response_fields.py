"""Response fields that several handlers share: errors, authorized operations, partitions, brokers."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from tidelog.cluster.image import BrokerRegistration, ClusterImage, PartitionRegistration
from tidelog.config.listeners import Endpoint
from tidelog.controller.configs import ConfigOutcome
from tidelog.errors import NO_ERROR, InvalidProducerEpoch, KafkaError, LeaderNotAvailable, ProducerFenced
from tidelog.types import NO_BROKER


def error_fields(error: KafkaError | None) -> dict[str, Any]:
    if error is None:
        return {"error_code": NO_ERROR, "error_message": None}
    return {"error_code": error.code, "error_message": error.message}


def code_for_producer(error: KafkaError, *, knows_fencing: bool) -> int:
    """Error code for a producer: INVALID_PRODUCER_EPOCH if it does not know PRODUCER_FENCED."""
    return InvalidProducerEpoch.code if isinstance(error, ProducerFenced) and not knows_fencing else error.code


class _DescribedGroup(Protocol):
    group_id: str
    error_code: int
    authorized_operations: int


def add_group_operations(groups: Iterable[_DescribedGroup], operations_of: Callable[[str], int]) -> None:
    for group in groups:
        if group.error_code == NO_ERROR:
            group.authorized_operations = operations_of(group.group_id)


def altered_fields(outcome: ConfigOutcome) -> dict[str, Any]:
    """One resource of an AlterConfigs or IncrementalAlterConfigs response."""
    return {
        "resource_type": outcome.resource_type,
        "resource_name": outcome.resource_name,
        **error_fields(outcome.error),
    }


def partition_fields(partition: PartitionRegistration, image: ClusterImage) -> dict[str, Any]:
    """Leader and replicas of a partition for clients. A leader that is not alive is reported as none."""
    leader = partition.leader if partition.leader in image.brokers else NO_BROKER
    return {
        "error_code": NO_ERROR if leader != NO_BROKER else LeaderNotAvailable.code,
        "partition_index": partition.index,
        "leader_id": leader,
        "leader_epoch": partition.leader_epoch,
        "replica_nodes": partition.replicas,
        "isr_nodes": partition.in_sync_replicas,
        "offline_replicas": [broker for broker in partition.replicas if broker not in image.brokers],
    }


def reachable_brokers(
    brokers: Iterable[BrokerRegistration], listener: str
) -> Iterator[tuple[BrokerRegistration, Endpoint]]:
    """Brokers with their endpoint on the listener that the client uses."""
    for broker in brokers:
        endpoint = broker.endpoint(listener)
        if endpoint is not None:
            yield broker, endpoint
