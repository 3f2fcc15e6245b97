"""Requests that make no sense, from any client: they are refused, and the broker continues as before."""

from collections.abc import Awaitable, Callable

import pytest

from tests.server.harness import Client, Harness, with_broker
from tidelog.errors import NO_ERROR
from tidelog.protocol.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from tidelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic
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
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
    UpdateMetadataTopicState,
)
from tidelog.runtime.virtual_time import run_virtually
from tidelog.simulation.inspection import registered_epoch

CONTROLLER_EPOCH = 1
TOPIC_ID = b"h" * 16
LARGEST = 2**31 - 1


def state(
    index: int = 0,
    leader: int = 0,
    leader_epoch: int = 5,
    isr: tuple[int, ...] = (0,),
    replicas: tuple[int, ...] = (0,),
) -> LeaderAndIsrPartitionState:
    return LeaderAndIsrPartitionState(
        partition_index=index,
        controller_epoch=CONTROLLER_EPOCH,
        leader=leader,
        leader_epoch=leader_epoch,
        isr=isr,
        partition_epoch=0,
        replicas=replicas,
        adding_replicas=(),
        removing_replicas=(),
        is_new=True,
    )


async def give_roles(client: Client, topic: str, *states: LeaderAndIsrPartitionState) -> list[int]:
    request = LeaderAndIsrRequest(
        controller_id=0,
        controller_epoch=CONTROLLER_EPOCH,
        broker_epoch=client.broker_epoch,
        topic_states=[LeaderAndIsrTopicState(topic, TOPIC_ID, list(states))],
        live_leaders=[LeaderAndIsrLiveLeader(7, "nowhere", 1)],
    )
    response = await client.ask(request, 7, LeaderAndIsrResponse)
    assert response.error_code == NO_ERROR
    return [each.error_code for each in response.topics[0].partition_errors]


async def update(client: Client, topic: str, *indexes: int, listener: str = "X", protocol: int = 0) -> int:
    states = [
        UpdateMetadataPartitionState(
            partition_index=index,
            controller_epoch=CONTROLLER_EPOCH,
            leader=0,
            leader_epoch=0,
            isr=[0],
            zk_version=0,
            replicas=[0],
            offline_replicas=[],
        )
        for index in indexes
    ]
    request = UpdateMetadataRequest(
        controller_id=0,
        controller_epoch=CONTROLLER_EPOCH,
        broker_epoch=client.broker_epoch,
        topic_states=[UpdateMetadataTopicState(topic, TOPIC_ID, states)],
        live_brokers=[UpdateMetadataBroker(9, [UpdateMetadataEndpoint(-1, "", listener, protocol)], None)],
    )
    return (await client.ask(request, 8, UpdateMetadataResponse)).error_code


async def stop(client: Client, topic: str, *indexes: int) -> list[int]:
    states = [StopReplicaPartitionState(index, -1, True) for index in indexes]
    request = StopReplicaRequest(
        controller_id=0,
        controller_epoch=CONTROLLER_EPOCH,
        broker_epoch=client.broker_epoch,
        topic_states=[StopReplicaTopicState(topic, states)],
    )
    return [each.error_code for each in (await client.ask(request, 4, StopReplicaResponse)).partition_errors]


async def topic_names(client: Client) -> list[str | None]:
    return [topic.name for topic in (await client.ask(MetadataRequest(topics=None), 9, MetadataResponse)).topics]


def log_names(harness: Harness) -> set[str]:
    entries = harness.disk.list_directory("/logs")
    return {entry.name for entry in entries if entry.is_directory and not entry.name.endswith("-delete")}


def check(scenario: Callable[[Harness, Client], Awaitable[None]]) -> None:
    """Whatever it does: what was there before works afterwards, on the same connection."""

    async def main(harness: Harness, client: Client) -> None:
        client.broker_epoch = registered_epoch(harness.store_state, 0) or -1
        await client.create_topic("orders")
        assert (await client.produce("orders", b"before")).error_code == NO_ERROR
        logs = log_names(harness)
        await scenario(harness, client)
        assert client.closed_because is None
        assert log_names(harness) == logs
        assert (await client.produce("orders", b"after")).error_code == NO_ERROR
        assert await client.values("orders") == [b"before", b"after"]

    with_broker(main)


@pytest.mark.parametrize("topic", ["", ".", "..", "../../../tmp/x", "a/b", "a b", "x" * 250, "x\0y", "\ud7ff"])
def test_a_role_for_a_topic_that_cannot_exist_is_refused(topic: str) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        assert NO_ERROR not in await give_roles(client, topic, state())
        assert await update(client, topic, 0) == NO_ERROR
        await stop(client, topic, 0, 0, -1)
        assert await topic_names(client) == ["orders"]

    check(scenario)


@pytest.mark.parametrize(
    "nonsense",
    [
        state(index=-1),
        state(index=LARGEST),
        state(leader_epoch=-1),
        state(isr=()),
        state(isr=(1, 2), replicas=(0, 1, 2)),
        state(replicas=()),
        state(replicas=(0, 0, 0)),
        state(leader=-7, isr=()),
    ],
)
def test_a_role_that_contradicts_itself_is_refused(nonsense: LeaderAndIsrPartitionState) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        assert NO_ERROR not in await give_roles(client, "hostile", nonsense)

    check(scenario)


def test_of_two_roles_for_one_partition_in_one_request_the_last_counts() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        assert await give_roles(client, "twice", state(), state(leader=7, isr=(7,), replicas=(0, 7))) == [0, 0]
        assert await stop(client, "twice", 0, 0) in ([0], [0, 0])
        assert await give_roles(client, "twice", state(leader=7, isr=(7,), replicas=(0, 7)), state()) == [0, 0]
        assert (await client.produce("twice", b"x")).error_code == NO_ERROR
        await stop(client, "twice", 0)

    check(scenario)


@pytest.mark.parametrize("indexes", [(-1,), (0, -5), (LARGEST,), (10**6,)])
def test_metadata_of_partitions_that_cannot_exist_is_passed_over(indexes: tuple[int, ...]) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await update(client, "hostile", *indexes)
        assert await topic_names(client) == ["orders"]

    check(scenario)


def test_requests_that_say_nothing_are_answered() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.ask(LeaderAndIsrRequest(controller_id=0, controller_epoch=1), 7, LeaderAndIsrResponse)
        await client.ask(StopReplicaRequest(controller_id=0, controller_epoch=1), 4, StopReplicaResponse)
        assert await give_roles(client, "orders") == []
        assert await stop(client, "unheard-of", 0) == [NO_ERROR]
        assert (await update(client, "orders", listener="", protocol=99)) == NO_ERROR

    check(scenario)


def test_a_broker_that_is_not_there_cannot_be_shut_down() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        for broker_id, epoch in ((9, -1), (-1, -1), (0, -(2**63)), (LARGEST, 2**63 - 1)):
            request = ControlledShutdownRequest(broker_id=broker_id, broker_epoch=epoch)
            response = await client.ask(request, 3, ControlledShutdownResponse)
            assert response.error_code != NO_ERROR or broker_id == 0

    check(scenario)


# ---- fetches


def wanted(index: int = 0, offset: int = 0, **options: int) -> FetchPartition:
    values = {"partition_max_bytes": 1000, **options}
    return FetchPartition(partition=index, fetch_offset=offset, **values)  # type: ignore[arg-type]


async def fetch(client: Client, *partitions: FetchPartition, **options: int) -> FetchResponse:
    values = {"max_wait_ms": 0, "min_bytes": 1, **options}
    request = FetchRequest(topics=[FetchTopic(topic="orders", partitions=list(partitions))], **values)  # type: ignore[arg-type]
    return await client.ask(request, 12, FetchResponse)


MIN_LONG, MAX_LONG = -(2**63), 2**63 - 1


@pytest.mark.parametrize("replica_id", [-1, -5, 0, 2, LARGEST])
@pytest.mark.parametrize("offset", [MIN_LONG, -1, 0, 1, 2, MAX_LONG])
def test_a_fetch_of_any_offset_by_anybody_harms_nobody(replica_id: int, offset: int) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        for options in (
            {},
            {"log_start_offset": offset},
            {"current_leader_epoch": LARGEST},
            {"last_fetched_epoch": LARGEST},
            {"last_fetched_epoch": 0},
            {"partition_max_bytes": -LARGEST},
        ):
            await fetch(
                client, wanted(0, offset, **options), wanted(0, offset), wanted(-1, offset), replica_id=replica_id
            )
        assert (await client.fetch("orders", 0)).high_watermark == 1

    check(scenario)


@pytest.mark.parametrize("limit", [-LARGEST, -1, 0, 1, LARGEST])
def test_a_fetch_with_any_limits_harms_nobody(limit: int) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await fetch(client, wanted(), max_bytes=limit)
        await fetch(client, wanted(), min_bytes=limit, max_wait_ms=10)
        await fetch(client, wanted(offset=1), max_wait_ms=min(limit, 1000))
        await fetch(client, wanted(), isolation_level=min(max(limit, -128), 127))

    check(scenario)


@pytest.mark.parametrize("session_id", [-LARGEST, -1, 0, 1, LARGEST])
@pytest.mark.parametrize("session_epoch", [-LARGEST, -2, -1, 0, 1, LARGEST])
def test_a_fetch_in_any_session_harms_nobody(session_id: int, session_epoch: int) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        known = (await fetch(client, wanted(), session_epoch=0)).session_id
        assert known > 0
        for each in (session_id, known):
            await fetch(client, wanted(), wanted(), wanted(7), session_id=each, session_epoch=session_epoch)
            await fetch(client, session_id=each, session_epoch=session_epoch, replica_id=2)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            session_id=known,
            session_epoch=1,
            forgotten_topics_data=[ForgottenTopic(topic="orders", partitions=[0, 0, -1]), ForgottenTopic(topic="")],
        )
        await client.ask(request, 12, FetchResponse)

    check(scenario)


def test_followers_that_do_not_exist_are_not_remembered() -> None:
    async def main() -> None:
        harness = Harness()
        async with harness.broker() as broker:
            client = await harness.connect_as_broker(broker)
            await client.create_topic("orders")
            for replica_id in range(100):
                await fetch(client, wanted(), replica_id=replica_id)
            assert broker.replicas._context.peers.last_fetch_ms.keys() == {broker.broker_id}

    run_virtually(main())
