"""Administrative requests, one attempt each: the client library would hide errors by its retries."""

from collections.abc import Mapping, Sequence

from tidelog.client.consumer.offsets import by_topic
from tidelog.client.network.connection import ClientConnection
from tidelog.client.routing.cluster import Cluster
from tidelog.client.routing.leaders import Outcomes, ask_leaders
from tidelog.errors import NO_ERROR, error_of, raise_error
from tidelog.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from tidelog.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from tidelog.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from tidelog.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from tidelog.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, ElectLeadersTopic
from tidelog.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tidelog.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from tidelog.types import BrokerId, TopicPartition

TIMEOUT_S = 10.0
TIMEOUT_MS = int(TIMEOUT_S * 1000)
TOPIC, BROKER = 2, 4
SET, DELETE = 0, 1
CLUSTER_WIDE = ""


async def add_partitions(cluster: Cluster, topic: str, count: int) -> None:
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=topic, count=count, assignments=None)], timeout_ms=TIMEOUT_MS
    )
    response = await cluster.ask_controller(request, CreatePartitionsResponse)
    for result in response.results:
        raise_error(result.error_code, message=result.error_message)


async def alter_settings(
    cluster: Cluster, name: str, settings: Mapping[str, str | None], *, resource: int = TOPIC
) -> None:
    """None removes an override."""
    configs = [
        AlterableConfig(name=key, config_operation=DELETE if value is None else SET, value=value)
        for key, value in settings.items()
    ]
    changed = AlterConfigsResource(resource_type=resource, resource_name=name, configs=configs)
    response = await cluster.ask_controller(
        IncrementalAlterConfigsRequest(resources=[changed]), IncrementalAlterConfigsResponse
    )
    for result in response.responses:
        raise_error(result.error_code, message=result.error_message)


async def delete_records(cluster: Cluster, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Delete records and return the low watermarks."""

    async def ask(connection: ClientConnection, epochs: Mapping[TopicPartition, int]) -> Outcomes[int]:
        topics = by_topic(
            epochs, lambda key: DeleteRecordsPartition(partition_index=key.partition, offset=offsets[key])
        )
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=topic, partitions=found) for topic, found in topics.items()],
            timeout_ms=TIMEOUT_MS,
        )
        response = await connection.ask(request, DeleteRecordsResponse, timeout_s=TIMEOUT_S)
        return {
            TopicPartition(topic.name, found.partition_index): found.low_watermark
            if found.error_code == NO_ERROR
            else error_of(found.error_code, f"{topic.name}-{found.partition_index}")
            for topic in response.topics
            for found in topic.partitions
        }

    return await ask_leaders(cluster, "deleting records", offsets, ask, TIMEOUT_S)


async def elect_leaders(cluster: Cluster, election_type: int, partitions: Sequence[TopicPartition] | None) -> None:
    """Errors of partitions that need no election, or cannot have one, are ignored."""
    topics = None
    if partitions is not None:
        found = by_topic(partitions, lambda key: key.partition)
        topics = [ElectLeadersTopic(topic=topic, partitions=indexes) for topic, indexes in found.items()]
    request = ElectLeadersRequest(election_type=election_type, topic_partitions=topics, timeout_ms=TIMEOUT_MS)
    response = await cluster.ask_controller(request, ElectLeadersResponse)
    raise_error(response.error_code)


async def alter_log_dirs(cluster: Cluster, broker_id: BrokerId, paths: Mapping[TopicPartition, str]) -> None:
    """Errors of partitions that the broker does not have, or has in a failed directory, are ignored."""
    dirs = []
    for path in sorted(set(paths.values())):
        found = by_topic([each for each in paths if paths[each] == path], lambda key: key.partition)
        topics = [AlterReplicaLogDirTopic(name=topic, partitions=indexes) for topic, indexes in found.items()]
        dirs.append(AlterReplicaLogDir(path=path, topics=topics))
    await cluster.refresh()
    await cluster.ask_broker(broker_id, AlterReplicaLogDirsRequest(dirs=dirs), AlterReplicaLogDirsResponse)


async def alter_reassignments(cluster: Cluster, targets: Mapping[TopicPartition, Sequence[BrokerId] | None]) -> None:
    """None cancels."""
    topics = by_topic(targets, lambda key: ReassignablePartition(partition_index=key.partition, replicas=targets[key]))
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=topic, partitions=found) for topic, found in topics.items()],
        timeout_ms=TIMEOUT_MS,
    )
    response = await cluster.ask_controller(request, AlterPartitionReassignmentsResponse)
    raise_error(response.error_code, message=response.error_message)
    for result in response.responses:
        for found in result.partitions:
            raise_error(found.error_code, message=found.error_message)


async def list_reassignments(cluster: Cluster) -> list[TopicPartition]:
    request = ListPartitionReassignmentsRequest(topics=None, timeout_ms=TIMEOUT_MS)
    response = await cluster.ask_controller(request, ListPartitionReassignmentsResponse)
    raise_error(response.error_code, message=response.error_message)
    return [
        TopicPartition(topic.name, found.partition_index) for topic in response.topics for found in topic.partitions
    ]
