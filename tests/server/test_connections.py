"""Connections of a broker: limits, hostile frames, pipelining, idleness, the end."""

import asyncio
import logging
import struct
from collections.abc import Sequence

import pytest

from tests.server.harness import Client, Harness, fetch_request, produce_request, with_broker
from tidelog.config.broker import BrokerSettings
from tidelog.protocol.codec import encode
from tidelog.protocol.header import request_header
from tidelog.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tidelog.runtime.deferred import Deferred
from tidelog.runtime.network import FramePart
from tidelog.runtime.virtual_time import run_virtually
from tidelog.server import connection
from tidelog.server.connection import (
    MAX_BACKLOG_BYTES,
    MAX_BACKLOG_MEMORY_BYTES,
    MAX_FETCHES_IN_FLIGHT,
    MAX_REQUESTS_IN_FLIGHT,
    UNREAD_TIMEOUT_S,
    WAITING_PRODUCE_BYTES,
    ConnectionRegistry,
)
from tidelog.server.dispatch import MAX_CLIENT_ELEMENTS
from tidelog.server.handlers import api_versions, produce

HOSTILE_FRAMES = {
    "empty": b"",
    "one byte": b"\x00",
    "unknown api": struct.pack(">hhih", 999, 0, 1, -1),
    "api that is not served": struct.pack(">hhih", 10, 4, 1, -1) + b"\x00",
    "unknown version": struct.pack(">hhih", 1, 99, 1, -1) + b"\x00",
    "version below the first": struct.pack(">hhih", 0, 2, 1, -1),
    "cut in the middle": struct.pack(">hhih", 0, 9, 1, -1) + b"\x00\x00",
    "an array of two billion topics": struct.pack(">hhih", 3, 1, 1, -1) + struct.pack(">i", 2**31 - 1),
    "a text that is not text": struct.pack(">hhih", 3, 1, 1, -1) + struct.pack(">ih", 1, 2) + b"\xff\xfe",
}


@pytest.mark.parametrize("frame", HOSTILE_FRAMES.values(), ids=HOSTILE_FRAMES.keys())
def test_a_hostile_frame_costs_its_connection_and_one_log_line(frame: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        other = await harness.connect()
        caplog.clear()
        with caplog.at_level(logging.INFO):
            client.send_raw(frame)
            await asyncio.sleep(0.1)
        assert client.closed_because == "closed by the peer"
        assert len(caplog.records) == 1
        assert "bad request" in caplog.text
        assert other.closed_because is None
        await other.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)

    with_broker(scenario)


def test_a_newer_client_gets_our_versions() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        frames: list[bytes] = []
        client.on_frame = lambda frame: frames.append(bytes(frame))  # type: ignore[method-assign]
        client.send_raw(struct.pack(">hhih", 18, 77, 5, -1) + b"\x00\x07future!")
        await asyncio.sleep(0.1)
        assert frames == [struct.pack(">ihi", 5, 35, 1) + struct.pack(">hhh", 18, 0, 4)]

    with_broker(scenario)


@pytest.mark.parametrize("version", range(5))
def test_every_version_of_api_versions_lists_what_is_served(version: int) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        request = ApiVersionsRequest(client_software_name="a-client", client_software_version="1.0")
        response = await client.ask(request, version, ApiVersionsResponse)
        assert response.error_code == 0
        ranges = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
        assert ranges[0] == (0, 13)  # older librdkafka compresses only if Produce begins at 0
        assert ranges[1] == (4, 18)
        assert 71 not in ranges

    with_broker(scenario)


@pytest.mark.parametrize("name", ["", "-dash", "sp ace", "ü"])
def test_a_badly_named_client_is_refused(name: str) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        request = ApiVersionsRequest(client_software_name=name, client_software_version="1.0")
        assert (await client.ask(request, 3, ApiVersionsResponse)).error_code == 42

    with_broker(scenario)


def test_connections_above_the_limit_are_turned_away() -> None:
    async def scenario() -> None:
        harness = Harness()
        async with harness.broker(max_connections=3):  # one is the controller's
            clients = [await harness.connect() for _ in range(3)]
            await asyncio.sleep(0.1)
            assert [client.closed_because is None for client in clients] == [True, True, False]
            clients[0].channel.close("done")
            await asyncio.sleep(0.1)
            late = await harness.connect()
            await late.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)

    run_virtually(scenario())


def test_connections_of_one_host_above_the_limit_are_turned_away() -> None:
    async def scenario() -> None:
        harness = Harness()
        async with harness.broker(max_connections_per_ip=2):  # one is the controller's
            clients = [await harness.connect() for _ in range(2)]
            await asyncio.sleep(0.1)
            assert [client.closed_because is None for client in clients] == [True, False]

    run_virtually(scenario())


def test_an_address_may_have_a_limit_of_its_own() -> None:
    settings = BrokerSettings(max_connections_per_ip=1, max_connections_per_ip_overrides="10.0.0.1:0, [::1]:2")
    registry = ConnectionRegistry(settings)
    assert registry.rejection("10.0.0.1", "PLAINTEXT") == "max.connections.per.ip=0 is reached by 10.0.0.1"
    assert registry.rejection("10.0.0.2", "PLAINTEXT") is None
    registry.reconfigure(BrokerSettings(max_connections_per_ip_overrides="10.0.0.1:1"))
    assert registry.rejection("10.0.0.1", "PLAINTEXT") is None


TWO_LISTENERS = {
    "listeners": ("CLIENTS://127.0.0.1:9092", "BROKERS://127.0.0.1:9093"),
    "listener_security_protocol_map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
    "inter_broker_listener_name": "BROKERS",
}


@pytest.mark.parametrize(
    "limit",
    [{"max_connections": 3}, {"listener_overrides": {"listener.name.clients.max.connections": "2"}}],
    ids=["broker", "listener"],
)
def test_clients_that_use_up_the_connections_keep_no_broker_out(limit: dict[str, object]) -> None:
    async def scenario() -> None:
        harness = Harness()
        async with harness.broker(**TWO_LISTENERS, **limit):  # one connection is the controller's
            clients = [await harness.connect(port=9092) for _ in range(4)]
            await asyncio.sleep(0.1)
            assert [each.closed_because is None for each in clients] == [True, True, False, False]
            broker = await harness.connect(port=9093)
            await broker.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)
            clients[0].channel.close("done")
            await asyncio.sleep(0.1)
            broker.channel.close("done")
            await asyncio.sleep(0.1)
            late = await harness.connect(port=9092)
            await late.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)

    run_virtually(scenario())


def test_idle_connections_are_closed_and_waiting_ones_are_not() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t")
        waiting = await harness.connect()
        response = waiting.start(fetch_request("t", 0, max_wait_ms=20_000), 12)
        await asyncio.sleep(12)
        assert client.closed_because == "closed by the peer"
        assert waiting.closed_because is None
        await response

    with_broker(scenario, connections_max_idle_ms=10_000)


def test_a_client_that_pipelines_without_end_is_read_no_further() -> None:
    async def scenario() -> None:
        harness = Harness()
        async with harness.broker() as broker:
            client = await harness.connect()
            await client.create_topic("t")
            responses = [
                client.start(fetch_request("t", 0, max_wait_ms=1000), 12) for _ in range(MAX_REQUESTS_IN_FLIGHT + 100)
            ]
            await asyncio.sleep(0.1)
            assert broker.statistics().waiting_operations == MAX_FETCHES_IN_FLIGHT
            late = client.start(ApiVersionsRequest(), 0)
            await asyncio.gather(*responses)
            await late

    run_virtually(scenario())


def test_a_client_that_leaves_takes_its_waiting_requests_along() -> None:
    async def scenario() -> None:
        harness = Harness()
        async with harness.broker() as broker:
            client = await harness.connect()
            await client.create_topic("t")
            client.start(fetch_request("t", 0, max_wait_ms=100_000), 12)
            await asyncio.sleep(0.1)
            assert broker.statistics().waiting_operations == 1
            client.channel.close("gone")
            await asyncio.sleep(0.1)
            assert broker.statistics().waiting_operations == 0
            assert broker.statistics().connections == 1  # the controller's

    run_virtually(scenario())


class SlowChannel:
    """A client that takes what it is sent only when the test says so."""

    peer_host, peer_port = "slow", 1
    last_activity = 0.0
    is_privileged = False
    peer_subject: str | None = None
    backlog_memory_bytes = 0  # what is fetched is in files

    def __init__(self) -> None:
        self.backlog_bytes = 0
        self.is_reading = True
        self.responses = 0
        self.responses_by_flush: list[int] = []

    def send(self, parts: Sequence[FramePart]) -> None:
        self.backlog_bytes += sum(map(len, parts))
        self.responses += 1

    def flush(self) -> None:
        self.responses_by_flush.append(self.responses)

    def limit_frames(self, max_bytes: int) -> None: ...

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def close(self, reason: str) -> None: ...


def test_a_slow_reader_is_read_no_further_until_it_has_taken_its_answers() -> None:
    async def scenario() -> None:
        harness = Harness()
        async with harness.broker() as broker:
            client = await harness.connect()
            await client.create_topic("t")
            await client.produce("t", b"x" * 900_000)
            channel = SlowChannel()
            slow = broker.acceptor.accept(channel, "PLAINTEXT")
            assert slow is not None
            fetch = request_header(1, 12, 1, "slow") + encode(fetch_request("t", 0), 12)
            served = 0
            while channel.is_reading:
                slow.on_frame(memoryview(bytearray(fetch)))
                slow.on_frames_done()
                served += 1
            assert served == MAX_BACKLOG_BYTES // 900_000 + 1
            channel.backlog_bytes = 0
            slow.on_drained()
            assert channel.is_reading

    run_virtually(scenario())


def test_answers_that_are_given_in_one_turn_leave_together() -> None:
    async def scenario() -> None:
        harness = Harness()
        async with harness.broker() as broker:
            client = await harness.connect()
            await client.create_topic("t")
            await client.create_topic("u")
            channel = SlowChannel()
            receiver = broker.acceptor.accept(channel, "PLAINTEXT")
            assert receiver is not None
            for topic in ("t", "t", "t", "u", "t"):
                request = encode(fetch_request(topic, 0, max_wait_ms=10_000), 12)
                receiver.on_frame(memoryview(bytearray(request_header(1, 12, 1, "waiting") + request)))
            receiver.on_frames_done()
            await client.produce("t", b"x")
            await asyncio.sleep(0)
            assert channel.responses_by_flush == [0, 3]
            await client.produce("u", b"x")
            assert channel.responses_by_flush == [0, 3, 5]

    run_virtually(scenario())


@pytest.mark.parametrize("is_deferred", [False, True])
def test_an_answer_that_cannot_be_sent_costs_its_connection(
    is_deferred: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is left waiting for it."""
    unsendable = ApiVersionsResponse(error_code=2**40)
    deferred: Deferred[ApiVersionsResponse] = Deferred()
    monkeypatch.setattr(
        api_versions, "handle_api_versions", lambda request, call: deferred if is_deferred else unsendable
    )

    async def scenario(harness: Harness, client: Client) -> None:
        other = await harness.connect()
        client.start(ApiVersionsRequest(), 0)
        await asyncio.sleep(0.1)
        if is_deferred:
            deferred.resolve(unsendable)
            await asyncio.sleep(0.1)
        assert client.closed_because == "closed by the peer"
        assert "connection closed" in caplog.text
        assert other.closed_because is None

    with_broker(scenario)


def test_answers_in_memory_that_nobody_takes_stop_the_reading_of_requests() -> None:
    async def scenario() -> None:
        harness = Harness()
        async with harness.broker() as broker:
            channel = UnreadChannel()
            receiver = broker.acceptor.accept(channel, "PLAINTEXT")
            assert receiver is not None
            frame = request_header(18, 0, 1, "unread") + encode(ApiVersionsRequest(), 0)
            while channel.is_reading:
                receiver.on_frame(memoryview(bytearray(frame)))
                receiver.on_frames_done()
            assert MAX_BACKLOG_MEMORY_BYTES < channel.backlog_bytes < 2 * MAX_BACKLOG_MEMORY_BYTES
            channel.backlog_bytes = 0
            receiver.on_drained()
            assert channel.is_reading

    run_virtually(scenario())


class UnreadChannel(SlowChannel):
    closed_because: str | None = None

    @property
    def backlog_memory_bytes(self) -> int:  # type: ignore[override]
        return self.backlog_bytes

    def close(self, reason: str) -> None:
        self.closed_because = reason


def test_the_sum_of_unread_answers_is_bounded_and_who_takes_none_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MAX_UNREAD_BYTES", 1000)

    async def scenario() -> None:
        harness = Harness()
        async with harness.broker() as broker:
            frame = request_header(18, 0, 1, "unread") + encode(ApiVersionsRequest(), 0)
            channels = [UnreadChannel() for _ in range(10)]
            for channel in channels:
                receiver = broker.acceptor.accept(channel, "PLAINTEXT")
                assert receiver is not None
                while channel.is_reading and channel.responses < 3:
                    receiver.on_frame(memoryview(bytearray(frame)))
                    receiver.on_frames_done()
            assert [channel.responses for channel in channels[-3:]] == [1, 1, 1], "one answer, and no more requests"
            await asyncio.sleep(UNREAD_TIMEOUT_S + 2)
            assert any(channel.closed_because is not None for channel in channels)

    run_virtually(scenario())


def test_writes_that_wait_on_all_connections_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MAX_UNREAD_BYTES", 10 * WAITING_PRODUCE_BYTES)
    monkeypatch.setattr(produce, "handle_produce", lambda request, context: Deferred())
    frame = request_header(0, 9, 1, "waiting") + encode(produce_request("t", b"", acks=-1), 9)
    taken = []

    async def scenario() -> None:
        async with Harness().broker() as broker:
            for _ in range(6):
                channel = UnreadChannel()
                receiver = broker.acceptor.accept(channel, "PLAINTEXT")
                assert receiver is not None
                taken.append(0)
                while channel.is_reading and taken[-1] < 4:
                    taken[-1] += 1
                    receiver.on_frame(memoryview(bytearray(frame)))
                    receiver.on_frames_done()

    run_virtually(scenario())
    assert taken == [4, 4, 2, 1, 1, 1]


def test_requests_of_very_many_elements_are_answered_and_too_many_are_refused() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        topics = [MetadataRequestTopic(name=f"t{number}") for number in range(MAX_CLIENT_ELEMENTS)]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        response = await client.ask(request, 9, MetadataResponse)
        assert [topic.name for topic in response.topics] == [topic.name for topic in topics]
        client.start(MetadataRequest(topics=[*topics, MetadataRequestTopic(name="x")]), 9)
        await asyncio.sleep(1)
        assert client.closed_because == "closed by the peer"

    with_broker(scenario)
