"""Requests of brokers, sent by somebody who is none: he gets CLUSTER_AUTHORIZATION_FAILED, and nothing changes."""

import asyncio

import pytest

from tests.server.harness import batch_of, fetch_request
from tests.simulation.scenario import (
    TOPIC,
    ask,
    controller_of,
    create_topic,
    hosts,
    is_leading,
    produce,
    produce_to,
    read_all,
    replica,
    simulate,
    stored,
)
from tidelog.errors import ClusterAuthorizationFailed, StaleBrokerEpoch
from tidelog.protocol.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from tidelog.protocol.messages.fetch import FetchRequest, FetchResponse, ReplicaState
from tidelog.protocol.messages.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicState,
)
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tidelog.protocol.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicState,
)
from tidelog.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from tidelog.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tidelog.simulation.cluster import SimulatedCluster
from tidelog.storage.validation import AppendOrigin

NONE, GUESSED = -1, 2**62
EPOCHS = pytest.mark.parametrize("epoch", [NONE, GUESSED], ids=["no epoch", "a guessed epoch"])
REJECTIONS = (ClusterAuthorizationFailed.code, StaleBrokerEpoch.code)


@EPOCHS
def test_nobody_else_deletes_replicas(epoch: int) -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await create_topic(cluster, [1, 2, 3])
        await produce(cluster, b"a")
        partition = StopReplicaPartitionState(partition_index=0, leader_epoch=-2, delete_partition=True)
        request = StopReplicaRequest(
            controller_id=1,
            controller_epoch=1000,
            broker_epoch=epoch,
            topic_states=[StopReplicaTopicState(topic_name=TOPIC, partition_states=[partition])],
        )
        for broker_id in (1, 2, 3):
            assert (await ask(cluster, broker_id, request, StopReplicaResponse)).error_code in REJECTIONS
        assert set(hosts(cluster)) == {1, 2, 3}
        assert await read_all(cluster) == [b"a"]

    simulate(scenario)


@EPOCHS
@pytest.mark.parametrize("version", [12, 17])
def test_nobody_else_fetches_as_a_follower(version: int, epoch: int) -> None:
    """The followers lack the record: it must not be acknowledged."""

    async def scenario(cluster: SimulatedCluster) -> None:
        await create_topic(cluster, [1, 2, 3])
        cluster.cut(1, [2, 3])
        produced = asyncio.ensure_future(produce_to(cluster, 1, b"a"))
        await asyncio.sleep(0.1)
        for follower in (2, 3):
            for _ in range(2):
                response = await ask(cluster, 1, fetch_as(follower, epoch), FetchResponse, version)
                code = response.error_code or response.responses[0].partitions[0].error_code
                assert code == ClusterAuthorizationFailed.code
        await asyncio.sleep(1)
        assert not produced.done()
        assert replica(cluster, 1).log.high_watermark == 0
        cluster.mend()
        assert (await produced).error_code == 0

    simulate(scenario)


def fetch_as(follower: int, epoch: int) -> FetchRequest:
    request = fetch_request(TOPIC, 1, max_wait_ms=0)
    request.replica_id = follower
    request.replica_state = ReplicaState(replica_id=follower, replica_epoch=epoch)
    return request


@EPOCHS
def test_nobody_else_sends_clients_elsewhere(epoch: int) -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await create_topic(cluster, [1, 2, 3])
        evil = UpdateMetadataEndpoint(9092, "evil.example", "PLAINTEXT", 0)
        request = UpdateMetadataRequest(
            controller_id=1,
            controller_epoch=1000,
            broker_epoch=epoch,
            live_brokers=[UpdateMetadataBroker(each, [evil], None) for each in (1, 2, 3)],
        )
        assert (await ask(cluster, 2, request, UpdateMetadataResponse)).error_code in REJECTIONS
        response = await ask(cluster, 2, MetadataRequest(topics=None), MetadataResponse)
        assert [each.host for each in response.brokers] == ["broker-1", "broker-2", "broker-3"]

    simulate(scenario)


@EPOCHS
def test_nobody_else_shuts_brokers_down(epoch: int) -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await create_topic(cluster, [2, 3])
        for broker_id in (1, 2, 3):
            request = ControlledShutdownRequest(broker_id=broker_id, broker_epoch=epoch)
            response = await ask(cluster, controller_of(cluster), request, ControlledShutdownResponse)
            assert response.error_code in REJECTIONS
        assert stored(cluster).leader == 2
        await produce(cluster, b"a")

    simulate(scenario)


@EPOCHS
def test_nobody_else_appoints_leaders(epoch: int) -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await create_topic(cluster, [1, 2, 3])
        state = stored(cluster)
        usurped = LeaderAndIsrPartitionState(
            partition_index=0,
            controller_epoch=1000,
            leader=2,
            leader_epoch=state.leader_epoch + 1,
            isr=[2],
            partition_epoch=state.version + 1,
            replicas=[1, 2, 3],
            adding_replicas=[],
            removing_replicas=[],
        )
        request = LeaderAndIsrRequest(
            controller_id=1,
            controller_epoch=1000,
            broker_epoch=epoch,
            topic_states=[LeaderAndIsrTopicState(TOPIC, replica(cluster, 1).topic_id, [usurped])],
            live_leaders=[LeaderAndIsrLiveLeader(2, "evil.example", 9092)],
        )
        for broker_id in (1, 2, 3):
            assert (await ask(cluster, broker_id, request, LeaderAndIsrResponse)).error_code in REJECTIONS
        assert is_leading(cluster, 1)
        assert not is_leading(cluster, 2)

    simulate(scenario)


@EPOCHS
def test_nobody_else_commits_transactions(epoch: int) -> None:
    """An open transaction stays invisible to readers of committed records."""

    async def scenario(cluster: SimulatedCluster) -> None:
        await create_topic(cluster, [1, 2, 3])
        batch = batch_of(b"open", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
        log = replica(cluster, 1).log
        replica(cluster, 1).append_as_leader(memoryview(bytearray(batch)), -1, AppendOrigin.COORDINATOR)
        marker = WritableTxnMarker(
            producer_id=7,
            producer_epoch=0,
            transaction_result=True,
            topics=[WritableTxnMarkerTopic(TOPIC, [0])],
            coordinator_epoch=0,
        )
        request = WriteTxnMarkersRequest([marker], broker_id=1, broker_epoch=epoch)
        response = await ask(cluster, 1, request, WriteTxnMarkersResponse)
        assert response.markers[0].topics[0].partitions[0].error_code == ClusterAuthorizationFailed.code
        await asyncio.sleep(1)
        assert log.log_end_offset == 1
        assert log.last_stable_offset == 0

    simulate(scenario)
