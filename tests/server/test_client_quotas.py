"""Client quotas through the wire protocol: set, described, and obeyed."""

import asyncio

import pytest

from tests.server.harness import Client, Harness, batch_of, fetch_request, produce_request, with_broker
from tests.server.test_authorization import connect_as
from tidelog.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)
from tidelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tidelog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from tidelog.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from tidelog.protocol.messages.fetch import FetchResponse
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tidelog.protocol.messages.produce import ProduceResponse
from tidelog.runtime.virtual_time import run_virtually
from tidelog.server.controller_link import CLIENT_ID_PREFIX

THROTTLED, INVALID = 89, 42
KB = 1000


async def alter(client: Client, parts: dict[str, str | None], **quotas: float | None) -> int:
    entry = EntryData(
        entity=[EntityData(kind.replace("_", "-"), name) for kind, name in parts.items()],
        ops=[OpData(key, value or 0.0, remove=value is None) for key, value in quotas.items()],
    )
    response = await client.ask(AlterClientQuotasRequest(entries=[entry]), 1, AlterClientQuotasResponse)
    (result,) = response.entries
    return result.error_code


async def describe(
    client: Client, *components: ComponentData, strict: bool = False
) -> dict[tuple[tuple[str, str | None], ...], dict[str, float]]:
    request = DescribeClientQuotasRequest(components=list(components), strict=strict)
    response = await client.ask(request, 1, DescribeClientQuotasResponse)
    assert response.error_code == 0, response
    return {
        tuple((each.entity_type, each.entity_name) for each in entry.entity): {
            value.key: value.value for value in entry.values
        }
        for entry in response.entries or ()
    }


def test_quotas_are_set_described_and_removed() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        assert await alter(client, {"user": "alice"}, producer_byte_rate=1024, request_percentage=12.5) == 0
        assert await alter(client, {"user": "alice", "client-id": None}, consumer_byte_rate=5) == 0
        assert await alter(client, {"ip": "10.0.0.1"}, connection_creation_rate=7) == 0
        assert await describe(client) == {
            (("user", "alice"),): {"producer_byte_rate": 1024, "request_percentage": 12.5},
            (("user", "alice"), ("client-id", None)): {"consumer_byte_rate": 5},
            (("ip", "10.0.0.1"),): {"connection_creation_rate": 7},
        }
        assert len(await describe(client, ComponentData("user", 0, "alice"))) == 2
        assert len(await describe(client, ComponentData("user", 0, "alice"), strict=True)) == 1
        assert len(await describe(client, ComponentData("client-id", 1, None))) == 1
        assert len(await describe(client, ComponentData("ip", 2, None))) == 1
        assert await alter(client, {"user": "alice"}, producer_byte_rate=None, request_percentage=None) == 0
        assert len(await describe(client, ComponentData("user", 2, None))) == 1
        store = harness.stores[-1]
        assert (await store.get("/config/users/alice/clients/<default>")).data == (
            b'{"version":1,"config":{"consumer_byte_rate":"5"}}'
        )
        assert (await store.get("/config/ips/10.0.0.1")).data == (
            b'{"version":1,"config":{"connection_creation_rate":"7"}}'
        )

    with_broker(scenario)


@pytest.mark.parametrize(
    ("parts", "quotas"),
    [
        ({"user": "a"}, {"unknown": 1.0}),
        ({"user": "a"}, {"producer_byte_rate": -1.0}),
        ({"user": ""}, {"producer_byte_rate": 1.0}),
        ({"ip": "10.0.0.1", "user": "a"}, {"connection_creation_rate": 1.0}),
        ({}, {"producer_byte_rate": 1.0}),
    ],
)
def test_a_quota_that_cannot_be_is_refused(parts: dict[str, str | None], quotas: dict[str, float]) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        assert await alter(client, parts, **quotas) == INVALID
        assert await describe(client) == {}

    with_broker(scenario)


@pytest.mark.parametrize(
    "component",
    [
        ComponentData("", 0, "x"),
        ComponentData("user", 0, None),
        ComponentData("user", 1, "x"),
        ComponentData("user", 9),
    ],
)
def test_a_filter_that_cannot_be_is_refused(component: ComponentData) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        request = DescribeClientQuotasRequest(components=[component])
        response = await client.ask(request, 1, DescribeClientQuotasResponse)
        assert (response.error_code, response.entries) == (INVALID, None)

    with_broker(scenario)


def test_a_producer_above_its_quota_gets_the_throttle_time_and_is_muted_for_it() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t")
        await alter(client, {"client-id": "test"}, producer_byte_rate=KB)
        request = produce_request("t", batch_of(b"x" * 20 * KB))
        began_s = harness.clock.monotonic()
        response = await client.ask(request, 9, ProduceResponse)
        assert response.responses[0].partition_responses[0].error_code == 0
        assert 9_000 < response.throttle_time_ms < 12_000
        assert harness.clock.monotonic() - began_s < 1
        await client.ask(MetadataRequest(topics=None), 12, MetadataResponse)
        waited_s = harness.clock.monotonic() - began_s
        assert waited_s == pytest.approx(response.throttle_time_ms / 1000, abs=0.1)
        other = await harness.connect("other")
        assert (await other.ask(request, 9, ProduceResponse)).throttle_time_ms == 0

    with_broker(scenario)


def test_a_producer_with_acks_0_is_muted_too() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t")
        await alter(client, {"client-id": None}, producer_byte_rate=KB)
        client.start(produce_request("t", batch_of(b"x" * 20 * KB), acks=0), 9)
        began_s = harness.clock.monotonic()
        await client.ask(MetadataRequest(topics=None), 12, MetadataResponse)
        assert harness.clock.monotonic() - began_s > 9

    with_broker(scenario)


def test_a_consumer_reads_at_the_rate_of_its_quota() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t")
        for _ in range(30):
            await client.produce("t", b"x" * KB)
        await alter(client, {"user": None}, consumer_byte_rate=KB)
        began_s, offset, throttled = harness.clock.monotonic(), 0, 0
        while offset < 30:
            response = await client.ask(fetch_request("t", offset, max_wait_ms=0), 12, FetchResponse)
            data = response.responses[0].partitions[0]
            assert len(data.records or b"") <= 10 * KB
            throttled += response.throttle_time_ms > 0
            offset += len(data.records or b"") // KB
        assert throttled > 0
        assert harness.clock.monotonic() - began_s > 15

    with_broker(scenario)


def test_the_rate_of_changed_partitions_is_strict_for_new_clients_and_a_pause_for_old_ones() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await alter(client, {"client-id": None}, controller_mutation_rate=1)

        async def create(name: str, version: int, partitions: int) -> tuple[int, int]:
            topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
            response = await client.ask(CreateTopicsRequest(topics=[topic]), version, CreateTopicsResponse)
            return response.topics[0].error_code, response.throttle_time_ms

        assert await create("a", 7, 15) == (0, 0)
        code, throttle_ms = await create("b", 7, 1)
        assert (code, 3000 < throttle_ms <= 4000) == (THROTTLED, True)
        code, throttle_ms = await create("b", 5, 5)
        assert (code, throttle_ms > 4000) == (0, True)
        deletion = DeleteTopicsRequest(topics=[DeleteTopicState(name="b")], timeout_ms=5000)
        assert (await client.ask(deletion, 6, DeleteTopicsResponse)).responses[0].error_code == 0

    with_broker(scenario)


def test_quotas_belong_to_the_user_of_the_connection_and_survive_a_restart() -> None:
    async def main() -> None:
        harness = Harness()
        async with harness.broker() as broker:
            alice = await connect_as(harness, broker, "alice")
            await alice.create_topic("t")
            await alter(alice, {"user": "alice"}, producer_byte_rate=KB)
        async with harness.broker() as broker:
            await asyncio.sleep(1)
            request = produce_request("t", batch_of(b"x" * 20 * KB))
            for name, is_throttled in (("alice", True), ("bob", False)):
                client = await connect_as(harness, broker, name)
                response = await client.ask(request, 9, ProduceResponse)
                assert (response.throttle_time_ms > 0) is is_throttled

    run_virtually(main())


def test_an_address_that_connects_too_often_is_kept_waiting_and_closed() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await alter(client, {"ip": None}, connection_creation_rate=1)
        harness_clients = [await harness.connect(str(number)) for number in range(11)]
        assert not any(each.closed_because for each in harness_clients)
        await asyncio.sleep(2)
        assert [bool(each.closed_because) for each in harness_clients] == [False] * 10 + [True]
        await asyncio.sleep(20)
        late = await harness.connect("late")
        await late.ask(MetadataRequest(topics=None), 12, MetadataResponse)

    with_broker(scenario)


@pytest.mark.parametrize(
    "limit",
    [
        {"max_connection_creation_rate": 1},
        {"listener_overrides": {"listener.name.clients.max.connection.creation.rate": "1"}},
    ],
)
def test_new_connections_of_a_broker_or_listener_wait_for_their_turn(limit: dict[str, object]) -> None:
    async def main() -> None:
        harness = Harness()
        listeners = ("CLIENTS://127.0.0.1:9092", "BROKERS://127.0.0.1:9093")
        async with harness.broker(
            listeners=listeners,
            listener_security_protocol_map="CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
            inter_broker_listener_name="BROKERS",
            **limit,
        ):
            clients = [await harness.connect(str(number)) for number in range(12)]
            began_s = harness.clock.monotonic()
            for each in clients:
                await each.ask(MetadataRequest(topics=None), 12, MetadataResponse)
            assert 1 < harness.clock.monotonic() - began_s < 4

    run_virtually(main())


def test_a_client_that_names_itself_like_a_broker_has_quotas() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t")
        await alter(client, {"user": None}, producer_byte_rate=KB)
        disguised = await harness.connect(f"{CLIENT_ID_PREFIX}1")
        response = await disguised.ask(produce_request("t", batch_of(b"x" * 20 * KB)), 9, ProduceResponse)
        assert response.throttle_time_ms > 0

    with_broker(scenario)
