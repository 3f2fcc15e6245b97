"""The simulated network between hosts."""

import asyncio

from tidelog.runtime.memory_network import MemoryNetwork
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
