"""The simulated network between hosts."""

import asyncio

from tidelog.runtime.memory_network import MemoryNetwork
from tidelog.runtime.network import Channel
from tidelog.runtime.randomness import SeededRandomness
from tidelog.simulation.processes import run_simulation


class Receiver:
    def __init__(self) -> None:
        self.seen: list[int] = []

    def on_frame(self, frame: memoryview) -> None:
        self.seen.append(int.from_bytes(frame, "big"))

    def on_frames_done(self) -> None: ...

    def on_drained(self) -> None: ...

    def on_closed(self, reason: str) -> None: ...


def test_frames_of_one_moment_arrive_in_the_order_of_sending() -> None:
    async def main() -> list[int]:
        network = MemoryNetwork()
        network.latency_s = 0.001
        server, client = Receiver(), Receiver()
        listener = await network.at("a").listen("a", 1, lambda channel: server)
        listener.start()
        channel = await network.at("b").connect("a", 1, lambda channel: client)
        for number in range(20):
            channel.send([number.to_bytes(1, "big")])
            channel.flush()
        await asyncio.sleep(1)
        return server.seen

    assert run_simulation(main()) == list(range(20))


async def connected(network: MemoryNetwork, port: int) -> tuple[Receiver, Channel]:
    """What a server on host a receives, and the channel of a client on host b."""
    server = Receiver()
    listener = await network.at("a").listen("a", port, lambda channel: server)
    listener.start()
    return server, await network.at("b").connect("a", port, lambda channel: Receiver())


def send(channel: Channel, number: int) -> None:
    channel.send([number.to_bytes(1, "big")])
    channel.flush()


def test_with_drawn_latencies_one_connection_keeps_its_order_and_two_do_not() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        arrivals: list[tuple[int, int]] = []
        one, first = await connected(network, 1)
        other, second = await connected(network, 2)
        one.on_frame = lambda frame: arrivals.append((1, frame[0]))  # type: ignore[method-assign]
        other.on_frame = lambda frame: arrivals.append((2, frame[0]))  # type: ignore[method-assign]
        randomness = SeededRandomness(1)
        network.draw_latencies(lambda source, target: randomness.below(1000) / 1000)
        for number in range(20):
            send(first, number)
            send(second, number)
        await asyncio.sleep(5)
        assert [number for connection, number in arrivals if connection == 1] == list(range(20))
        assert [number for connection, number in arrivals if connection == 2] == list(range(20))
        assert arrivals != [(connection, number) for number in range(20) for connection in (1, 2)]

    run_simulation(main())


def test_a_one_way_cut_holds_what_is_sent_that_way_until_it_is_mended() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        network.latency_s = 0.001
        server, channel = await connected(network, 1)
        network.cut_one_way("a", "b")
        send(channel, 1)
        await asyncio.sleep(1)
        assert server.seen == [1]
        network.cut_one_way("b", "a")
        send(channel, 2)
        await asyncio.sleep(1)
        assert server.seen == [1]
        network.mend("a", "b")
        await asyncio.sleep(1)
        assert server.seen == [1, 2]

    run_simulation(main())


def test_a_slow_link_delays_one_direction() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        server, channel = await connected(network, 1)
        network.slow_down("b", "a", 2.0)
        send(channel, 1)
        await asyncio.sleep(1.9)
        assert server.seen == []
        await asyncio.sleep(0.2)
        assert server.seen == [1]

    run_simulation(main())


def test_both_ends_learn_that_a_connection_has_broken() -> None:
    async def main() -> None:
        network, closed = MemoryNetwork(), list[str]()

        class Listening(Receiver):
            def on_closed(self, reason: str) -> None:
                closed.append(reason)

        listener = await network.at("a").listen("a", 1, lambda channel: Listening())
        listener.start()
        await network.at("b").connect("a", 1, lambda channel: Listening())
        network.reset("a", "b")
        await asyncio.sleep(1)
        assert closed == ["connection reset", "connection reset"]

    run_simulation(main())
