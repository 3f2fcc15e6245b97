"""Receive buffers that are kept for the next frame."""

import asyncio
from collections.abc import Callable

import pytest

from tidelog.runtime import frame_buffer
from tidelog.runtime.network import Channel
from tidelog.runtime.receive_buffers import BUFFER_BYTES, MAX_SPARE_BUFFERS, MAX_SPARE_LARGE_BYTES, ReceiveBuffers
from tidelog.runtime.socket_network import SocketNetwork

MIB = 1024 * 1024


def test_a_buffer_that_is_given_back_is_taken_again() -> None:
    buffers = ReceiveBuffers()
    buffer = buffers.take()
    buffers.give_back(buffer)
    assert buffers.take() is buffer
    assert buffers.take() is not buffer


def test_only_a_few_spare_buffers_are_kept() -> None:
    buffers = ReceiveBuffers()
    given = [bytearray(BUFFER_BYTES) for _ in range(MAX_SPARE_BUFFERS + 1)]
    for buffer in given:
        buffers.give_back(buffer)
    taken = [buffers.take() for _ in given]
    assert sum(any(buffer is one for one in given) for buffer in taken) == MAX_SPARE_BUFFERS


def test_a_large_frame_gets_the_smallest_spare_that_holds_it() -> None:
    buffers = ReceiveBuffers()
    for size in (8, 2, 4):
        buffers.give_back(bytearray(size * MIB))
    sizes = [len(buffers.take_large(3 * MIB) or b"") // MIB for _ in range(3)]
    assert sizes == [4, 8, 0]


def test_large_spares_give_way_to_larger_ones() -> None:
    buffers = ReceiveBuffers()
    for size in (2, 11, 4, 11):
        buffers.give_back(bytearray(size * MIB))
    sizes = [len(buffers.take_large(1) or b"") // MIB for _ in range(4)]
    assert sizes == [11, 11, 0, 0]


def test_what_no_ordinary_frame_needs_is_not_kept() -> None:
    buffers = ReceiveBuffers()
    buffers.give_back(bytearray(MAX_SPARE_LARGE_BYTES + 1))
    buffers.give_back(bytearray(BUFFER_BYTES // 2))
    assert buffers.take_large(1) is None
    assert len(buffers.take()) == BUFFER_BYTES


class CountedAllocations:
    """Stands for bytearray in the module that makes large buffers."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def __call__(self, size: int) -> bytearray:
        self.sizes.append(size)
        return bytearray(size)


class Collector:
    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.changed = asyncio.Event()

    def on_frame(self, frame: memoryview) -> None:
        self.frames.append(bytes(frame))

    def on_frames_done(self) -> None:
        self.changed.set()

    def on_drained(self) -> None: ...

    def on_closed(self, reason: str) -> None: ...

    async def until(self, condition: Callable[["Collector"], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition(self):
                self.changed.clear()
                await self.changed.wait()


def test_large_frames_after_the_first_need_no_new_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    allocations = CountedAllocations()
    monkeypatch.setattr(frame_buffer, "bytearray", allocations, raising=False)

    async def scenario() -> None:
        network, collector = SocketNetwork(20 * MIB), Collector()

        def accept(channel: Channel) -> Collector:
            return collector

        listener = await network.listen("127.0.0.1", 0, accept)
        listener.start()
        client = await network.connect("127.0.0.1", listener.port, lambda channel: Collector())
        frames = [bytes([number]) * (4 * MIB + number * 1000) for number in range(5)]
        for number, frame in enumerate(frames):
            client.send([frame, b"-end"])
            client.send([b"small"])
            client.flush()
            await collector.until(lambda one, count=2 * number + 2: len(one.frames) == count)  # type: ignore[misc]
        assert collector.frames == [part for frame in frames for part in (frame + b"-end", b"small")]
        assert network.held_bytes == 0
        client.close("done")
        listener.close()

    asyncio.run(scenario())
    assert allocations.sizes == [2 * MIB, 4 * MIB, 5 * MIB]
