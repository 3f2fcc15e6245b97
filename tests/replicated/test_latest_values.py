"""Loading replays the last value of each key, and comes to the same state as the steps that wrote all of them."""

import asyncio

import pytest

from tests.replicated.counting import KEY, CountingHarness, CountingMachine, with_harness
from tidelog.replicated import loading
from tidelog.replicated.machine import Producer
from tidelog.replicated.memory_shard import MemoryReply


async def reloaded(harness: CountingHarness) -> CountingMachine:
    """The machine of the next leader, which is this broker again. It has the state of the one before."""
    live = harness.machine()
    harness.follow(1, 2)
    harness.lead(1)
    await asyncio.sleep(1)
    loaded = harness.machine()
    assert loaded is not live
    assert (loaded.totals, loaded.open) == (live.totals, live.open)
    return loaded


def remove(harness: CountingHarness, key: str) -> None:
    harness.topic.perform_in(0, lambda machine, effects: machine.remove(key, effects))


def test_only_the_last_value_of_a_key_is_replayed_where_the_first_was() -> None:
    async def scenario(harness: CountingHarness) -> None:
        harness.lead(1)
        for key in ("b", "a", "b", "c", "a", "b"):
            harness.add(1, key)
        assert (await reloaded(harness)).replayed == [b"b", b"a", b"c"]

    with_harness(scenario)


def test_a_value_before_a_tombstone_is_replayed() -> None:
    """It may have made something that the tombstone does not undo, as an offset makes its group."""

    async def scenario(harness: CountingHarness) -> None:
        harness.lead(1)
        for key in ("a", "b", "a"):
            harness.add(1, key)
        remove(harness, "a")
        remove(harness, "b")
        harness.add(1, "b")
        harness.add(1, "b")
        assert (await reloaded(harness)).replayed == [b"a", b"b", b"a", b"b", b"b"]

    with_harness(scenario)


@pytest.mark.parametrize("is_committed", [True, False])
def test_values_before_and_after_those_of_a_transaction_keep_their_order(is_committed: bool) -> None:
    producer = Producer(7, 0)

    async def scenario(harness: CountingHarness) -> None:
        harness.lead(1)
        harness.add(1)
        harness.add(1)
        reply = MemoryReply()
        harness.topic.perform(KEY, reply, lambda machine, effects: machine.add(KEY, 5, reply, effects, producer))
        harness.add(1)
        harness.add(1)
        assert (await reloaded(harness)).replayed == [b"a", b"a", b"a"]
        ended = MemoryReply()
        harness.topic.append_end_marker(0, producer, is_committed=is_committed, coordinator_epoch=1, reply=ended)
        harness.add(1, "b")
        await reloaded(harness)

    with_harness(scenario)


def test_values_of_many_keys_do_not_wait_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "MAX_LATEST_VALUES", 3)

    async def scenario(harness: CountingHarness) -> None:
        harness.lead(1)
        for _ in range(2):
            for number in range(5):
                harness.add(1, f"key{number}")
        replayed = (await reloaded(harness)).replayed
        assert [key[-1:] for key in replayed] == [b"%d" % number for number in (0, 1, 2, 3, 4, 0, 1, 2, 3, 4)]

    with_harness(scenario)


def test_a_partition_that_leaves_while_it_loads_leaves_no_values_behind() -> None:
    async def scenario(harness: CountingHarness) -> None:
        harness.lead(1)
        for number in range(3_000):
            harness.add(1, f"key{number}")
        harness.follow(1, 2)
        harness.lead(1)
        for _ in range(100):
            await asyncio.sleep(0)
            progress = harness.topic.progress
            if progress is not None and progress.records:
                break
        assert harness.topic.is_loading
        harness.follow(1, 2)
        harness.lead(1)
        await asyncio.sleep(1)
        assert len(harness.machine().replayed) == 3_000

    with_harness(scenario)
