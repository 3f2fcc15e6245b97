"""Deadlines and the purgatory, on virtual time."""

import asyncio
from functools import partial

import pytest

from tidelog.runtime.deadlines import RESOLUTION_S, Deadlines
from tidelog.runtime.purgatory import DelayedOperation, Purgatory, Watchers
from tidelog.runtime.virtual_time import DeadlockDetected, VirtualTimeLoop, run_virtually


class Threshold(DelayedOperation):
    """Satisfied once the level is reached."""

    def __init__(self, wanted: int, levels: dict[Watchers, int]) -> None:
        super().__init__()
        self.wanted = wanted
        self.levels = levels
        self.completed_at: list[float] = []
        self.asked = 0

    def is_satisfied(self, changed: Watchers) -> bool:
        self.asked += 1
        return self.levels[changed] >= self.wanted

    def on_completed(self) -> None:
        self.completed_at.append(asyncio.get_running_loop().time())


def purgatory() -> Purgatory:
    loop = asyncio.get_running_loop()
    return Purgatory(loop, Deadlines(loop))


def test_a_hang_is_an_error() -> None:
    async def wait_for_nothing() -> None:
        await asyncio.Event().wait()

    with pytest.raises(DeadlockDetected):
        run_virtually(wait_for_nothing())


def test_a_deadline_passes_on_time_and_never_early() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        deadlines = Deadlines(loop)
        passed: dict[float, float] = {}

        def note(delay: float) -> None:
            passed.setdefault(delay, loop.time())

        for delay in [0.0, 0.001, 0.5, 0.5, 30.0, 0.0049]:
            deadlines.add(delay, partial(note, delay))
        await asyncio.sleep(31)
        assert len(passed) == 5
        for delay, at in passed.items():
            assert delay <= at <= delay + RESOLUTION_S + 1e-6
        assert len(deadlines) == 0

    run_virtually(scenario())


def test_a_cancelled_deadline_does_not_pass() -> None:
    async def scenario() -> None:
        deadlines = Deadlines(asyncio.get_running_loop())
        passed: list[str] = []
        key = deadlines.add(1, lambda: passed.append("cancelled"))
        deadlines.add(1, lambda: passed.append("kept"))
        deadlines.cancel(key)
        await asyncio.sleep(2)
        deadlines.cancel(key)
        assert passed == ["kept"]

    run_virtually(scenario())


def test_thousands_of_deadlines_share_a_few_timers() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        deadlines = Deadlines(loop)
        for _ in range(10_000):
            deadlines.add(30, lambda: None)
        assert len(deadlines) == 10_000
        assert isinstance(loop, VirtualTimeLoop)
        assert loop.pending_timers == 1
        await asyncio.sleep(31)
        assert len(deadlines) == 0

    run_virtually(scenario())


def test_a_bucket_of_cancelled_deadlines_wakes_nobody() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        deadlines = Deadlines(loop)
        passed: list[float] = []
        expirations = 0
        expire = deadlines._expire

        def count() -> None:
            nonlocal expirations
            expirations += 1
            expire()

        deadlines._expire = count  # type: ignore[method-assign]
        deadlines.add(2.0, lambda: passed.append(loop.time()))
        for _ in range(100):
            deadlines.cancel(deadlines.add(0.5, lambda: passed.append(-1.0)))
            await asyncio.sleep(0.01)
        await asyncio.sleep(2)
        assert expirations <= 4
        assert 2.0 <= passed[0] <= 2.0 + RESOLUTION_S + 1e-6

    run_virtually(scenario())


def test_a_satisfied_operation_completes_once_and_is_forgotten() -> None:
    async def scenario() -> None:
        waiting, left, right = purgatory(), Watchers(), Watchers()
        levels = {left: 0, right: 0}
        operation = Threshold(5, levels)
        waiting.wait(operation, [left, right], 30)
        assert waiting.size == 1
        levels[left] = 4
        waiting.changed(left)
        await asyncio.sleep(0.01)
        assert operation.completed_at == []
        levels[right] = 5
        waiting.changed(right)
        waiting.changed(left)
        await asyncio.sleep(60)
        assert len(operation.completed_at) == 1
        assert waiting.size == 0
        assert not left
        assert not right

    run_virtually(scenario())


def test_an_operation_out_of_time_completes_once() -> None:
    async def scenario() -> None:
        waiting, watchers = purgatory(), Watchers()
        operation = Threshold(5, {watchers: 0})
        waiting.wait(operation, [watchers], 2)
        await asyncio.sleep(10)
        operation.complete()
        assert operation.completed_at == [pytest.approx(2, abs=2 * RESOLUTION_S)]
        assert waiting.size == 0

    run_virtually(scenario())


def test_an_abandoned_operation_notifies_nobody() -> None:
    async def scenario() -> None:
        waiting, watchers = purgatory(), Watchers()
        operation = Threshold(0, {watchers: 1})
        waiting.wait(operation, [watchers], 2)
        operation.abandon()
        waiting.changed(watchers)
        await asyncio.sleep(10)
        assert operation.completed_at == []
        assert waiting.size == 0

    run_virtually(scenario())


def test_a_burst_of_changes_is_looked_at_once() -> None:
    async def scenario() -> None:
        waiting, watchers = purgatory(), Watchers()
        levels = {watchers: 0}
        operation = Threshold(100, levels)
        waiting.wait(operation, [watchers], 30)
        for _ in range(100):
            levels[watchers] += 1
            waiting.changed(watchers)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert operation.asked == 1
        assert len(operation.completed_at) == 1

    run_virtually(scenario())


class Note:
    """An observer that passes each change on to a key of its own."""

    def __init__(self, waiting: Purgatory, own: Watchers, levels: dict[Watchers, int]) -> None:
        self.waiting, self.own, self.levels = waiting, own, levels
        self.notified = 0

    @property
    def is_waiting(self) -> bool:
        return bool(self.own.operations)

    def on_changed(self) -> None:
        self.notified += 1
        self.levels[self.own] += 1
        self.waiting.changed(self.own)


def test_an_observer_learns_of_every_change_and_stays() -> None:
    async def scenario() -> None:
        waiting, watchers, own = purgatory(), Watchers(), Watchers()
        note = Note(waiting, own, {own: 0})
        assert not watchers
        watchers.observers[note] = None
        assert watchers
        for expected in (1, 2):
            waiting.changed(watchers)
            waiting.changed(watchers)
            assert note.notified == expected - 1
            await asyncio.sleep(0.01)
            assert note.notified == expected
        del watchers.observers[note]
        waiting.changed(watchers)
        await asyncio.sleep(0.01)
        assert note.notified == 2
        assert waiting.size == 0

    run_virtually(scenario())


def test_observers_are_called_before_operations_are_asked_and_their_own_keys_in_the_same_turn() -> None:
    async def scenario() -> None:
        waiting, watchers, own = purgatory(), Watchers(), Watchers()
        levels = {own: 0, watchers: 0}
        note = Note(waiting, own, levels)
        watchers.observers[note] = None
        behind_the_note = Threshold(1, levels)
        waiting.wait(behind_the_note, [own], 30)
        waiting.changed(watchers)
        await asyncio.sleep(0)
        assert len(behind_the_note.completed_at) == 1
        again = Threshold(2, levels)
        waiting.wait(again, [own], 30)
        waiting.changed(watchers)
        await asyncio.sleep(0)
        assert len(again.completed_at) == 1

    run_virtually(scenario())
