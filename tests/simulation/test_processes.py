"""Simulated processes can be killed and stopped without their help."""

import asyncio
import gc
from collections.abc import Coroutine
from typing import Any

from tidelog.runtime.memory_network import MemoryNetwork
from tidelog.simulation.processes import Process, run_simulation


async def _tick(seen: list[float]) -> None:
    try:
        while True:
            await asyncio.sleep(1)
            seen.append(asyncio.get_running_loop().time())
    finally:
        seen.append(-1)


def test_a_killed_process_does_nothing_more_not_even_cleaning_up() -> None:
    async def main() -> list[float]:
        seen: list[float] = []
        process = Process("one")
        process.start(_tick(seen))
        await asyncio.sleep(2.5)
        process.kill()
        await asyncio.sleep(5)
        return list(seen)

    assert run_simulation(main()) == [1, 2]


def test_a_stopped_process_goes_on_late() -> None:
    async def main() -> list[float]:
        seen: list[float] = []
        process = Process("one")
        process.start(_tick(seen))
        await asyncio.sleep(1.5)
        process.stop()
        await asyncio.sleep(5)
        process.resume()
        await asyncio.sleep(1.2)
        return list(seen)

    assert run_simulation(main()) == [1, 6.5, 7.5]


def test_what_is_left_of_killed_processes_ends_with_the_simulation() -> None:
    seen: list[float] = []

    async def main() -> None:
        process = Process("one")
        process.start(_tick(seen))
        await asyncio.sleep(1.5)
        process.kill()

    run_simulation(main())
    assert seen == [1, -1]


def test_what_a_killed_process_never_began_is_dropped_quietly() -> None:
    async def answer() -> None: ...

    async def wrap(inner: Coroutine[Any, Any, None]) -> None:
        await inner

    async def main() -> None:
        process = Process("one")
        process.start(wrap(answer()))
        process.kill()

    run_simulation(main())
    gc.collect()


def test_a_host_without_power_closes_its_connections_and_a_cut_link_holds_frames_back() -> None:
    class Receiver:
        def __init__(self) -> None:
            self.seen: list[str] = []

        def on_frame(self, frame: memoryview) -> None:
            self.seen.append(bytes(frame).decode())

        def on_frames_done(self) -> None: ...

        def on_drained(self) -> None: ...

        def on_closed(self, reason: str) -> None:
            self.seen.append(reason)

    async def main() -> None:
        network = MemoryNetwork()
        network.latency_s = 0.001
        server, client = Receiver(), Receiver()
        listener = await network.at("a").listen("a", 1, lambda channel: server)
        listener.start()
        channel = await network.at("b").connect("a", 1, lambda channel: client)
        network.cut("a", "b")
        channel.send([b"held"])
        channel.flush()
        await asyncio.sleep(1)
        assert server.seen == []
        network.mend("a", "b")
        await asyncio.sleep(1)
        assert server.seen == ["held"]
        network.power_off("a")
        await asyncio.sleep(1)
        assert client.seen == ["closed by the peer"]

    run_simulation(main())
