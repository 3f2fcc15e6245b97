"""Steps of one turn of the loop that are written in one batch: as if each had been written by itself."""

import asyncio
import gc

import pytest

from tests.replicated.counting import KEY, CountingHarness, CountingMachine, total_in, with_harness
from tidelog.config.topic import TopicSettings
from tidelog.errors import CoordinatorNotAvailable, InvalidGroupId, KafkaError, MessageTooLarge, NotCoordinator
from tidelog.protocol.record_batch import split_batches
from tidelog.replicated.machine import Effects, Producer
from tidelog.replicated.memory_shard import MemoryReply


async def a_moment() -> None:
    """Let the end of this turn of the loop come, and the end of what that began."""
    for _ in range(3):
        await asyncio.sleep(0)


def batches_in(harness: CountingHarness) -> list[int]:
    """How many records each of them has."""
    log = harness.partition().log
    if log.log_end_offset == 0:
        return []
    found = log.read(0, 10_000_000, log.log_end_offset).slice
    assert found is not None
    return [header.record_count for header, _ in split_batches(found.read())]


def test_steps_of_one_turn_are_one_batch_and_answered_in_their_order_when_that_is_committed() -> None:
    async def scenario(harness: CountingHarness) -> None:
        harness.lead()
        order: list[int] = []
        replies = [harness.put(number) for number in range(3)]
        for number, reply in enumerate(replies):
            reply.listen(lambda _, number=number: order.append(number), lambda error: pytest.fail(str(error)))  # type: ignore[misc]
        assert batches_in(harness) == []
        await a_moment()
        assert batches_in(harness) == [3]
        assert order == []
        assert harness.machine().totals == {b"a": 2}
        harness.replicate()
        await a_moment()
        assert order == [0, 1, 2]
        late = harness.put(7)
        await a_moment()
        assert batches_in(harness) == [3, 1]
        assert not late.is_given

    with_harness(scenario)


def test_what_was_batched_is_loaded_again_as_it_was() -> None:
    async def scenario(harness: CountingHarness) -> None:
        harness.lead(1)
        for number in range(5):
            harness.put(number, key=f"key{number % 3}")
        await a_moment()
        live = harness.machine().totals
        harness.follow(1, 2)
        harness.lead(1)
        await asyncio.sleep(1)
        assert harness.machine().totals == live == {b"key0": 3, b"key1": 4, b"key2": 2}

    with_harness(scenario)


def test_any_other_step_sees_what_was_batched_before_it() -> None:
    async def scenario(harness: CountingHarness) -> None:
        harness.lead(1)
        replies = [harness.put(5), harness.add(1), harness.put(10), harness.get()]
        assert [total_in(reply.outcome) for reply in replies] == [5, 6, 10, 10]
        assert batches_in(harness) == [1, 1, 1]

    with_harness(scenario)


def test_a_step_that_may_not_be_batched_after_all_is_written_behind_those_before_it() -> None:
    async def scenario(harness: CountingHarness) -> None:
        harness.lead(1)
        reply = MemoryReply()
        first = harness.put(5)
        harness.topic.perform_batched(KEY, reply, lambda machine, effects: machine.add("other", 1, reply, effects))
        assert total_in(first.outcome) == 5
        assert total_in(reply.outcome) == 1
        assert batches_in(harness) == [1, 1]

    with_harness(scenario)


def test_the_end_of_a_transaction_stands_behind_what_was_batched_before_it() -> None:
    async def scenario(harness: CountingHarness) -> None:
        harness.lead(1)
        producer, reply = Producer(5, 0), MemoryReply()
        harness.topic.perform(KEY, reply, lambda machine, effects: machine.add(KEY, 1, reply, effects, producer))
        harness.put(7)
        harness.topic.append_end_marker(0, producer, is_committed=True, coordinator_epoch=1, reply=MemoryReply())
        live = dict(harness.machine().totals)
        harness.follow(1, 2)
        harness.lead(1)
        await asyncio.sleep(1)
        assert harness.machine().totals == live == {b"a": 1}

    with_harness(scenario)


def test_a_refused_batch_fails_those_who_are_in_it_and_nobody_else() -> None:
    async def scenario(harness: CountingHarness) -> None:
        harness.lead(1, 2, in_sync=(1,))
        rejected = [harness.put(1), harness.put(2)]
        await a_moment()
        assert [type(reply.outcome) for reply in rejected] == [CoordinatorNotAvailable] * 2
        assert harness.machine().totals == {}
        assert batches_in(harness) == []
        harness.lead(1, 2)
        later = harness.put(3)
        await a_moment()
        harness.replicate()
        await a_moment()
        assert total_in(later.outcome) == 3

    with_harness(scenario, TopicSettings(min_insync_replicas=2))


def test_a_step_that_fails_leaves_those_it_would_have_joined_alone() -> None:
    async def scenario(harness: CountingHarness) -> None:
        harness.lead(1)
        rejected = MemoryReply()

        def step(machine: CountingMachine, effects: Effects) -> None:
            machine.put(KEY, 99, rejected, effects)
            raise InvalidGroupId

        replies = [harness.put(1)]
        harness.topic.perform_batched(KEY, rejected, step)
        assert isinstance(rejected.outcome, InvalidGroupId)
        replies.append(harness.put(2))
        await a_moment()
        assert [total_in(reply.outcome) for reply in replies] == [1, 2]
        assert batches_in(harness) == [2]

    with_harness(scenario)


def test_a_step_without_records_is_answered_at_once() -> None:
    async def scenario(harness: CountingHarness) -> None:
        harness.lead()
        reply = MemoryReply()
        harness.topic.perform_batched(KEY, reply, lambda machine, effects: effects.fail(reply, InvalidGroupId()))
        assert isinstance(reply.outcome, InvalidGroupId)

    with_harness(scenario)


@pytest.mark.parametrize("key_bytes", [1, 30, 200])
def test_a_batch_stays_smaller_than_the_topic_allows(key_bytes: int) -> None:
    async def scenario(harness: CountingHarness) -> None:
        harness.lead(1)
        replies = [harness.put(number, key="k" * key_bytes) for number in range(100)]
        await a_moment()
        assert [total_in(reply.outcome) for reply in replies] == list(range(100))
        assert sum(batches_in(harness)) == 100
        assert len(batches_in(harness)) > 1

    with_harness(scenario, TopicSettings(max_message_bytes=1_000))


def test_a_step_that_is_too_large_by_itself_is_refused_alone() -> None:
    async def scenario(harness: CountingHarness) -> None:
        harness.lead(1)
        replies = [harness.put(1), harness.put(2, key="k" * 2_000), harness.put(3)]
        await a_moment()
        assert total_in(replies[0].outcome) == 1
        assert isinstance(replies[1].outcome, MessageTooLarge)
        assert total_in(replies[2].outcome) == 3

    with_harness(scenario, TopicSettings(max_message_bytes=1_000))


def test_leadership_lost_before_the_end_of_the_turn_is_reported_and_nothing_is_written() -> None:
    async def scenario(harness: CountingHarness) -> None:
        harness.lead()
        reply = harness.put(3)
        harness.follow()
        assert isinstance(reply.outcome, NotCoordinator)
        await asyncio.sleep(10)
        assert len(reply.outcomes) == 1
        assert batches_in(harness) == []

    with_harness(scenario)


def test_a_broker_that_has_fenced_itself_meanwhile_writes_nothing() -> None:
    async def scenario(harness: CountingHarness) -> None:
        harness.lead(1)
        reply = harness.put(3)
        harness.end_lease()
        await a_moment()
        assert isinstance(reply.outcome, NotCoordinator)
        assert batches_in(harness) == []

    with_harness(scenario)


def test_a_record_that_cannot_be_replayed_costs_the_others_of_its_batch_no_change(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(harness: CountingHarness) -> None:
        harness.lead(1)
        broken = MemoryReply()

        def step(machine: CountingMachine, effects: Effects) -> None:
            machine.put("bad", 1, broken, effects)
            effects.write(b"bad", b"no number")

        harness.topic.perform_batched(KEY, broken, step)
        harness.put(3)
        await a_moment()
        assert isinstance(broken.outcome, KafkaError)
        assert harness.machine().totals == {b"bad": 1, b"a": 3}

    with_harness(scenario)


def test_a_timer_of_a_batched_step_runs_from_that_step_on() -> None:
    async def scenario(harness: CountingHarness) -> None:
        harness.lead(1)
        for delay_ms in (1_000, 2_000):
            reply = MemoryReply()

            def step(machine: CountingMachine, effects: Effects) -> None:
                machine.put(KEY, 1, reply, effects)  # noqa: B023
                effects.set_timer("session", delay_ms)  # noqa: B023

            harness.topic.perform_batched(KEY, reply, step)
        await asyncio.sleep(1.5)
        assert harness.machine().timers == []
        await asyncio.sleep(1)
        assert harness.machine().timers == ["session"]

    with_harness(scenario)


def test_batching_leaves_no_cycles_behind() -> None:
    async def scenario(harness: CountingHarness) -> None:
        harness.lead(1)
        await a_moment()
        gc.collect()
        gc.disable()
        try:
            for _ in range(100):
                for number in range(10):
                    harness.put(number)
                await a_moment()
            assert gc.collect() < 100
        finally:
            gc.enable()

    with_harness(scenario)
