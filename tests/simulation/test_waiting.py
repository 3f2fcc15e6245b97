"""Requests that wait are answered once, as soon as they can be, and not refused (R14, R15)."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pytest

from tests.server.harness import batch_of, fetch_request, produce_request
from tests.simulation.broken_elections import (
    operations_asked_only_at_their_deadline,
    operations_completed_again_at_their_deadline,
    uncommitted_offsets_out_of_range,
)
from tests.simulation.scenario import (
    FETCH_VERSION,
    PRODUCE_VERSION,
    TOPIC,
    all_well_again,
    ask,
    create_topic,
    is_leading,
    produce,
    produce_to,
    replica,
    simulate,
    wait_for,
)
from tidelog.errors import NO_ERROR, NotLeaderOrFollower, RequestTimedOut
from tidelog.protocol.messages.fetch import FetchResponse
from tidelog.protocol.messages.produce import ProduceResponse
from tidelog.runtime.purgatory import DelayedOperation
from tidelog.server.delayed_produce import DelayedProduce
from tidelog.simulation.cluster import SimulatedCluster

# ---- KAFKA-6653, KAFKA-7697


@contextmanager
def counted_completions() -> Iterator[Counter[DelayedOperation]]:
    completions: Counter[DelayedOperation] = Counter()
    on_completed = DelayedProduce.on_completed

    def count(self: DelayedProduce) -> None:
        completions[self] += 1
        if completions[self] == 1:
            on_completed(self)

    with patch.object(DelayedProduce, "on_completed", count):
        yield completions


async def write_with_short_deadlines(cluster: SimulatedCluster) -> None:
    """Some writes are confirmed before their deadline, some after, some at the same moment."""
    await create_topic(cluster, [1, 2, 3])
    with counted_completions() as completions:
        responses = await asyncio.gather(*(write(cluster, timeout_ms) for timeout_ms in range(1, 5) for _ in range(5)))
        await asyncio.sleep(1)
    assert len(completions) >= 10
    assert set(completions.values()) == {1}, "an operation was completed twice"
    assert {NO_ERROR, RequestTimedOut.code} >= {code for code, _ in responses}


async def write(cluster: SimulatedCluster, timeout_ms: int) -> tuple[int, float]:
    """The answer, and how long it took."""
    loop = asyncio.get_running_loop()
    request = produce_request(TOPIC, batch_of(b"a"))
    request.timeout_ms = timeout_ms
    started = loop.time()
    response = await ask(cluster, 1, request, ProduceResponse, PRODUCE_VERSION)
    return response.responses[0].partition_responses[0].error_code, loop.time() - started


def test_a_write_that_waits_is_answered_once() -> None:
    """KAFKA-6653, R14"""
    simulate(write_with_short_deadlines)


def test_a_write_is_answered_twice_where_its_deadline_is_not_called_off() -> None:
    with (
        operations_completed_again_at_their_deadline(),
        pytest.raises(AssertionError, match="an operation was completed twice"),
    ):
        simulate(write_with_short_deadlines)


async def write_and_lose_the_leadership(cluster: SimulatedCluster) -> None:
    """One write is confirmed; another waits when its leader becomes a follower."""
    await create_topic(cluster, [1, 2, 3])
    code, took_s = await write(cluster, 30_000)
    assert (code, took_s < 1) == (NO_ERROR, True), "a write waited for its deadline"
    cluster.cut(1, [3])
    writing = asyncio.ensure_future(write(cluster, 30_000))
    await wait_for(lambda: replica(cluster, 1).log.log_end_offset == 2)
    await asyncio.sleep(1)
    stopping = asyncio.ensure_future(cluster.stop(1))
    await wait_for(lambda: is_leading(cluster, 2))
    code, took_s = await writing
    assert (code, took_s < 5) == (NotLeaderOrFollower.code, True), "a write waited though its leader had gone"
    await stopping
    await all_well_again(cluster)


def test_a_write_that_waits_is_answered_as_soon_as_it_is_confirmed_or_cannot_be() -> None:
    """KAFKA-7697, R9, R14"""
    simulate(write_and_lose_the_leadership, controller=2)


def test_a_write_waits_for_its_deadline_where_nobody_looks_after_a_change() -> None:
    with (
        operations_asked_only_at_their_deadline(),
        pytest.raises(AssertionError, match="a write waited for its deadline"),
    ):
        simulate(write_and_lose_the_leadership, controller=2)


# ---- between the high watermark and the end of the log


async def fetch_what_is_not_committed_yet(cluster: SimulatedCluster) -> None:
    await create_topic(cluster, [1, 2])
    await produce(cluster, b"a")
    cluster.cut(1, [2])
    for value in (b"b", b"c", b"d"):
        await produce_to(cluster, 1, value, acks=1)
    log = replica(cluster, 1).log
    assert (log.high_watermark, log.log_end_offset) == (1, 4)
    request = fetch_request(TOPIC, 3, max_wait_ms=5000)
    fetching = asyncio.ensure_future(ask(cluster, 1, request, FetchResponse, FETCH_VERSION))
    await asyncio.sleep(1)
    assert not fetching.done(), "an offset that will be committed was refused"
    cluster.mend()
    (data,) = (await fetching).responses[0].partitions
    assert data.error_code == NO_ERROR
    assert data.high_watermark == 4
    assert data.records


def test_a_fetch_beyond_the_high_watermark_waits_until_it_is_committed() -> None:
    """R15"""
    simulate(fetch_what_is_not_committed_yet)


def test_a_fetch_beyond_the_high_watermark_is_refused_where_that_passes_for_out_of_range() -> None:
    with (
        uncommitted_offsets_out_of_range(),
        pytest.raises(AssertionError, match="an offset that will be committed was refused"),
    ):
        simulate(fetch_what_is_not_committed_yet)
