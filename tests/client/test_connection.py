"""A connection to a broker: versions, pipelining, what a broken or silent broker does to it."""

import asyncio
import gc
import struct
from collections.abc import Awaitable, Callable, Sequence

import pytest

from tests.client.scripted_broker import HOST, PORT, VERSIONS, Script, ScriptedBroker, answer, open_connection
from tests.server.harness import Harness, batch_of, fetch_request, produce_request
from tidelog.client.network.connection import ClientConnection, ConnectionLost
from tidelog.errors import UnsupportedVersion
from tidelog.protocol.errors import UnencodableMessage
from tidelog.protocol.header import RequestHeader
from tidelog.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from tidelog.protocol.messages.create_topics import CreateTopicsRequest
from tidelog.protocol.messages.fetch import FetchRequest, FetchResponse
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tidelog.protocol.messages.produce import ProduceRequest, ProduceResponse
from tidelog.protocol.structs import Response
from tidelog.runtime.memory_network import MemoryNetwork
from tidelog.runtime.virtual_time import VirtualTimeLoop, run_virtually


def with_script(script: Script, scenario: Callable[[ClientConnection, ScriptedBroker], Awaitable[None]]) -> None:
    async def main() -> None:
        broker = ScriptedBroker(script)
        await scenario(await open_connection(MemoryNetwork(), broker), broker)

    run_virtually(main())


def with_connection(scenario: Callable[[Harness, ClientConnection], Awaitable[None]]) -> None:
    async def main() -> None:
        harness = Harness()
        async with harness.broker():
            connection = await ClientConnection.open(harness.network, HOST, PORT, "test")
            await (await harness.connect()).create_topic("t")
            await scenario(harness, connection)
            connection.close()
            await asyncio.sleep(0)

    run_virtually(main())


def good(header: RequestHeader) -> Sequence[bytes]:
    responses = {0: ProduceResponse(), 1: FetchResponse(), 3: MetadataResponse(cluster_id="ours")}
    return [answer(header, responses[header.api_key])]


def silent(header: RequestHeader) -> Sequence[bytes]:
    return []


# -- versions


def test_highest_common_version_is_spoken() -> None:
    async def scenario(connection: ClientConnection, broker: ScriptedBroker) -> None:
        assert connection.version_of(FetchRequest) == 12
        assert connection.version_of(MetadataRequest) == MetadataRequest.__versions__.last
        await connection.ask(MetadataRequest(), MetadataResponse)
        assert broker.connections[0].requests[-1].api_version == MetadataRequest.__versions__.last
        assert {header.client_id for header in broker.connections[0].requests} == {"test"}

    with_script(good, scenario)


def test_what_the_broker_does_not_know_is_refused_before_it_is_sent() -> None:
    async def scenario(connection: ClientConnection, broker: ScriptedBroker) -> None:
        with pytest.raises(UnsupportedVersion, match="does not support CreateTopics"):
            await connection.ask(CreateTopicsRequest(), Response)
        assert not connection.is_closed

    with_script(good, scenario)


def test_versions_without_overlap_are_refused() -> None:
    async def main() -> None:
        old = ApiVersionsResponse(api_keys=[ApiVersion(api_key=1, min_version=0, max_version=3)])
        broker = ScriptedBroker(good, lambda header: [answer(header, old)])
        connection = await open_connection(MemoryNetwork(), broker)
        with pytest.raises(UnsupportedVersion, match="versions 0-3 of Fetch, this client 4-"):
            connection.version_of(FetchRequest)

    run_virtually(main())


def test_what_equal_brokers_say_of_their_versions_is_decoded_once_and_not_taken_for_that_of_others() -> None:
    async def main() -> None:
        first, equal = [await open_connection(MemoryNetwork(), ScriptedBroker(good)) for _ in range(2)]
        assert first._broker_versions[1] is equal._broker_versions[1]
        other = ApiVersionsResponse(api_keys=[ApiVersion(api_key=1, min_version=4, max_version=5)])
        connection = await open_connection(
            MemoryNetwork(), ScriptedBroker(good, lambda header: [answer(header, other)])
        )
        assert (first.version_of(FetchRequest), connection.version_of(FetchRequest)) == (12, 5)

    run_virtually(main())


@pytest.mark.parametrize("newest_of_broker", [0, 2])
def test_older_broker_is_asked_again_in_a_version_it_knows(newest_of_broker: int) -> None:
    def versions(header: RequestHeader) -> Sequence[bytes]:
        if header.api_version <= newest_of_broker:
            return [answer(header, VERSIONS)]
        # Before Kafka 2.4 the refusal names no versions at all.
        own = [ApiVersion(api_key=18, min_version=0, max_version=newest_of_broker)] if newest_of_broker else []
        return [answer(header, ApiVersionsResponse(error_code=35, api_keys=own), 0)]

    async def main() -> None:
        broker = ScriptedBroker(good, versions)
        connection = await open_connection(MemoryNetwork(), broker)
        assert [header.api_version for header in broker.connections[0].requests] == [4, newest_of_broker]
        assert connection.version_of(FetchRequest) == 12

    run_virtually(main())


def test_broker_that_refuses_to_send_its_versions_is_no_broker() -> None:
    async def main() -> None:
        broker = ScriptedBroker(good, lambda header: [answer(header, ApiVersionsResponse(error_code=42))])
        with pytest.raises(ConnectionLost, match=r"refuses ApiVersions: error 42 \(InvalidRequest\)"):
            await open_connection(MemoryNetwork(), broker)
        await asyncio.sleep(0.1)
        assert broker.connections[0].closed_because == "closed by the peer"

    run_virtually(main())


# -- no connection


def test_nobody_listens() -> None:
    async def main() -> None:
        with pytest.raises(ConnectionLost, match=r"cannot connect to 127\.0\.0\.1:1: no listener"):
            await ClientConnection.open(MemoryNetwork(), HOST, 1, "test")

    run_virtually(main())


def test_broker_that_says_nothing_is_given_up() -> None:
    async def main() -> None:
        broker = ScriptedBroker(good, silent)
        network = MemoryNetwork()
        await broker.listen(network)
        with pytest.raises(ConnectionLost, match="did not answer within 5 s"):
            await ClientConnection.open(network, HOST, PORT, "test", timeout_s=5.0)
        await asyncio.sleep(0.1)
        assert broker.connections[0].closed_because == "closed by the peer"

    run_virtually(main())


# -- answers


def test_requests_of_one_turn_leave_in_one_write_and_are_answered_in_order() -> None:
    async def scenario(connection: ClientConnection, broker: ScriptedBroker) -> None:
        done: list[str] = []
        for name in "abc":
            connection.send(MetadataRequest(), lambda _, name=name: done.append(name), lost.append)  # type: ignore[misc]
        assert connection.requests_in_flight == 3
        await connection.ask(MetadataRequest(), MetadataResponse)
        assert done == ["a", "b", "c"]
        assert lost == []
        assert broker.connections[0].wake_ups == [1, 4]

    lost: list[ConnectionLost] = []
    with_script(good, scenario)


def test_request_sent_on_an_answer_leaves_with_the_wake_up() -> None:
    async def scenario(connection: ClientConnection, broker: ScriptedBroker) -> None:
        done = asyncio.Event()

        def again(_: Response) -> None:
            connection.send(MetadataRequest(), lambda _: done.set(), fail)
            connection.send(MetadataRequest(), lambda _: None, fail)

        connection.send(MetadataRequest(), again, fail)
        await done.wait()
        assert broker.connections[0].wake_ups == [1, 1, 2]

    def fail(error: ConnectionLost) -> None:
        raise AssertionError(error)

    with_script(good, scenario)


def test_records_are_views_into_the_frame_unless_the_answer_is_kept() -> None:
    async def scenario(harness: Harness, connection: ClientConnection) -> None:
        batch = batch_of(b"x" * 100_000)
        await connection.ask(produce_request("t", batch), ProduceResponse, version=9)
        memory: list[object] = []
        done = asyncio.Event()

        def look(response: Response) -> None:
            assert isinstance(response, FetchResponse)
            records = response.responses[0].partitions[0].records
            assert isinstance(records, memoryview)
            memory.append(records.obj)
            done.set()

        connection.send(fetch_request("t", 0), look, lost.append, version=12)
        await done.wait()
        assert isinstance(memory[0], bytearray)
        assert len(memory[0]) > len(batch)
        kept = await connection.ask(fetch_request("t", 0), FetchResponse, version=12)
        records = kept.responses[0].partitions[0].records
        assert isinstance(records, memoryview)
        assert isinstance(records.obj, bytes)
        assert bytes(records)[61:] == batch[61:]
        assert lost == []

    lost: list[ConnectionLost] = []
    with_connection(scenario)


def test_produce_without_acknowledgement_is_not_waited_for() -> None:
    async def scenario(harness: Harness, connection: ClientConnection) -> None:
        connection.send_without_answer(produce_request("t", batch_of(b"quiet"), acks=0), version=9)
        assert connection.requests_in_flight == 0
        response = await connection.ask(fetch_request("t", 0), FetchResponse, version=12)
        assert response.responses[0].partitions[0].high_watermark == 1

    with_connection(scenario)


def test_message_that_cannot_be_written_changes_nothing() -> None:
    async def scenario(connection: ClientConnection, broker: ScriptedBroker) -> None:
        with pytest.raises(UnencodableMessage):
            connection.send(MetadataRequest(topics=[MetadataRequestTopic(name="x" * 40_000)]), seen.append, seen.append)
        assert (await connection.ask(MetadataRequest(), MetadataResponse)).cluster_id == "ours"
        assert seen == []

    seen: list[object] = []
    with_script(good, scenario)


BROKEN_RESPONSES: dict[str, tuple[Script, str]] = {
    "empty": (lambda header: [b""], "malformed response: response header"),
    "wrong correlation id": (
        lambda header: [struct.pack(">i", header.correlation_id + 1) + answer(header, MetadataResponse())[4:]],
        "correlation id 3 instead of 2",
    ),
    "cut short": (lambda header: [answer(header, MetadataResponse())[:-3]], "malformed response: MetadataResponse"),
    "one too many": (lambda header: [*good(header), *good(header)], "response without a request"),
}


@pytest.mark.parametrize(("script", "reason"), BROKEN_RESPONSES.values(), ids=BROKEN_RESPONSES.keys())
def test_broken_answer_ends_the_connection_with_a_reason(script: Script, reason: str) -> None:
    async def scenario(connection: ClientConnection, broker: ScriptedBroker) -> None:
        ends: list[str] = []
        connection.on_closed = ends.append
        connection.send(MetadataRequest(), responses.append, losses.append)
        await asyncio.sleep(1)
        assert connection.is_closed
        assert len(ends) == 1
        assert reason in ends[0]
        assert len(responses) + len(losses) == 1
        assert all(reason in str(loss) and f"{HOST}:{PORT}" in str(loss) for loss in losses)

    responses: list[Response] = []
    losses: list[ConnectionLost] = []
    with_script(script, scenario)


def test_everybody_who_waits_learns_of_the_end_once() -> None:
    async def scenario(connection: ClientConnection, broker: ScriptedBroker) -> None:
        asked = asyncio.create_task(connection.ask(MetadataRequest(), MetadataResponse))
        for _ in range(3):
            connection.send(MetadataRequest(), responses.append, losses.append)
        await asyncio.sleep(1)
        broker.connections[0].channel.close("broker went away")
        await asyncio.sleep(1)
        assert (len(responses), len(losses)) == (0, 3)
        with pytest.raises(ConnectionLost, match="closed by the peer"):
            await asked
        connection.close()
        connection.send(MetadataRequest(), responses.append, losses.append)
        assert len(losses) == 3
        await asyncio.sleep(0)
        assert (len(responses), len(losses)) == (0, 4)
        with pytest.raises(ConnectionLost, match="closed by the peer"):
            await connection.ask(MetadataRequest(), MetadataResponse)

    responses: list[Response] = []
    losses: list[ConnectionLost] = []
    with_script(silent, scenario)


def test_unanswered_question_ends_the_connection_in_time() -> None:
    async def scenario(connection: ClientConnection, broker: ScriptedBroker) -> None:
        with pytest.raises(ConnectionLost, match="MetadataRequest was not answered within 3 s"):
            await connection.ask(MetadataRequest(), MetadataResponse, timeout_s=3.0)
        assert connection.is_closed

    with_script(silent, scenario)


def test_answered_question_leaves_no_timer() -> None:
    async def scenario(connection: ClientConnection, broker: ScriptedBroker) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        before = loop.pending_timers
        await connection.ask(MetadataRequest(), MetadataResponse, timeout_s=5)
        assert loop.pending_timers == before

    with_script(good, scenario)


def test_answer_to_a_question_that_was_given_up_harms_nobody() -> None:
    async def scenario(connection: ClientConnection, broker: ScriptedBroker) -> None:
        asked = asyncio.create_task(connection.ask(MetadataRequest(), MetadataResponse))
        await asyncio.sleep(0)
        asked.cancel()
        assert (await connection.ask(MetadataRequest(), MetadataResponse)).cluster_id == "ours"
        assert not connection.is_closed

    with_script(good, scenario)


def test_failing_listener_costs_its_connection_only(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(connection: ClientConnection, broker: ScriptedBroker) -> None:
        connection.send(MetadataRequest(), fail, losses.append)
        connection.send(MetadataRequest(), fail, losses.append)
        await asyncio.sleep(1)
        assert connection.is_closed
        assert len(losses) == 1
        assert "cannot process response" in caplog.text

    def fail(_: Response) -> None:
        raise RuntimeError("our own mistake")

    losses: list[ConnectionLost] = []
    with_script(good, scenario)


def test_request_and_answer_leave_no_garbage() -> None:
    async def scenario(connection: ClientConnection, broker: ScriptedBroker) -> None:
        left = 100
        done = asyncio.Event()

        def again(_: Response) -> None:
            nonlocal left
            left -= 1
            if left:
                connection.send(FetchRequest(), again, lost)
            else:
                done.set()

        for _ in range(2):
            gc.collect()
            gc.disable()
            left = 100
            done.clear()
            connection.send(FetchRequest(), again, lost)
            await done.wait()
            found = gc.collect()
        gc.enable()
        assert found < 20

    def lost(error: ConnectionLost) -> None:
        raise AssertionError(error)

    with_script(good, scenario)


def test_versions_can_be_asked_for_later_too() -> None:
    async def scenario(harness: Harness, connection: ClientConnection) -> None:
        request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
        assert (await connection.ask(request, ApiVersionsResponse)).error_code == 0

    with_connection(scenario)


def test_produce_is_spoken_in_a_version_that_is_served() -> None:
    async def scenario(harness: Harness, connection: ClientConnection) -> None:
        assert connection.version_of(ProduceRequest) == ProduceRequest.__versions__.last

    with_connection(scenario)
