"""Contract of every network, with sockets and in memory."""

import asyncio
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.certificates import Authority
from tidelog.config.broker import BrokerSettings
from tidelog.runtime import receive_buffers
from tidelog.runtime import turns as turns_module
from tidelog.runtime.broker_loop import BrokerLoop
from tidelog.runtime.disk import FileSlice, SystemDisk
from tidelog.runtime.memory_network import MemoryNetwork
from tidelog.runtime.network import AcceptChannel, Channel, FrameReceiver, Network, Tls
from tidelog.runtime.socket_network import SocketListener, SocketNetwork
from tidelog.runtime.tls_context import ListenerTls
from tidelog.runtime.turns import Turns, Work

MAX_FRAME_BYTES = 10_000_000


class EncryptedNetwork(SocketNetwork):
    """Its listeners have the TLS of its connections."""

    async def listen(self, host: str, port: int, accept: AcceptChannel, tls: Tls | None = None) -> SocketListener:
        return await super().listen(host, port, accept, tls or self._tls)


@cache
def tls() -> ListenerTls:
    with tempfile.TemporaryDirectory() as directory:
        certificate = Authority(Path(directory)).sign("broker")
        return ListenerTls(BrokerSettings(**certificate.ssl_settings, ssl_client_auth="required"))  # type: ignore[arg-type]


NETWORKS: list[Callable[[], Network]] = [
    lambda: SocketNetwork(MAX_FRAME_BYTES),
    lambda: EncryptedNetwork(MAX_FRAME_BYTES, tls=tls()),
    MemoryNetwork,
]


@pytest.fixture(params=NETWORKS, ids=["sockets", "TLS", "memory"])
def network(request: pytest.FixtureRequest) -> Network:
    made: Network = request.param()
    return made


class Recorder:
    """Keeps what it receives; answers with what `reply` says."""

    def __init__(self, channel: Channel, reply: Callable[[bytes], list[bytes]] = lambda frame: []) -> None:
        self.channel = channel
        self.frames: list[bytes] = []
        self.wake_ups = 0
        self.closed_because: str | None = None
        self.changed = asyncio.Event()
        self._reply = reply

    def on_frame(self, frame: memoryview) -> None:
        self.frames.append(bytes(frame))
        for response in self._reply(bytes(frame)):
            self.channel.send([response])

    def on_frames_done(self) -> None:
        self.wake_ups += 1
        self.channel.flush()
        self.changed.set()

    def on_drained(self) -> None:
        self.changed.set()

    def on_closed(self, reason: str) -> None:
        self.closed_because = reason
        self.changed.set()

    async def until(self, condition: Callable[["Recorder"], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition(self):
                self.changed.clear()
                await self.changed.wait()


class Pair:
    """A client and a server that are connected."""

    server: Recorder
    client: Recorder

    async def connect(self, network: Network, reply: Callable[[bytes], list[bytes]] = lambda frame: []) -> "Pair":
        self.accepted = asyncio.Event()

        def accept(channel: Channel) -> FrameReceiver:
            self.server = Recorder(channel, reply)
            self.accepted.set()
            return self.server

        def attach(channel: Channel) -> FrameReceiver:
            self.client = Recorder(channel)
            return self.client

        self.listener = await network.listen("127.0.0.1", 0, accept)
        self.listener.start()
        await network.connect("127.0.0.1", self.listener.port, attach)
        await asyncio.wait_for(self.accepted.wait(), 60)
        return self

    def close(self) -> None:
        self.client.channel.close("test over")
        self.server.channel.close("test over")
        self.listener.close()


LOOPS = [asyncio.SelectorEventLoop, BrokerLoop]


@pytest.fixture(params=LOOPS, ids=["asyncio", "broker"], autouse=True)
def loop_class(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers have an event loop of their own, clients that of their program."""
    monkeypatch.setattr(sys.modules[__name__], "LOOPS", [request.param])


def run(scenario: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=LOOPS[0]) as runner:
        runner.run(scenario)


def test_frames_arrive_whole_and_in_order(network: Network) -> None:
    async def scenario() -> None:
        pair = await Pair().connect(network)
        sent = [bytes([index % 251]) * size for index, size in enumerate([0, 1, 3, 4, 5, 70_000, 0, 2_500_000, 17])]
        for frame in sent:
            pair.client.channel.send([frame[:2], frame[2:]])
        pair.client.channel.flush()
        await pair.server.until(lambda server: len(server.frames) == len(sent))
        assert pair.server.frames == sent
        pair.close()

    run(scenario())


def test_many_small_frames_share_a_wake_up(network: Network) -> None:
    async def scenario() -> None:
        pair = await Pair().connect(network)
        for index in range(1000):
            pair.client.channel.send([b"%d" % index])
        pair.client.channel.flush()
        await pair.server.until(lambda server: len(server.frames) == 1000)
        assert pair.server.frames == [b"%d" % index for index in range(1000)]
        assert pair.server.wake_ups < 100
        pair.close()

    run(scenario())


def test_an_answer_can_be_a_slice_of_a_file(network: Network, tmp_path: Path) -> None:
    async def scenario() -> None:
        pair = await Pair().connect(network)
        content = bytes(range(256)) * 20_000
        (tmp_path / "data").write_bytes(content)
        file = SystemDisk().open(str(tmp_path / "data"), "read")
        for position, length in [(0, 10), (5, 1_000_000), (100, 4_000_000)]:
            pair.server.channel.send([b"head", FileSlice(file, position, length), b"tail"])
        pair.server.channel.flush()
        await pair.client.until(lambda client: len(client.frames) == 3)
        assert pair.client.frames == [
            b"head" + content[position : position + length] + b"tail"
            for position, length in [(0, 10), (5, 1_000_000), (100, 4_000_000)]
        ]
        pair.close()

    run(scenario())


def test_a_paused_reader_receives_nothing_until_it_resumes(network: Network) -> None:
    async def scenario() -> None:
        pair = await Pair().connect(network)
        pair.server.channel.pause_reading()
        pair.client.channel.send([b"x"])
        pair.client.channel.flush()
        for _ in range(50):
            await asyncio.sleep(0)
        assert pair.server.frames == []
        pair.server.channel.resume_reading()
        await pair.server.until(lambda server: server.frames == [b"x"])
        pair.close()

    run(scenario())


def test_a_reader_that_pauses_itself_gets_the_next_frame_when_it_resumes(network: Network) -> None:
    async def scenario() -> None:
        pair = await Pair().connect(network)
        server = pair.server
        take = server.on_frame

        def take_one(frame: memoryview) -> None:
            take(frame)
            server.channel.pause_reading()

        server.on_frame = take_one  # type: ignore[method-assign]
        for size in (10, 100_000, 3, 50_000):
            pair.client.channel.send([bytes(size)])
        pair.client.channel.flush()
        for expected in range(1, 5):
            await server.until(lambda server, expected=expected: len(server.frames) == expected)  # type: ignore[misc]
            for _ in range(10):
                await asyncio.sleep(0)
            assert len(server.frames) == expected
            server.channel.resume_reading()
        assert [len(frame) for frame in server.frames] == [10, 100_000, 3, 50_000]
        pair.close()

    run(scenario())


def test_both_ends_learn_of_a_close(network: Network) -> None:
    async def scenario() -> None:
        pair = await Pair().connect(network)
        pair.server.channel.close("enough")
        await pair.client.until(lambda client: client.closed_because is not None)
        assert pair.server.closed_because == "enough"
        assert pair.client.closed_because == "closed by the peer"
        pair.close()

    run(scenario())


def test_a_connection_can_be_turned_away(network: Network) -> None:
    async def scenario() -> None:
        client: list[Recorder] = []

        def attach(channel: Channel) -> FrameReceiver:
            client.append(Recorder(channel))
            return client[0]

        listener = await network.listen("127.0.0.1", 0, lambda channel: None)
        listener.start()
        with suppress(OSError):  # with TLS, the client notices at once
            await network.connect("127.0.0.1", listener.port, attach)
        await client[0].until(lambda recorder: recorder.closed_because is not None)
        listener.close()

    run(scenario())


def test_who_connects_before_the_start_is_served_after_it(network: Network) -> None:
    async def scenario() -> None:
        servers: list[Recorder] = []

        def accept(channel: Channel) -> FrameReceiver:
            servers.append(Recorder(channel))
            return servers[-1]

        listener = await network.listen("127.0.0.1", 0, accept)
        connecting = asyncio.ensure_future(network.connect("127.0.0.1", listener.port, Recorder))
        for _ in range(50):
            await asyncio.sleep(0)
        assert servers == []
        listener.start()
        channel = await connecting
        channel.send([b"x"])
        channel.flush()
        async with asyncio.timeout(60):
            while not servers or not servers[0].frames:  # noqa: ASYNC110
                await asyncio.sleep(0)
        channel.close("test over")
        listener.close()

    run(scenario())


def test_nobody_listening_is_a_refusal(network: Network) -> None:
    async def scenario() -> None:
        listener = await network.listen("127.0.0.1", 0, lambda channel: None)
        listener.close()
        with pytest.raises(ConnectionRefusedError):
            await network.connect("127.0.0.1", listener.port, Recorder)

    run(scenario())


def test_two_listeners_cannot_share_a_port(network: Network) -> None:
    async def scenario() -> None:
        listener = await network.listen("127.0.0.1", 0, lambda channel: None)
        with pytest.raises(OSError, match="in use"):
            await network.listen("127.0.0.1", listener.port, lambda channel: None)
        listener.close()

    run(scenario())


# -- what only sockets can do wrong


@pytest.mark.skipif(not socket.has_ipv6, reason="the machine has no IPv6")
def test_an_ipv4_client_of_an_ipv6_listener_has_its_ipv4_address() -> None:
    """Permissions and limits are given to addresses: the form `::ffff:127.0.0.1` would escape them."""

    async def scenario() -> None:
        host: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        network = SocketNetwork(MAX_FRAME_BYTES)
        listener = await network.listen("::", 0, lambda channel: host.set_result(channel.peer_host))
        listener.start()
        with socket.create_connection(("127.0.0.1", listener.port)):
            assert await host == "127.0.0.1"
        listener.close()

    run(scenario())


def test_a_name_with_several_addresses_means_the_ipv4_one() -> None:
    async def scenario() -> None:
        listener = await SocketNetwork(MAX_FRAME_BYTES).listen("localhost", 0, lambda channel: None)
        assert listener.host == "127.0.0.1"
        listener.close()

    run(scenario())


def test_a_connection_to_itself_counts_as_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system may give a client that keeps connecting to a port without listener that very port for its own end."""

    async def scenario() -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            address = probe.getsockname()
        make = socket.socket

        def make_bound(*arguments: int) -> socket.socket:
            made = make(*arguments)
            made.bind(address)
            return made

        monkeypatch.setattr(socket, "socket", make_bound)
        with pytest.raises(ConnectionRefusedError):
            await SocketNetwork(MAX_FRAME_BYTES).connect("127.0.0.1", address[1], Recorder)

    asyncio.run(scenario())


async def _raw_connection(listener_port: int) -> asyncio.StreamWriter:
    _, writer = await asyncio.open_connection("127.0.0.1", listener_port)
    return writer


@pytest.mark.parametrize("length", [b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", (MAX_FRAME_BYTES + 1).to_bytes(4, "big")])
def test_a_frame_above_the_limit_closes_its_connection(length: bytes) -> None:
    async def scenario() -> None:
        pair = Pair()
        await pair.connect(SocketNetwork(MAX_FRAME_BYTES))
        pair.accepted.clear()
        writer = await _raw_connection(pair.listener.port)
        await pair.accepted.wait()
        writer.write(length + b"some bytes")
        await pair.server.until(lambda server: server.closed_because is not None)
        assert "the limit is" in (pair.server.closed_because or "")
        writer.close()
        pair.close()

    run(scenario())


def test_a_frame_that_arrives_byte_by_byte_is_one_frame() -> None:
    async def scenario() -> None:
        pair = Pair()
        await pair.connect(SocketNetwork(MAX_FRAME_BYTES))
        pair.accepted.clear()
        writer = await _raw_connection(pair.listener.port)
        await pair.accepted.wait()
        body = bytes(range(200))
        for byte in len(body).to_bytes(4, "big") + body + (3).to_bytes(4, "big") + b"abc":
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)
        await pair.server.until(lambda server: len(server.frames) == 2)
        assert pair.server.frames == [body, b"abc"]
        writer.close()
        pair.close()

    run(scenario())


def test_announced_but_unsent_bytes_cost_no_memory() -> None:
    async def scenario() -> None:
        network = SocketNetwork(MAX_FRAME_BYTES)
        pair = Pair()
        await pair.connect(network)
        writers = []
        for _ in range(50):
            pair.accepted.clear()
            writers.append(await _raw_connection(pair.listener.port))
            await pair.accepted.wait()
            writers[-1].write(MAX_FRAME_BYTES.to_bytes(4, "big") + b"x" * 100)
            await writers[-1].drain()
        for _ in range(200):
            await asyncio.sleep(0)
        assert network.held_bytes == 50 * 104  # what has arrived
        for writer in writers:
            writer.close()
        pair.close()

    run(scenario())


async def _half_sent(
    pair: "Pair", network: SocketNetwork, total: int, sent: int
) -> "tuple[Recorder, asyncio.StreamWriter]":
    pair.accepted.clear()
    held_bytes = network.held_bytes
    writer = await _raw_connection(pair.listener.port)
    await pair.accepted.wait()
    writer.write(total.to_bytes(4, "big") + b"x" * sent)
    await writer.drain()
    async with asyncio.timeout(60):
        while network.held_bytes == held_bytes:  # noqa: ASYNC110
            await asyncio.sleep(0)
    return pair.server, writer


def test_many_rests_of_frames_take_memory_of_their_own_size() -> None:
    async def scenario() -> None:
        network = SocketNetwork(MAX_FRAME_BYTES)
        pair = Pair()
        await pair.connect(network)
        writers = [(await _half_sent(pair, network, MAX_FRAME_BYTES, 17_000))[1] for _ in range(100)]
        assert network.held_bytes < 16 * 1024 * 1024 + 1024 * 1024 + 84 * 2 * 17_000
        for writer in writers:
            writer.close()
        pair.close()

    run(scenario())


def test_above_the_limit_unfinished_frames_wait_and_whole_ones_do_not() -> None:
    async def scenario() -> None:
        network = SocketNetwork(MAX_FRAME_BYTES, max_buffered_bytes=1)
        pair = Pair()
        await pair.connect(network)
        first = pair.server
        finishing, first_writer = await _half_sent(pair, network, 1_000_000, 500_000)
        waiting, second_writer = await _half_sent(pair, network, 900_000, 500_000)
        pair.client.channel.send([b"small"])
        pair.client.channel.flush()
        await first.until(lambda server: server.frames == [b"small"])
        second_writer.write(b"y" * 400_000)
        for _ in range(100):
            await asyncio.sleep(0)
        assert waiting.frames == []
        first_writer.write(b"y" * 500_000)
        await finishing.until(lambda server: len(server.frames) == 1)
        await waiting.until(lambda server: len(server.frames) == 1)
        first_writer.close()
        second_writer.close()
        pair.close()

    run(scenario())


def test_many_large_unfinished_frames_together_hold_little_more_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receive_buffers, "AMPLE_BELOW_BYTES", 100_000)
    limit_bytes, connections = 1_000_000, 20

    async def scenario() -> None:
        network = SocketNetwork(MAX_FRAME_BYTES, max_buffered_bytes=limit_bytes)
        accepted: list[Recorder] = []

        def accept(channel: Channel) -> FrameReceiver:
            accepted.append(Recorder(channel))
            return accepted[-1]

        listener = await network.listen("127.0.0.1", 0, accept)
        listener.start()
        writers = [await _raw_connection(listener.port) for _ in range(connections)]
        for writer in writers:
            writer.write((9_000_000).to_bytes(4, "big") + bytes(900_000))
        most_bytes = 0
        for _ in range(200):
            await asyncio.sleep(0)
            most_bytes = max(most_bytes, network.held_bytes)
        assert 0.5 * limit_bytes < most_bytes < 1.1 * limit_bytes + connections * receive_buffers.MIN_RECEIVE_BYTES
        for writer in writers:
            writer.close()
        for recorder in accepted:
            recorder.channel.close("test over")
        listener.close()

    run(scenario())


def test_a_client_that_stalls_while_memory_is_exhausted_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receive_buffers, "CHECK_S", 0.01)

    async def scenario() -> None:
        network = SocketNetwork(MAX_FRAME_BYTES, max_buffered_bytes=1_500_000)
        pair = Pair()
        await pair.connect(network)
        stalled, first_writer = await _half_sent(pair, network, 9_000_000, 500_000)
        waiting, second_writer = await _half_sent(pair, network, 900_000, 500_000)
        await stalled.until(lambda server: server.closed_because is not None)
        assert "held memory that other requests need" in (stalled.closed_because or "")
        second_writer.write(b"y" * 400_000)
        await waiting.until(lambda server: len(server.frames) == 1)
        first_writer.close()
        second_writer.close()
        pair.close()

    run(scenario())


def test_of_those_who_all_wait_for_memory_the_one_that_lacks_most_is_closed() -> None:
    class Waiting:
        def __init__(self, missing_bytes: int) -> None:
            self.missing_bytes, self.held_bytes = missing_bytes, 100
            self.is_fed = self.is_closed = False

        def mute(self) -> None: ...

        def unmute(self) -> None:
            self.is_fed = True

        def take_progress(self) -> int | None:
            return 5000

        def close(self, reason: str) -> None:
            self.is_closed, self.held_bytes = True, 0
            buffers.report_held(self, -100)

    buffers = receive_buffers.ReceiveBuffers(500)

    async def scenario() -> None:
        oldest, hungry, modest = Waiting(1), Waiting(5000), Waiting(50)
        for each in (oldest, hungry, modest):
            buffers.report_held(each, 100)
        for each in (oldest, hungry, modest):
            buffers.mute_if_exhausted(each)
        for _ in range(receive_buffers.MAX_CHECKS_WITHOUT_PROGRESS):
            buffers._free_memory()
        assert (hungry.is_closed, modest.is_closed, modest.is_fed) == (True, False, True)

    run(scenario())


def test_a_client_that_sent_much_does_not_keep_others_waiting() -> None:
    """Its frames are handled in slices; a client with one frame comes in between."""

    class Slow(Recorder):
        def on_frame(self, frame: memoryview) -> None:
            super().on_frame(frame)
            end = time.monotonic() + 0.001
            while time.monotonic() < end:
                pass

    async def scenario() -> None:
        network = SocketNetwork(MAX_FRAME_BYTES)
        servers: list[Recorder] = []

        def accept(channel: Channel) -> FrameReceiver:
            servers.append(Slow(channel))
            return servers[-1]

        listener = await network.listen("127.0.0.1", 0, accept)
        listener.start()
        greedy = await network.connect("127.0.0.1", listener.port, Recorder)
        modest = await network.connect("127.0.0.1", listener.port, Recorder)
        for _ in range(1000):
            greedy.send([b"again"])
        greedy.flush()
        async with asyncio.timeout(60):
            while len(servers) < 2 or not servers[0].frames:  # noqa: ASYNC110
                await asyncio.sleep(0)
        modest.send([b"once"])
        modest.flush()
        await servers[1].until(lambda server: server.frames == [b"once"])
        assert len(servers[0].frames) < 200
        await servers[0].until(lambda server: len(server.frames) == 1000)
        greedy.close("done")
        modest.close("done")
        listener.close()

    run(scenario())


class CrowdedTurns(Turns):
    """Everybody has to queue up."""

    def __init__(self) -> None:
        super().__init__(time.monotonic)
        self.queued: list[bool] = []

    def begin(self) -> bool:
        return False

    def queue(self, work: Work, *, is_continued: bool = False) -> None:
        self.queued.append(is_continued)
        super().queue(work, is_continued=is_continued)


def test_a_client_in_the_middle_of_a_frame_queues_up_behind_whole_requests() -> None:
    async def scenario() -> None:
        turns = CrowdedTurns()
        pair = await Pair().connect(SocketNetwork(MAX_FRAME_BYTES, turns=turns))
        connection = pair.client.channel._socket  # type: ignore[attr-defined]
        for count, piece in enumerate([b"\0\0\0\2", b"a", b"b"]):
            connection.send(piece)
            await pair.server.until(lambda server: server.wake_ups > count)  # noqa: B023
        assert pair.server.frames == [b"ab"]
        assert turns.queued == [False, True, True]
        pair.close()

    run(scenario())


def test_a_connection_that_has_its_turn_soon_is_watched_all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each change costs a system call, and would come with each slice."""

    async def scenario() -> None:
        # Its clock stands still: on a busy machine the time of a turn may be over before anything is done in it.
        pair = await Pair().connect(SocketNetwork(MAX_FRAME_BYTES, turns=Turns(lambda: 1.0)))
        loop = asyncio.get_running_loop()
        changes: list[int] = []
        monkeypatch.setattr(loop, "add_reader", lambda fd, *_: changes.append(fd))
        monkeypatch.setattr(loop, "remove_reader", changes.append)
        monkeypatch.setattr(turns_module, "SLICE_S", 0.0)
        monkeypatch.setattr(turns_module, "MIN_SLICE_S", 0.0)
        monkeypatch.setattr(turns_module.Turns, "is_slice_over", lambda _: True)
        for _ in range(100):
            pair.client.channel.send([b"x"])
        pair.client.channel.flush()
        await pair.server.until(lambda server: len(server.frames) == 100)
        assert pair.server.wake_ups >= 100
        assert changes == []
        monkeypatch.undo()
        pair.close()

    run(scenario())


def test_no_two_connections_receive_into_one_buffer() -> None:
    """A buffer that was kept for the rest of a frame is let go of when it is given back."""

    async def scenario() -> None:
        network = SocketNetwork(MAX_FRAME_BYTES)
        writers: list[asyncio.StreamWriter] = []
        server = await asyncio.start_server(lambda _, writer: writers.append(writer), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        recorders: list[Recorder] = []

        def attach(channel: Channel) -> FrameReceiver:
            recorders.append(Recorder(channel))
            return recorders[-1]

        channels = [await network.connect("127.0.0.1", port, attach) for _ in range(2)]
        while len(writers) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0)

        async def send_half(number: int, content: bytes) -> None:
            writers[number].write((2 * len(content)).to_bytes(4, "big") + content)
            frames = channels[number].reader.frames
            async with asyncio.timeout(60):
                while frames.filled - frames.start < len(content):  # noqa: ASYNC110
                    await asyncio.sleep(0)

        half = 100_000
        await send_half(0, b"a" * half)
        writers[0].write(b"a" * half)
        await recorders[0].until(lambda recorder: len(recorder.frames) == 1)
        await send_half(0, b"b" * half)
        await send_half(1, b"c" * half)
        writers[0].write(b"b" * half)
        writers[1].write(b"c" * half)
        await recorders[0].until(lambda recorder: len(recorder.frames) == 2)
        await recorders[1].until(lambda recorder: len(recorder.frames) == 1)
        assert recorders[0].frames == [b"a" * 2 * half, b"b" * 2 * half]
        assert recorders[1].frames == [b"c" * 2 * half]
        for channel in channels:
            channel.close("done")
        for writer in writers:
            writer.close()
        server.close()

    run(scenario())


@pytest.mark.parametrize("sent", [100, 17_000])
def test_a_client_that_leaves_in_the_middle_of_a_frame_holds_nothing_any_more(sent: int) -> None:
    async def scenario() -> None:
        network = SocketNetwork(MAX_FRAME_BYTES)
        pair = Pair()
        await pair.connect(network)
        server, writer = await _half_sent(pair, network, MAX_FRAME_BYTES, sent)
        writer.close()
        await server.until(lambda server: server.closed_because is not None)
        await asyncio.sleep(0)
        assert network.held_bytes == 0
        pair.close()

    run(scenario())
