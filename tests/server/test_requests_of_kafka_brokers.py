"""AlterPartition and AllocateProducerIds, by which brokers of Apache Kafka ask the controller, through the wire."""

import pytest

from tests.server.test_forwarding import controller_of, create, others, topics_of, with_cluster
from tidelog.cluster.image import PartitionRegistration
from tidelog.errors import NotController, StaleBrokerEpoch, UnknownTopicId, UnknownTopicOrPartition
from tidelog.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from tidelog.protocol.messages.alter_partition import (
    AlterPartitionPartition,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopic,
    BrokerState,
)
from tidelog.simulation.cluster import SimulatedCluster
from tidelog.simulation.inspection import stored_partitions
from tidelog.types import TopicPartition, Uuid

TOPIC = "orders"


def epoch_of(cluster: SimulatedCluster, broker_id: int) -> int:
    return cluster.broker(controller_of(cluster))._services.membership.controller.context.brokers[broker_id].epoch


def state_of(cluster: SimulatedCluster) -> PartitionRegistration:
    return dict(stored_partitions(cluster.store_state))[TopicPartition(TOPIC, 0)].state


def request_of(cluster: SimulatedCluster, topic_id: Uuid, in_sync: list[int], index: int = 0) -> AlterPartitionRequest:
    state = state_of(cluster)
    partition = AlterPartitionPartition(
        partition_index=index,
        leader_epoch=state.leader_epoch,
        new_isr=in_sync,
        new_isr_with_epochs=[BrokerState(broker_id=each) for each in in_sync],
        partition_epoch=state.version,
    )
    return AlterPartitionRequest(
        broker_id=state.leader,
        broker_epoch=epoch_of(cluster, state.leader),
        topics=[AlterPartitionTopic(topic_id=topic_id, partitions=[partition])],
    )


@pytest.mark.parametrize("version", [2, 3])
def test_leader_changes_its_isr(version: int) -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await create(await cluster.connect(1), TOPIC)
        topic_id = topics_of(cluster, 1)[TOPIC].topic_id
        leader, follower, _ = state_of(cluster).replicas
        controller = await cluster.connect(controller_of(cluster))

        async def ask(request: AlterPartitionRequest) -> AlterPartitionResponse:
            return await controller.ask(request, AlterPartitionResponse, version=version)

        (topic,) = (await ask(request_of(cluster, topic_id, [leader, follower]))).topics
        (found,) = topic.partitions
        stored = state_of(cluster)
        assert (found.error_code, list(found.isr), found.leader_id) == (0, [leader, follower], leader)
        assert (stored.in_sync_replicas, stored.version) == ((leader, follower), found.partition_epoch)
        (topic,) = (await ask(request_of(cluster, bytes(16), [leader]))).topics
        assert topic.partitions[0].error_code == UnknownTopicId.code
        (topic,) = (await ask(request_of(cluster, topic_id, [leader], index=7))).topics
        assert topic.partitions[0].error_code == UnknownTopicOrPartition.code
        stale = request_of(cluster, topic_id, [leader])
        stale.broker_epoch = 1
        assert (await ask(stale)).error_code == StaleBrokerEpoch.code
        other = await cluster.connect(others(cluster)[0])
        request = request_of(cluster, topic_id, [leader])
        response = await other.ask(request, AlterPartitionResponse, version=version)
        assert response.error_code == NotController.code

    with_cluster(scenario)


def test_blocks_of_producer_ids_are_given_to_registered_brokers_once() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        controller = await cluster.connect(controller_of(cluster))
        broker_id = others(cluster)[0]

        async def ask(epoch: int) -> AllocateProducerIdsResponse:
            request = AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=epoch)
            return await controller.ask(request, AllocateProducerIdsResponse)

        first, second = [await ask(epoch_of(cluster, broker_id)) for _ in range(2)]
        assert (first.error_code, second.error_code) == (0, 0)
        assert second.producer_id_start == first.producer_id_start + first.producer_id_len
        assert (await ask(1)).error_code == StaleBrokerEpoch.code
        other = await cluster.connect(broker_id)
        request = AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=epoch_of(cluster, broker_id))
        assert (await other.ask(request, AllocateProducerIdsResponse)).error_code == NotController.code

    with_cluster(scenario)
