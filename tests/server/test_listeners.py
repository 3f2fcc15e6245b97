"""Several listeners: each reports its own addresses, and only the one between brokers serves requests of brokers."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from tests.server.harness import Client, Harness, fetch_request, with_broker
from tidelog.cluster import znodes
from tidelog.cluster.image import BrokerRegistration
from tidelog.config.listeners import Endpoint
from tidelog.config.principal_mapping import PrincipalMapper
from tidelog.errors import ClusterAuthorizationFailed
from tidelog.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from tidelog.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from tidelog.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from tidelog.protocol.messages.api_versions import ApiVersionsRequest
from tidelog.protocol.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from tidelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tidelog.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from tidelog.protocol.messages.fetch import FetchResponse, ReplicaState
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tidelog.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tidelog.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from tidelog.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from tidelog.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tidelog.runtime.network import Channel
from tidelog.runtime.virtual_time import run_virtually
from tidelog.server.session import ANONYMOUS, USER, Principal, Session
from tidelog.simulation.inspection import registered_epoch
from tidelog.store.interface import Create

CLIENTS, BROKERS = 9092, 9093
SETTINGS = {
    "listeners": ("CLIENTS://127.0.0.1:9092", "BROKERS://127.0.0.1:9093"),
    "advertised_listeners": ("CLIENTS://outside.example:19092", "BROKERS://127.0.0.1:9093"),
    "listener_security_protocol_map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
    "inter_broker_listener_name": "BROKERS",
}
DENIED = ClusterAuthorizationFailed.code
STALE_CONTROLLER_EPOCH = 11


def with_two_listeners(scenario: Callable[[Harness, Client, Client], Awaitable[None]]) -> None:
    async def main() -> None:
        harness = Harness()
        async with harness.broker(**SETTINGS):
            client, peer = await harness.connect(port=CLIENTS), await harness.connect(port=BROKERS)
            await client.create_topic("t")
            client.broker_epoch = peer.broker_epoch = registered_epoch(harness.store_state, 0) or -1
            await scenario(harness, client, peer)

    run_virtually(main())


def test_each_listener_reports_its_own_addresses() -> None:
    async def scenario(harness: Harness, client: Client, peer: Client) -> None:
        for asking, address in ((client, ("outside.example", 19092)), (peer, ("127.0.0.1", BROKERS))):
            metadata = await asking.ask(MetadataRequest(topics=[]), 9, MetadataResponse)
            cluster = await asking.ask(DescribeClusterRequest(), 0, DescribeClusterResponse)
            found = await asking.ask(FindCoordinatorRequest(key="g"), 2, FindCoordinatorResponse)
            while found.error_code:
                await asyncio.sleep(0.1)
                found = await asking.ask(FindCoordinatorRequest(key="g"), 2, FindCoordinatorResponse)
            assert [(each.host, each.port) for each in metadata.brokers] == [address]
            assert [(each.host, each.port) for each in cluster.brokers] == [address]
            assert (found.host, found.port) == address

    with_two_listeners(scenario)


def test_all_listeners_are_registered() -> None:
    async def scenario(harness: Harness, client: Client, peer: Client) -> None:
        node = harness.store_state.find(znodes.broker_path(0))
        assert node is not None
        registered = znodes.decode_broker(0, node.data, 1)
        assert [str(each) for each in registered.endpoints] == list(SETTINGS["advertised_listeners"])

    with_two_listeners(scenario)


async def codes(asking: Client, epoch: int) -> dict[str, int]:
    """The answers to requests of brokers that carry the right epoch."""
    controller: Any = {"controller_id": 0, "controller_epoch": 1000, "broker_epoch": epoch}
    fetch = fetch_request("t", 0, max_wait_ms=0)
    fetch.replica_state = ReplicaState(replica_id=0, replica_epoch=epoch)
    fetch.topics[0].topic_id = bytes(16)
    marker = WritableTxnMarker(7, 0, True, [WritableTxnMarkerTopic("t", [0])], 0)
    markers = WriteTxnMarkersRequest([marker], broker_id=0, broker_epoch=epoch)
    written = await asking.ask(markers, 1, WriteTxnMarkersResponse)
    ends = OffsetForLeaderEpochRequest(0, [OffsetForLeaderTopic("t", [OffsetForLeaderPartition(0, -1, 0)])])
    ended = await asking.ask(ends, 4, OffsetForLeaderEpochResponse)
    internal = CreatableTopic(name="__transaction_state", num_partitions=50, replication_factor=1)
    create = CreateTopicsRequest(topics=[internal], broker_id=0, broker_epoch=epoch)
    created = await asking.ask(create, 7, CreateTopicsResponse)
    fetched = await asking.ask(fetch, 17, FetchResponse)
    broker: Any = {"broker_id": 0, "broker_epoch": epoch}
    altered = await asking.ask(AlterPartitionRequest(**broker), 3, AlterPartitionResponse)
    allocated = await asking.ask(AllocateProducerIdsRequest(**broker), 0, AllocateProducerIdsResponse)
    added = await asking.ask(AddPartitionsToTxnRequest(transactions=[]), 4, AddPartitionsToTxnResponse)
    return {
        "AddPartitionsToTxn": added.error_code,
        "AllocateProducerIds": allocated.error_code,
        "AlterPartition": altered.error_code,
        "LeaderAndIsr": (await asking.ask(LeaderAndIsrRequest(**controller), 7, LeaderAndIsrResponse)).error_code,
        "StopReplica": (await asking.ask(StopReplicaRequest(**controller), 4, StopReplicaResponse)).error_code,
        "UpdateMetadata": (await asking.ask(UpdateMetadataRequest(**controller), 8, UpdateMetadataResponse)).error_code,
        "Fetch": fetched.error_code,
        "WriteTxnMarkers": written.markers[0].topics[0].partitions[0].error_code,
        "OffsetForLeaderEpoch": ended.topics[0].partitions[0].error_code,
        "CreateTopics": created.topics[0].error_code,
    }


def test_requests_of_brokers_are_served_only_between_brokers() -> None:
    """Also if somebody knows the epoch of a broker."""

    async def scenario(harness: Harness, client: Client, peer: Client) -> None:
        rejected = await codes(client, client.broker_epoch)
        topic_rejection = rejected.pop("CreateTopics")
        assert set(rejected.values()) == {DENIED}, rejected
        assert topic_rejection != 0
        shutdown = ControlledShutdownRequest(broker_id=0, broker_epoch=client.broker_epoch)
        assert (await client.ask(shutdown, 3, ControlledShutdownResponse)).error_code == DENIED
        served = await codes(peer, peer.broker_epoch)
        assert DENIED not in served.values(), served
        assert served["CreateTopics"] == 0

    with_two_listeners(scenario)


def test_coordinators_of_apache_kafka_commit_without_a_proof() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t")
        marker = WritableTxnMarker(7, 0, True, [WritableTxnMarkerTopic("t", [0])], 0)

        async def commit() -> int:
            written = await client.ask(WriteTxnMarkersRequest([marker]), 1, WriteTxnMarkersResponse)
            return written.markers[0].topics[0].partitions[0].error_code

        assert await commit() == DENIED
        kafka = BrokerRegistration(9, (Endpoint("PLAINTEXT", "kafka", 9092, "PLAINTEXT"),))
        harness.store_state.perform([Create(znodes.broker_path(9), znodes.encode_broker(kafka, 0))], 0)
        assert await commit() == 0

    with_broker(scenario)


class NamedChannel:
    peer_host = "10.0.0.7"
    peer_subject: str | None = None


@pytest.mark.parametrize(
    ("subject", "principal"),
    [(None, ANONYMOUS), ("CN=alice,O=Tide", Principal(USER, "alice")), ("CN=bob", Principal(USER, "CN=bob"))],
)
def test_a_session_has_a_principal(subject: str | None, principal: Principal) -> None:
    channel = NamedChannel()
    mapper = PrincipalMapper("RULE:CN=(.*?),O=Tide/$1/,DEFAULT")
    session = Session(_channel(channel), "OUTSIDE", mapper, is_inter_broker=False)
    channel.peer_subject = subject  # known after the handshake
    assert session.principal == principal
    assert (session.host, session.listener) == ("10.0.0.7", "OUTSIDE")
    session.authenticate(Principal(USER, "carol"))
    assert str(session.principal) == "User:carol"


@pytest.mark.parametrize("subject", ["CN=mallory", "CN=alice,O=Tide," + "OU=x," * 300])
def test_whom_no_rule_names_is_not_served(subject: str, caplog: pytest.LogCaptureFixture) -> None:
    """Also without an authorizer, which would ask for the name."""

    async def main() -> None:
        harness = Harness()
        async with harness.broker(ssl_principal_mapping_rules="RULE:CN=(.*?),O=Tide.*/$1/") as broker:
            for name, is_served in (("CN=alice,O=Tide", True), (subject, False), (None, True)):
                earlier = set(broker.acceptor.registry._connections)
                client = await harness.connect()
                (connection,) = set(broker.acceptor.registry._connections) - earlier
                cast("NamedChannel", connection.channel).peer_subject = name
                answer = client.start(ApiVersionsRequest(), 0)
                await asyncio.sleep(1)
                assert answer.done() is is_served
                assert (client.closed_because is None) is is_served
        assert "login failed" in caplog.text
        assert "Traceback" not in caplog.text

    run_virtually(main())


def _channel(channel: NamedChannel) -> Channel:
    return channel  # type: ignore[return-value]


def test_the_controller_uses_a_listener_of_its_own() -> None:
    async def main() -> None:
        harness = Harness()
        settings = {
            "listeners": ("CLIENTS://127.0.0.1:9092", "BROKERS://127.0.0.1:9093", "CONTROL://127.0.0.1:9094"),
            "listener_security_protocol_map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT,CONTROL:PLAINTEXT",
            "inter_broker_listener_name": "BROKERS",
            "control_plane_listener_name": "control",
        }
        async with harness.broker(**settings) as broker:
            client = await harness.connect(port=CLIENTS)
            await client.create_topic("t")
            listeners = [each.session.listener for each in broker.acceptor.registry._connections]
            assert listeners == ["CONTROL", "CLIENTS"]
            for port, code in ((CLIENTS, DENIED), (9094, STALE_CONTROLLER_EPOCH)):
                peer = await harness.connect(port=port)
                request = UpdateMetadataRequest(controller_id=0, controller_epoch=0, broker_epoch=-1)
                assert (await peer.ask(request, 8, UpdateMetadataResponse)).error_code == code

    run_virtually(main())
