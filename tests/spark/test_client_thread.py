"""The client's thread as Spark's calls use it: blocking, from a process that may have been forked."""

import asyncio
import inspect
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.client.fake_cluster import TOPIC, FakeCluster
from tests.server.harness import batch_of
from tidelog.client.admin.admin import Admin
from tidelog.client.consumer.range_reader import RangeReader
from tidelog.client.network import retries
from tidelog.client.network.bootstrap import BadBootstrap
from tidelog.client.network.retries import GaveUp
from tidelog.config.client import NO_SECURITY, ClientSecurity
from tidelog.spark import client_thread
from tidelog.types import TopicPartition

FIRST = TopicPartition(TOPIC, 0)
WAIT_S = 120.0


@dataclass(frozen=True)
class Settings:
    client_id: str = "test"
    client_rack: str = ""
    request_timeout_s: float = 5.0
    security: ClientSecurity = NO_SECURITY


@pytest.fixture(autouse=True)
def thread_of_its_own() -> Iterator[None]:
    yield
    client_thread.stop()


async def tasks() -> int:
    """Others than the one that asks."""
    return len(asyncio.all_tasks()) - 1


def test_brokers_that_do_not_answer_are_named_in_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Python processes of Spark print warnings to the user's screen."""
    monkeypatch.setattr(retries, "REPORT_AFTER_S", 0.0)

    async def ask() -> None:
        await Admin(client_thread.cluster_for("127.0.0.1:1", Settings()), timeout_s=0.1).list_topics()

    with pytest.raises(GaveUp):
        client_thread.run(ask())
    (record,) = caplog.records
    assert record.getMessage().startswith("waiting for the brokers at 127.0.0.1:1: ")


class Numbers:
    """Counts on for ever, and notes how far it came and how it ended."""

    def __init__(self, fail_at: int = -1) -> None:
        self.given = 0
        self.is_closed = threading.Event()
        self._fail_at = fail_at

    async def generate(self) -> AsyncIterator[int]:
        try:
            while self.given != self._fail_at:
                self.given += 1
                yield self.given
                await asyncio.sleep(0)
            raise LookupError("no more numbers")
        finally:
            self.is_closed.set()


async def up_to(end: int) -> AsyncIterator[int]:
    for number in range(end):
        yield number


# -- run


def test_result_and_error_come_back_as_they_are() -> None:
    async def add(one: int, other: int) -> int:
        await asyncio.sleep(0)
        return one + other

    error = LookupError("as it is")

    async def fail() -> None:
        raise error

    assert client_thread.run(add(1, 2)) == 3
    with pytest.raises(LookupError) as raised:
        client_thread.run(fail())
    assert raised.value is error


def test_all_calls_share_one_thread_that_does_not_keep_the_process() -> None:
    async def which() -> threading.Thread:
        return threading.current_thread()

    found: list[threading.Thread] = []
    callers = [threading.Thread(target=lambda: found.append(client_thread.run(which()))) for _ in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len(found) == 8
    assert len(set(found)) == 1
    assert found[0].daemon


def test_what_is_started_runs_while_its_caller_does_something_else() -> None:
    began = threading.Event()

    async def work(fails: bool) -> int:
        began.set()
        if fails:
            raise LookupError("as it is")
        return 3

    started = client_thread.start(work(fails=False))
    assert began.wait(WAIT_S)
    assert started.result() == 3
    with pytest.raises(LookupError, match="as it is"):
        client_thread.start(work(fails=True)).result()


def test_what_is_started_can_be_cancelled() -> None:
    began, ended = threading.Event(), threading.Event()

    async def wait() -> None:
        try:
            began.set()
            await asyncio.sleep(3600)
        finally:
            ended.set()

    started = client_thread.start(wait())
    assert began.wait(WAIT_S)
    started.cancel()
    assert ended.wait(WAIT_S)
    assert client_thread.run(tasks()) == 0


def test_interrupted_call_cancels_what_it_waits_for() -> None:
    ended = threading.Event()

    async def wait() -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(3600)
        finally:
            ended.set()

    with pytest.raises(KeyboardInterrupt):
        client_thread.run(wait())
    assert ended.wait(WAIT_S)


@pytest.mark.parametrize("handed_over", [True, False])
def test_interrupt_while_the_call_is_handed_over_cancels_it(handed_over: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    coroutine = asyncio.sleep(3600)
    loop = client_thread.run(_running_loop())
    hand_over = loop.call_soon_threadsafe

    def interrupted(callback: Callable[[], object]) -> None:
        monkeypatch.undo()
        if handed_over:
            hand_over(callback)
        raise KeyboardInterrupt

    monkeypatch.setattr(loop, "call_soon_threadsafe", interrupted)
    with pytest.raises(KeyboardInterrupt):
        client_thread.run(coroutine)
    assert _closed(coroutine)


async def _running_loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


def _closed(coroutine: Coroutine[Any, Any, None]) -> bool:
    deadline = time.monotonic() + WAIT_S
    while inspect.getcoroutinestate(coroutine) != inspect.CORO_CLOSED and time.monotonic() < deadline:
        client_thread.run(asyncio.sleep(0))
    return inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED


def test_the_thread_refuses_to_wait_for_itself() -> None:
    async def outer() -> None:
        client_thread.run(asyncio.sleep(0))

    with pytest.raises(RuntimeError, match="cannot block the client thread"):
        client_thread.run(outer())


# -- iterate


def test_everything_is_iterated_over_in_order() -> None:
    for ahead in (1, 3):
        assert list(client_thread.iterate(lambda: up_to(50), ahead)) == list(range(50))
    assert client_thread.run(tasks()) == 0


def test_so_many_are_asked_for_ahead_and_no_more() -> None:
    async def settled() -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    for ahead in (1, 3):
        numbers = Numbers()
        iterator = client_thread.iterate(numbers.generate, ahead)
        assert next(iterator) == 1
        client_thread.run(settled())
        assert numbers.given == 1 + ahead
        del iterator


def test_error_comes_after_what_came_before_it() -> None:
    numbers = Numbers(fail_at=2)
    iterator = client_thread.iterate(numbers.generate)
    assert [next(iterator), next(iterator)] == [1, 2]
    with pytest.raises(LookupError, match="no more numbers"):
        next(iterator)
    assert list(iterator) == []


def test_error_of_the_making_is_raised() -> None:
    def make() -> AsyncIterator[int]:
        raise LookupError("nothing to iterate over")

    with pytest.raises(LookupError, match="nothing to iterate over"):
        list(client_thread.iterate(make))
    assert client_thread.run(tasks()) == 0


def close(iterator: Iterator[object]) -> None:
    iterator.close()  # type: ignore[attr-defined]


def drop(iterator: Iterator[int]) -> None:
    """The last reference goes when this returns."""


@pytest.mark.parametrize("leave", [close, drop])
def test_leaving_early_ends_the_iterator(leave: Callable[[Iterator[int]], None]) -> None:
    numbers = Numbers()

    def use() -> None:
        iterator = client_thread.iterate(numbers.generate)
        assert [next(iterator), next(iterator)] == [1, 2]
        leave(iterator)

    use()
    assert numbers.is_closed.is_set()
    assert client_thread.run(tasks()) == 0


def test_iterator_of_a_thread_that_was_stopped_can_be_left() -> None:
    numbers = Numbers()
    iterator = client_thread.iterate(numbers.generate)
    assert next(iterator) == 1
    client_thread.stop()
    assert numbers.is_closed.is_set()
    close(iterator)
    assert list(client_thread.iterate(lambda: up_to(3))) == [0, 1, 2]


# -- clusters


def test_cluster_is_kept_for_the_same_settings() -> None:
    async def clusters() -> list[int]:
        found = [
            client_thread.cluster_for("127.0.0.1:9092", Settings()),
            client_thread.cluster_for("127.0.0.1:9092", Settings()),
            client_thread.cluster_for("127.0.0.1:9092", Settings(client_id="other")),
            client_thread.cluster_for("127.0.0.1:9093", Settings()),
        ]
        return [found.index(cluster) for cluster in found]

    async def nowhere() -> None:
        client_thread.cluster_for("nowhere", Settings())

    assert client_thread.run(clusters()) == [0, 0, 2, 3]
    with pytest.raises(BadBootstrap):
        client_thread.run(nowhere())
    with pytest.raises(RuntimeError, match="given to run"):
        client_thread.cluster_for("127.0.0.1:9092", Settings())


# -- readers, on real sockets


def reader_of(fakes: FakeCluster, end: int) -> Callable[[], RangeReader]:
    bootstrap = str(fakes.bootstrap[0])
    return lambda: RangeReader(client_thread.cluster_for(bootstrap, Settings()), FIRST, 0, end)


def test_reader_left_early_is_closed_and_so_is_the_connection_on_which_a_broker_holds_its_fetch(
    fakes: FakeCluster,
) -> None:
    fakes.partitions[0].append(batch_of(b"0"))
    fakes.partitions[0].end = 2

    iterator = client_thread.iterate(reader_of(fakes, 2))
    assert next(iterator).next_offset == 1
    close(iterator)
    assert client_thread.run(tasks()) == 0
    _, fetching = fakes.brokers[1].connections
    deadline = time.monotonic() + WAIT_S
    while not fetching.is_closed and time.monotonic() < deadline:
        client_thread.run(asyncio.sleep(0.001))
    assert fetching.is_closed


def test_readers_one_after_another_use_the_same_connection(fakes: FakeCluster) -> None:
    fakes.partitions[0].append(batch_of(b"0"))
    for _ in range(3):
        (fetched,) = client_thread.iterate(reader_of(fakes, 1))
        assert fetched.next_offset == 1
    assert len(fakes.brokers[1].connections) == 2  # one for all else


# -- processes

NUMBERS = """
import asyncio, os, sys
from tidelog.spark import client_thread

async def numbers():
    for number in range(100):
        yield number
        await asyncio.sleep(0)

async def add(one, other):
    await asyncio.sleep(0)
    return one + other

async def forever():
    try:
        while True:
            await asyncio.sleep(0.001)
            yield 1
    finally:
        print("closed")
"""

FORK = """
def work():
    return client_thread.run(add(1, 2)) == 3 and list(client_thread.iterate(numbers)) == list(range(100))

assert work()
inherited = client_thread.iterate(numbers)
assert next(inherited) == 0
child = os.fork()
if child == 0:
    fine = work()
    inherited.close()
    os._exit(0 if fine else 1)
assert os.waitpid(child, 0)[1] == 0
assert work()
assert list(inherited) == list(range(1, 100))
print("fine")
"""

EXIT = """
left = client_thread.iterate(forever)
assert next(left) == 1
print("fine", end=" ")
"""


@pytest.mark.parametrize(("script", "output"), [(FORK, "fine"), (EXIT, "fine closed")], ids=["fork", "exit"])
def test_processes_may_fork_and_end_with_the_thread_at_work(script: str, output: str) -> None:
    command = [sys.executable, "-W", "always::ResourceWarning", "-c", NUMBERS + script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{output}\n", "")
