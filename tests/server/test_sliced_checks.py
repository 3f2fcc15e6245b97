"""Order in which waiting compressed batches are validated."""

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from tidelog.config.topic import TopicSettings
from tidelog.protocol.compression import Codec
from tidelog.protocol.records import Record, build_batch
from tidelog.server.sliced_checks import MAX_OVERTAKING_COST, CheapestFirst, LongChecks

P = ParamSpec("P")
T = TypeVar("T")

NOW_MS = 1_700_000_000_000


class SlowWorkers:
    """Never finishes one piece of its work."""

    def __init__(self, stuck_at: int) -> None:
        self._stuck_at = stuck_at
        self.works = 0

    async def run(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        self.works += 1
        if self.works == self._stuck_at:
            await asyncio.get_running_loop().create_future()
        return work(*args, **kwargs)

    def close(self) -> None: ...


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


class Queue:
    """Holders of one lock, in the order in which they got it. Each keeps it until the test releases it."""

    def __init__(self) -> None:
        self.lock = CheapestFirst()
        self.order: list[str] = []
        self._leave = asyncio.Semaphore(0)

    def join(self, name: str, cost: int) -> "asyncio.Task[None]":
        async def run() -> None:
            async with self.lock.hold(cost):
                self.order.append(name)
                await self._leave.acquire()

        return asyncio.ensure_future(run())

    async def finish(self, number: int) -> None:
        for _ in range(number):
            await settled()
            self._leave.release()
        await settled()


def test_a_batch_of_few_records_does_not_wait_for_those_of_a_million_that_came_before() -> None:
    async def scenario() -> None:
        queue = Queue()
        long = [queue.join(f"long-{number}", 1_000_000) for number in range(20)]
        await settled()
        short = queue.join("short", 10_000)
        await queue.finish(2)
        assert queue.order[:2] == ["long-0", "short"]
        await queue.finish(19)
        await asyncio.gather(short, *long)
        assert queue.order[2:] == [f"long-{number}" for number in range(1, 20)]

    asyncio.run(scenario())


def test_a_batch_of_many_records_is_not_put_off_for_ever() -> None:
    async def scenario() -> None:
        queue = Queue()
        queue.join("first", 100)
        await settled()
        long = queue.join("long", 1000)
        for number in range(MAX_OVERTAKING_COST * 20):
            queue.join(f"short-{number}", 100)
            await queue.finish(1)
            if "long" in queue.order:
                break
        assert "long" in queue.order
        long.cancel()

    asyncio.run(scenario())


def test_who_goes_while_it_waits_or_as_it_gets_its_turn_leaves_the_lock_to_the_next() -> None:
    async def scenario() -> None:
        queue = Queue()
        first = queue.join("first", 1)
        await settled()
        impatient, unlucky, last = (queue.join(name, 1) for name in ("impatient", "unlucky", "last"))
        await settled()
        impatient.cancel()
        await settled()
        first.cancel()
        await asyncio.sleep(0)  # `unlucky` has its turn, and has not seen it yet
        unlucky.cancel()
        await settled()
        assert queue.order == ["first", "last"]
        await queue.finish(1)
        assert last.done()
        again = queue.join("again", 1)
        await queue.finish(1)
        assert again.done()

    asyncio.run(scenario())


def test_a_batch_that_is_recompressed_holds_up_only_its_like() -> None:
    async def scenario() -> None:
        workers = SlowWorkers(stuck_at=2)  # the first decompresses the batch, the second compresses it
        checks = LongChecks(workers)
        batch = memoryview(build_batch([Record(0, NOW_MS, None, b"value")], compression=Codec.GZIP))
        slow = asyncio.ensure_future(checks.prepare(batch, TopicSettings(compression_type="zstd"), NOW_MS))
        await settled()
        assert workers.works == 2
        await asyncio.wait_for(checks.prepare(batch, TopicSettings(), NOW_MS), 60)
        assert not slow.done()
        slow.cancel()

    asyncio.run(scenario())
