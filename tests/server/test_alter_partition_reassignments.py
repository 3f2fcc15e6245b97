"""AlterPartitionReassignments and ListPartitionReassignments, through the wire protocol."""

from collections.abc import Sequence

import pytest

from tests.server.harness import Client, Harness, with_broker
from tests.server.test_forwarding import others
from tidelog.client.network.connection import ClientConnection
from tidelog.errors import (
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    NoReassignmentInProgress,
    NotController,
    UnknownTopicOrPartition,
)
from tidelog.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from tidelog.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopic,
)
from tidelog.server.controller_link import CLIENT_ID_PREFIX
from tidelog.simulation.cluster import SimulatedCluster
from tidelog.simulation.processes import run_simulation


def request(
    topic: str, *targets: Sequence[int] | None, allow_replication_factor_change: bool = True
) -> AlterPartitionReassignmentsRequest:
    partitions = [ReassignablePartition(partition_index=index, replicas=each) for index, each in enumerate(targets)]
    return AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=topic, partitions=partitions)],
        allow_replication_factor_change=allow_replication_factor_change,
    )


def codes(response: AlterPartitionReassignmentsResponse) -> list[int]:
    assert response.error_code == 0, response
    return [each.error_code for topic in response.responses for each in topic.partitions]


@pytest.mark.parametrize("version", [0, 1])
def test_every_request_has_its_own_answer(version: int) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t", partitions=5)
        asked = request("t", [0], None, [], [0, 0], [7], [0])
        response = await client.ask(asked, version, AlterPartitionReassignmentsResponse)
        assert codes(response) == [
            0,
            NoReassignmentInProgress.code,
            InvalidReplicaAssignment.code,
            InvalidReplicaAssignment.code,
            InvalidReplicaAssignment.code,
            UnknownTopicOrPartition.code,
        ]
        listed = await client.ask(ListPartitionReassignmentsRequest(topics=None), 0, ListPartitionReassignmentsResponse)
        assert listed.topics == []

    with_broker(scenario)


def test_nothing_asked_nothing_done() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        response = await client.ask(AlterPartitionReassignmentsRequest(), 1, AlterPartitionReassignmentsResponse)
        assert codes(response) == []

    with_broker(scenario)


async def create(connection: ClientConnection, topic: str, replicas: Sequence[int]) -> None:
    assigned = [CreatableReplicaAssignment(partition_index=0, broker_ids=list(replicas))]
    asked = CreatableTopic(name=topic, num_partitions=-1, replication_factor=-1, assignments=assigned)
    response = await connection.ask(CreateTopicsRequest(topics=[asked], timeout_ms=5000), CreateTopicsResponse)
    assert response.topics[0].error_code == 0


async def listed(connection: ClientConnection, *names: str) -> dict[str, tuple[list[int], list[int], list[int]]]:
    topics = [ListPartitionReassignmentsTopic(name=name, partition_indexes=[0, 1]) for name in names] or None
    response = await connection.ask(
        ListPartitionReassignmentsRequest(topics=topics), ListPartitionReassignmentsResponse
    )
    assert response.error_code == 0
    return {
        topic.name: (list(found.replicas), list(found.adding_replicas), list(found.removing_replicas))
        for topic in response.topics
        for found in topic.partitions
    }


def test_any_broker_starts_lists_and_cancels_a_reassignment() -> None:
    async def main() -> None:
        cluster = SimulatedCluster(4, auto_leader_rebalance_enable=False)
        await cluster.start_all()
        asked = others(cluster)[0]
        connection = await cluster.connect(asked)
        for topic in ("slow", "still"):
            await create(connection, topic, [1, 2])
        cluster.cut_off_from_peers(3)
        response = await connection.ask(request("slow", [3, 1]), AlterPartitionReassignmentsResponse)
        assert codes(response) == [0]
        under_way = {"slow": ([3, 1, 2], [3], [2])}
        assert await listed(connection) == await listed(connection, "slow", "still", "missing") == under_way
        assert await listed(connection, "still") == {}
        changed = request("slow", [1], allow_replication_factor_change=False)
        rejected = await connection.ask(changed, AlterPartitionReassignmentsResponse)
        assert codes(rejected) == [InvalidReplicationFactor.code]
        assert not rejected.allow_replication_factor_change
        response = await connection.ask(request("slow", None), AlterPartitionReassignmentsResponse)
        assert codes(response) == [0]
        assert await listed(connection) == {}
        passed_on = await cluster.connect(asked, f"{CLIENT_ID_PREFIX}9")
        response = await passed_on.ask(request("slow", [1]), AlterPartitionReassignmentsResponse)
        assert response.error_code == NotController.code
        cluster.mend()
        await cluster.stop_all()

    run_simulation(main())
