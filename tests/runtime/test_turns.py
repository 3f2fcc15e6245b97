"""Slices of the event loop, on a clock that only work moves."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from tidelog.runtime.clock import ManualClock
from tidelog.runtime.deadlines import MAX_AT_ONCE, RESOLUTION_S, Deadlines
from tidelog.runtime.purgatory import MAX_CHECKED_AT_ONCE, DelayedOperation, Purgatory, Watchers
from tidelog.runtime.turns import Turns


class Day:
    """What was done, in order; all work takes the time that it says."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.clock.advance(1000)
        self.turns = Turns(self.clock.monotonic)
        self.done: list[str] = []

    def work(self, name: str, milliseconds: int = 1) -> Callable[[], None]:
        def run() -> None:
            self.done.append(name)
            self.clock.advance(milliseconds)

        return run

    def arrive(self, name: str, milliseconds: int = 1) -> None:
        """As a connection does when bytes have come."""
        if self.turns.begin():
            self.work(name, milliseconds)()
            self.turns.end()
        else:
            self.turns.queue(self.work(name, milliseconds))


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario())


def test_work_begins_at_once_until_the_turn_is_used_up() -> None:
    async def scenario() -> None:
        day = Day()
        for number in range(12):
            day.arrive(str(number))
        assert 8 <= len(day.done) <= 9
        assert day.turns.waiting == 12 - len(day.done)
        await asyncio.sleep(0)
        assert day.done == [str(number) for number in range(12)]

    run(scenario)


def test_the_rest_of_the_loop_has_its_turn_while_clients_wait() -> None:
    async def scenario() -> None:
        day = Day()
        for number in range(30):
            day.turns.queue(day.work(str(number)))
        asyncio.get_running_loop().call_soon(day.done.append, "timer")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert 8 <= day.done.index("timer") <= 9

    run(scenario)


def test_what_has_just_arrived_goes_before_what_had_its_slice() -> None:
    async def scenario() -> None:
        day = Day()
        day.turns.queue(day.work("had one"), is_continued=True)
        day.turns.queue(day.work("new"))
        await asyncio.sleep(0)
        assert day.done == ["new", "had one"]

    run(scenario)


def test_new_work_without_end_does_not_stop_what_had_its_slice() -> None:
    async def scenario() -> None:
        day = Day()
        day.turns.queue(day.work("had one"), is_continued=True)
        for _ in range(3):
            for _ in range(20):
                day.turns.queue(day.work("new"))
            await asyncio.sleep(0)
        assert "had one" in day.done

    run(scenario)


def test_slices_are_shorter_where_many_wait() -> None:
    async def scenario() -> None:
        day = Day()
        over_after: list[bool] = []

        def work() -> None:
            day.clock.advance(1)
            over_after.append(day.turns.is_slice_over())

        for _ in range(400):
            day.turns.queue(work)
        await asyncio.sleep(0)
        assert over_after[0]
        for _ in range(100):
            await asyncio.sleep(0)
        day.turns.queue(work)
        await asyncio.sleep(0)
        assert not over_after[-1]

    run(scenario)


def test_a_slice_goes_on_while_nobody_waits_but_not_beyond_the_turn() -> None:
    async def scenario() -> None:
        day = Day()
        assert day.turns.begin()
        day.clock.advance(3)
        assert not day.turns.is_slice_over()
        day.clock.advance(3)
        day.turns.queue(day.work("somebody else"))
        assert day.turns.is_slice_over()
        await asyncio.sleep(0)
        day.clock.advance(20)
        assert day.turns.begin()
        day.clock.advance(8)
        assert day.turns.is_slice_over()

    run(scenario)


def test_a_long_request_is_divided_and_its_results_keep_their_order() -> None:
    async def scenario() -> None:
        day = Day()

        def look_up(number: int) -> int:
            day.work(f"item {number}")()
            return number

        asking = asyncio.ensure_future(day.turns.each(range(10), look_up))
        await asyncio.sleep(0)
        day.turns.queue(day.work("somebody else"))
        assert await asking == list(range(10))
        assert day.done.index("somebody else") < 6

    run(scenario)


def test_coroutines_that_wait_go_on_one_by_one() -> None:
    """Each goes on in a turn of the loop of its own: what it does then counts."""

    async def scenario() -> None:
        day = Day()

        async def client(name: str) -> None:
            await day.turns.wait()
            day.work(name, 5)()

        clients = [asyncio.ensure_future(client(str(number))) for number in range(5)]
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_later(0, day.done.append, "timer")
        await asyncio.gather(*clients)
        assert day.done.index("timer") < 4

    run(scenario)


def test_work_that_fails_does_not_take_the_turn_of_others() -> None:
    async def scenario() -> None:
        day = Day()
        reported: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["exception"]))
        day.turns.queue(lambda: 1 // 0)
        day.turns.queue(day.work("another"))
        await asyncio.sleep(0)
        assert day.done == ["another"]
        assert isinstance(reported[0], ZeroDivisionError)

    run(scenario)


class Waiting(DelayedOperation):
    def __init__(self, day: Day) -> None:
        super().__init__()
        self.day = day

    def is_satisfied(self, changed: Watchers) -> bool:
        return True

    def on_completed(self) -> None:
        self.day.work("woken")()


def test_thousands_that_wait_for_one_key_are_woken_in_slices() -> None:
    async def scenario() -> None:
        day, loop = Day(), asyncio.get_running_loop()
        purgatory, watchers = Purgatory(loop, Deadlines(loop), day.turns), Watchers()
        for _ in range(10 * MAX_CHECKED_AT_ONCE):
            purgatory.wait(Waiting(day), [watchers], 100)
        purgatory.changed(watchers)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert 0 < len(day.done) < 30
        purgatory.changed(watchers)  # once more, while it is gone through
        while len(day.done) < 10 * MAX_CHECKED_AT_ONCE:  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert purgatory.size == 0

    run(scenario)


def test_thousands_that_expire_together_do_so_in_slices() -> None:
    async def scenario() -> None:
        day, loop = Day(), asyncio.get_running_loop()
        deadlines = Deadlines(loop, turns=day.turns)
        keys = [deadlines.add(0, day.work("expired")) for _ in range(10 * MAX_AT_ONCE)]
        while not day.done:  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert len(day.done) < 2 * MAX_AT_ONCE, "whatever fell into the first bucket, and a slice"
        for key in keys[-100:]:
            deadlines.cancel(key)
        while len(deadlines):  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert len(day.done) == len(keys) - 100

    run(scenario)


def test_a_loop_that_is_late_expires_many_small_buckets_in_slices_too() -> None:
    async def scenario() -> None:
        day, loop = Day(), asyncio.get_running_loop()
        deadlines = Deadlines(loop, turns=day.turns)
        for number in range(10 * MAX_AT_ONCE):
            deadlines.add(-number * RESOLUTION_S / 50, day.work("expired"))
        while not day.done:  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert len(day.done) <= MAX_AT_ONCE
        while len(deadlines):  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert len(day.done) == 10 * MAX_AT_ONCE

    run(scenario)
