"""Steps of machines kept in a topic: written, replayed, and answered when they are committed."""

import asyncio
import errno
import gc

import pytest

from tests.replicated.counting import (
    COMMIT_TIMEOUT_MS,
    KEY,
    CountingHarness,
    CountingMachine,
    response_with,
    total_in,
    with_harness,
)
from tests.replication.leaders import fetch_as_follower
from tidelog.config.topic import TopicSettings
from tidelog.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidGroupId,
    KafkaError,
    MessageTooLarge,
    NotCoordinator,
    UnknownServerError,
)
from tidelog.protocol.record_batch import split_batches
from tidelog.replicated.machine import Effects, Producer
from tidelog.replicated.memory_shard import MemoryReply
from tidelog.runtime.memory_disk import MemoryDisk
from tidelog.storage.descriptor_reclaiming_disk import DescriptorReclaimingDisk


async def a_moment() -> None:
    """Let the end of this turn of the loop come."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


# ---- answers follow commits


def test_an_answer_leaves_when_the_record_is_committed() -> None:
    async def scenario(harness: CountingHarness) -> None:
        harness.lead()
        reply = harness.add(3)
        assert harness.machine().totals == {b"a": 3}
        await a_moment()
        assert not reply.is_given
        harness.replicate()
        await a_moment()
        assert total_in(reply.outcome) == 3

    with_harness(scenario)


def test_a_leader_without_followers_answers_at_once() -> None:
    async def scenario(harness: CountingHarness) -> None:
        harness.lead(1)
        assert total_in(harness.add(3).outcome) == 3

    with_harness(scenario)


def test_the_next_step_sees_what_is_not_committed_yet_and_answers_keep_their_order() -> None:
    async def scenario(harness: CountingHarness) -> None:
        harness.lead()
        order: list[int] = []
        replies = [harness.add(1) for _ in range(3)]
        for number, reply in enumerate(replies):
            reply.listen(lambda _, number=number: order.append(number), lambda error: pytest.fail(str(error)))  # type: ignore[misc]
        fetch_as_follower(harness.partition(), 2, 2, 0, 0)
        await a_moment()
        assert order == [0, 1]
        harness.replicate()
        await a_moment()
        assert order == [0, 1, 2]
        assert harness.machine().totals == {b"a": 3}

    with_harness(scenario)


def test_a_read_of_state_waits_until_what_it_saw_is_committed() -> None:
    async def scenario(harness: CountingHarness) -> None:
        harness.lead()
        harness.add(3)
        reading = harness.get()
        await a_moment()
        assert not reading.is_given
        harness.replicate()
        await a_moment()
        assert total_in(reading.outcome) == 3
        assert total_in(harness.get().outcome) == 3

    with_harness(scenario)


def test_an_answer_without_state_does_not_wait() -> None:
    async def scenario(harness: CountingHarness) -> None:
        harness.lead()
        harness.add(3)
        reply = MemoryReply()
        harness.topic.perform(KEY, reply, lambda machine, effects: effects.fail(reply, InvalidGroupId()))
        assert isinstance(reply.outcome, InvalidGroupId)

    with_harness(scenario)


def test_what_follows_a_commit_begins_after_the_answer() -> None:
    async def scenario(harness: CountingHarness) -> None:
        harness.lead()
        reply = MemoryReply()
        begun: list[bool] = []

        def step(machine: CountingMachine, effects: Effects) -> None:
            machine.add(KEY, 1, reply, effects)
            effects.after_commit.append(lambda _: begun.append(reply.is_given))

        harness.topic.perform(KEY, reply, step)
        await a_moment()
        assert begun == []
        harness.replicate()
        await a_moment()
        assert begun == [True]

    with_harness(scenario)


def test_what_follows_a_commit_may_write_again() -> None:
    async def scenario(harness: CountingHarness) -> None:
        harness.lead(1)
        replies = [MemoryReply(), MemoryReply()]

        def second(_: Effects) -> None:
            assert harness.topic.perform_in(0, lambda machine, effects: machine.add(KEY, 1, replies[1], effects))

        def first(machine: CountingMachine, effects: Effects) -> None:
            machine.add(KEY, 1, replies[0], effects)
            effects.after_commit.append(second)

        harness.topic.perform(KEY, replies[0], first)
        assert [total_in(reply.outcome) for reply in replies] == [1, 2]

    with_harness(scenario)


def test_what_follows_a_commit_sets_timers_from_then_on() -> None:
    async def scenario(harness: CountingHarness) -> None:
        harness.lead()

        def step(machine: CountingMachine, effects: Effects) -> None:
            machine.add(KEY, 1, MemoryReply(), effects)
            effects.set_timer("session", 1000)
            effects.after_commit.append(lambda later: later.set_timer("session", 1000))

        harness.topic.perform_in(0, step)
        await asyncio.sleep(0.9)
        harness.replicate()
        await asyncio.sleep(0.9)
        assert harness.machine().timers == []
        await asyncio.sleep(0.2)
        assert harness.machine().timers == ["session"]

    with_harness(scenario)


def test_nothing_follows_a_commit_whose_answer_ends_the_leadership() -> None:
    async def scenario(harness: CountingHarness) -> None:
        harness.lead()
        reply, begun = MemoryReply(), list[int]()
        reply.listen(lambda _: harness.follow(), lambda _: None)

        def step(machine: CountingMachine, effects: Effects) -> None:
            machine.add(KEY, 1, reply, effects)
            effects.after_commit.append(lambda _: begun.append(1))

        harness.topic.perform(KEY, reply, step)
        harness.replicate()
        await a_moment()
        assert reply.is_given
        assert begun == []

    with_harness(scenario)


def test_nobody_waits_longer_than_the_commit_timeout_and_the_record_stays() -> None:
    async def scenario(harness: CountingHarness) -> None:
        harness.lead()
        begun: list[str] = []
        reply = MemoryReply()

        def step(machine: CountingMachine, effects: Effects) -> None:
            machine.add(KEY, 1, reply, effects)
            effects.after_commit.append(lambda _: begun.append("markers"))

        harness.topic.perform(KEY, reply, step)
        await asyncio.sleep(COMMIT_TIMEOUT_MS / 1000 - 0.1)
        later = harness.add(1)
        assert not reply.is_given
        await asyncio.sleep(0.2)
        assert isinstance(reply.outcome, CoordinatorNotAvailable)
        assert not later.is_given
        assert harness.machine().totals == {b"a": 2}
        await asyncio.sleep(COMMIT_TIMEOUT_MS * 3 / 1000)
        assert isinstance(later.outcome, CoordinatorNotAvailable)
        assert begun == []
        harness.replicate()
        await a_moment()
        assert begun == ["markers"]

    with_harness(scenario)


# ---- who may answer


def test_a_broker_that_does_not_lead_the_partition_is_not_the_coordinator() -> None:
    async def scenario(harness: CountingHarness) -> None:
        assert isinstance(harness.add(1).outcome, NotCoordinator)
        harness.follow()
        assert isinstance(harness.add(1).outcome, NotCoordinator)
        assert not harness.topic.perform_in(0, lambda machine, effects: None)

    with_harness(scenario)


def test_leadership_lost_before_the_commit_is_reported_at_once_and_nothing_leaves_later() -> None:
    """KAFKA-20634: the high watermark moves on under the next leader, maybe over other records."""

    async def scenario(harness: CountingHarness) -> None:
        harness.lead()
        reply, reading = harness.add(3), harness.get()
        machine = harness.machine()
        harness.follow()
        assert isinstance(reply.outcome, NotCoordinator)
        assert isinstance(reading.outcome, NotCoordinator)
        assert machine.is_unloaded
        harness.partition().log.raise_high_watermark(1)
        await asyncio.sleep(10)
        assert len(reply.outcomes) == 1

    with_harness(scenario)


def test_leadership_lost_between_the_commit_and_the_end_of_the_turn_gives_one_answer() -> None:
    async def scenario(harness: CountingHarness) -> None:
        harness.lead()
        reply = harness.add(3)
        harness.replicate()
        harness.follow()
        await asyncio.sleep(10)
        assert isinstance(reply.outcome, NotCoordinator)

    with_harness(scenario)


def test_what_should_follow_a_commit_is_forgotten_with_the_leadership() -> None:
    async def scenario(harness: CountingHarness) -> None:
        harness.lead()
        begun: list[int] = []
        harness.topic.perform_in(0, lambda machine, effects: effects.after_commit.append(lambda _: begun.append(1)))
        assert begun == [1]

        def step(machine: CountingMachine, effects: Effects) -> None:
            machine.add(KEY, 1, MemoryReply(), effects)
            effects.after_commit.append(lambda _: begun.append(2))

        harness.topic.perform_in(0, step)
        harness.follow()
        harness.lead()
        await a_moment()
        harness.replicate()
        await asyncio.sleep(10)
        assert begun == [1]

    with_harness(scenario)


def test_replies_that_wait_inside_the_machine_are_failed_with_it() -> None:
    async def scenario(harness: CountingHarness) -> None:
        harness.lead()
        reply = MemoryReply()
        harness.topic.perform(KEY, reply, lambda machine, effects: machine.waiting.append(reply))
        harness.follow()
        assert isinstance(reply.outcome, KafkaError)

    with_harness(scenario)


def test_a_leader_that_gets_a_new_epoch_keeps_its_machine_and_those_who_wait() -> None:
    async def scenario(harness: CountingHarness) -> None:
        harness.lead()
        reply = harness.add(3)
        machine = harness.machine()
        harness.lead(1, 2, in_sync=(1,))
        assert harness.machine() is machine
        assert harness.topic.coordinator_epoch(0) == harness.epoch
        await a_moment()
        assert total_in(reply.outcome) == 3

    with_harness(scenario)


def test_a_fenced_broker_answers_nobody_and_goes_on_with_the_same_machine() -> None:
    async def scenario(harness: CountingHarness) -> None:
        harness.lead()
        reply = harness.add(3)
        machine = harness.machine()
        harness.replicas.manager.suspend()
        assert isinstance(harness.add(1).outcome, NotCoordinator)
        assert isinstance(harness.get().outcome, NotCoordinator)
        assert list(harness.topic.loaded()) == []
        assert not reply.is_given
        harness.replicas.manager.resume()
        assert harness.machine() is machine
        harness.replicate()
        await a_moment()
        assert total_in(reply.outcome) == 3

    with_harness(scenario)


def test_a_process_that_was_stopped_asks_first_whether_its_lease_is_over() -> None:
    async def scenario(harness: CountingHarness) -> None:
        harness.lead()
        harness.end_lease()
        assert isinstance(harness.add(1).outcome, NotCoordinator)
        assert harness.partition().log.log_end_offset == 0

    with_harness(scenario)


def test_a_broker_that_stops_lets_everybody_go() -> None:
    async def scenario(harness: CountingHarness) -> None:
        harness.lead()
        reply = harness.add(3)
        await harness.topic.close()
        assert isinstance(reply.outcome, NotCoordinator)
        harness.lead()
        assert isinstance(harness.add(1).outcome, NotCoordinator)

    with_harness(scenario)


# ---- what cannot be written


def test_a_refused_append_changes_nothing() -> None:
    async def scenario(harness: CountingHarness) -> None:
        harness.lead(1, 2, in_sync=(1,))
        reply = harness.add(3)
        assert isinstance(reply.outcome, CoordinatorNotAvailable)
        assert harness.machine().totals == {}
        assert harness.partition().log.log_end_offset == 0

    with_harness(scenario, TopicSettings(min_insync_replicas=2))


def test_a_step_may_repair_what_a_refused_append_leaves_behind() -> None:
    async def scenario(harness: CountingHarness) -> None:
        harness.lead(1, 2, in_sync=(1,))
        reply = MemoryReply()

        def step(machine: CountingMachine, effects: Effects) -> None:
            machine.add(KEY, 1, reply, effects)
            effects.set_timer("never", 1000)
            effects.on_rejected = repair

        def repair(error: KafkaError, instead: Effects) -> None:
            assert isinstance(error, CoordinatorNotAvailable)
            instead.fail(reply, InvalidGroupId())

        harness.topic.perform(KEY, reply, step)
        assert isinstance(reply.outcome, InvalidGroupId)
        await asyncio.sleep(2)
        assert harness.machine().timers == []

    with_harness(scenario, TopicSettings(min_insync_replicas=2))


def test_a_batch_that_is_too_large_is_refused_as_such() -> None:
    async def scenario(harness: CountingHarness) -> None:
        harness.lead()
        reply = MemoryReply()

        def step(machine: CountingMachine, effects: Effects) -> None:
            effects.write(b"key", bytes(2_000))
            effects.answer(reply, MemoryReply)  # type: ignore[arg-type]

        harness.topic.perform(KEY, reply, step)
        assert isinstance(reply.outcome, MessageTooLarge)

    with_harness(scenario, TopicSettings(max_message_bytes=1_000))


def test_a_batch_of_many_small_records_is_squeezed_until_it_fits() -> None:
    async def scenario(harness: CountingHarness) -> None:
        harness.lead()
        reply = MemoryReply()

        def step(machine: CountingMachine, effects: Effects) -> None:
            for number in range(15_000):
                effects.write(b"a group with a name of its own, and a topic with another one %d" % number, b"7")
            effects.answer(reply, response_with(1))

        harness.topic.perform(KEY, reply, step)
        harness.replicate()
        await a_moment()
        assert total_in(reply.outcome) == 1
        harness.follow()
        harness.lead()
        await asyncio.sleep(1)
        assert len(harness.machine().totals) == 15_000

    with_harness(scenario, TopicSettings(cleanup_policy=("compact",), max_message_bytes=1_000_000))


def test_a_batch_of_a_transaction_has_a_sequence() -> None:
    """Apache Kafka's cleaner stops at a batch that has a producer and none."""

    async def scenario(harness: CountingHarness) -> None:
        harness.lead()
        reply, producer = MemoryReply(), Producer(5, 0)
        harness.topic.perform(KEY, reply, lambda machine, effects: machine.add(KEY, 1, reply, effects, producer))
        harness.topic.perform(KEY, reply, lambda machine, effects: machine.add(KEY, 2, reply, effects, producer))
        found = harness.partition().log.read(0, 1_000, 2).slice
        assert found is not None
        assert [header.base_sequence for header, _ in split_batches(found.read())] == [0, 0]

    with_harness(scenario)


# ---- mistakes in a machine


def test_a_mistake_in_a_step_is_reported_and_the_next_step_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(harness: CountingHarness) -> None:
        harness.lead(1)
        reply, other = MemoryReply(), MemoryReply()

        def step(machine: CountingMachine, effects: Effects) -> None:
            machine.add(KEY, 1, other, effects)
            raise LookupError("a mistake")

        harness.topic.perform(KEY, reply, step)
        assert isinstance(reply.outcome, UnknownServerError)
        assert isinstance(other.outcome, UnknownServerError)
        assert "a mistake" in caplog.text
        assert total_in(harness.add(1).outcome) == 1

    with_harness(scenario)


def test_a_step_may_refuse_by_raising() -> None:
    async def scenario(harness: CountingHarness) -> None:
        harness.lead(1)
        reply = MemoryReply()

        def step(machine: CountingMachine, effects: Effects) -> None:
            raise InvalidGroupId

        harness.topic.perform(KEY, reply, step)
        assert isinstance(reply.outcome, InvalidGroupId)

    with_harness(scenario)


def test_a_record_that_its_machine_cannot_replay_fails_the_request_only(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(harness: CountingHarness) -> None:
        harness.lead(1)
        reply = MemoryReply()

        def step(machine: CountingMachine, effects: Effects) -> None:
            effects.write(b"key", b"no number")
            effects.answer(reply, MemoryReply)  # type: ignore[arg-type]

        harness.topic.perform(KEY, reply, step)
        assert isinstance(reply.outcome, UnknownServerError)
        assert total_in(harness.add(1).outcome) == 1

    with_harness(scenario)


def test_a_listener_that_fails_costs_nobody_else_an_answer(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(MemoryReply):
        def resolve(self, value: object) -> None:
            raise OSError("connection gone")

    async def scenario(harness: CountingHarness) -> None:
        harness.lead()
        broken = Broken()
        harness.topic.perform(KEY, broken, lambda machine, effects: machine.add(KEY, 1, broken, effects))
        reply = harness.add(1)
        harness.replicate()
        await a_moment()
        assert total_in(reply.outcome) == 2
        assert "connection gone" in caplog.text

    with_harness(scenario)


# ---- timers


def set_timer(harness: CountingHarness, key: str, delay_ms: int) -> None:
    assert harness.topic.perform_in(0, lambda machine, effects: effects.set_timer(key, delay_ms))


def test_a_timer_fires_once_and_can_be_moved_and_cancelled() -> None:
    async def scenario(harness: CountingHarness) -> None:
        harness.lead()
        for key in ("kept", "moved", "cancelled"):
            set_timer(harness, key, 1000)
        await asyncio.sleep(0.9)
        set_timer(harness, "moved", 1000)
        harness.topic.perform_in(0, lambda machine, effects: effects.cancel_timer("cancelled"))
        await asyncio.sleep(0.2)
        assert harness.machine().timers == ["kept"]
        await asyncio.sleep(10)
        assert harness.machine().timers == ["kept", "moved"]

    with_harness(scenario)


def test_a_timer_is_not_a_few_milliseconds_late() -> None:
    async def scenario(harness: CountingHarness) -> None:
        harness.lead(1)
        await asyncio.sleep(0.0003)
        set_timer(harness, "session", 6000)
        await asyncio.sleep(5.9999)
        assert harness.machine().timers == []
        await asyncio.sleep(0.0012)
        assert harness.machine().timers == ["session"]

    with_harness(scenario)


def test_a_timer_that_is_moved_by_another_one_of_the_same_moment_waits_again() -> None:
    async def scenario(harness: CountingHarness) -> None:
        harness.lead()
        machine = harness.machine()

        def on_timer(key: str, effects: Effects) -> None:
            machine.timers.append(key)
            if key == "first":
                effects.set_timer("second", 1000)

        machine.on_timer = on_timer  # type: ignore[method-assign]
        set_timer(harness, "first", 1000)
        set_timer(harness, "second", 1000)
        await asyncio.sleep(1.5)
        assert machine.timers == ["first"]
        await asyncio.sleep(1)
        assert machine.timers == ["first", "second"]

    with_harness(scenario)


def test_timers_go_with_the_leadership() -> None:
    async def scenario(harness: CountingHarness) -> None:
        harness.lead()
        set_timer(harness, "session", 1000)
        machine = harness.machine()
        harness.follow()
        await asyncio.sleep(5)
        assert machine.timers == []

    with_harness(scenario)


def test_a_timer_that_is_due_while_the_broker_is_fenced_waits_for_signs_of_life() -> None:
    async def scenario(harness: CountingHarness) -> None:
        harness.lead()
        for key in ("due", "renewed"):
            set_timer(harness, key, 1000)
        machine = harness.machine()
        harness.replicas.manager.suspend()
        await asyncio.sleep(20)
        assert machine.timers == []
        harness.replicas.manager.resume()
        await asyncio.sleep(4)
        assert machine.timers == []
        set_timer(harness, "renewed", 5000)
        await asyncio.sleep(2)
        assert machine.timers == ["due"]

    with_harness(scenario)


# ---- loading


def test_a_new_leader_has_the_same_state_as_the_one_before() -> None:
    async def scenario(harness: CountingHarness) -> None:
        harness.lead()
        for number in range(5):
            harness.add(number, key=f"key{number}")
        harness.add(7, key="key0")
        before = harness.machine().totals
        harness.follow()
        harness.lead()
        assert isinstance(harness.add(1).outcome, CoordinatorLoadInProgress)
        assert harness.topic.is_loading
        await asyncio.sleep(1)
        assert harness.machine().totals == before == {b"key0": 7} | {b"key%d" % n: n for n in range(1, 5)}
        assert harness.machine().is_loaded

    with_harness(scenario)


def test_what_was_loaded_counts_as_committed_only_when_the_high_watermark_is_there() -> None:
    async def scenario(harness: CountingHarness) -> None:
        harness.lead()
        harness.add(3)
        harness.follow()
        harness.lead()
        await asyncio.sleep(1)
        reading = harness.get()
        await a_moment()
        assert not reading.is_given
        harness.replicate()
        await a_moment()
        assert total_in(reading.outcome) == 3

    with_harness(scenario)


def test_transactions_are_open_committed_or_aborted_as_they_were() -> None:
    producers = [Producer(number, 0) for number in range(3)]

    async def scenario(harness: CountingHarness) -> None:
        harness.lead(1)
        for producer in producers:
            key, reply = f"key{producer.producer_id}", MemoryReply()
            harness.topic.perform(
                KEY,
                reply,
                lambda machine, effects: machine.add(key, 1, reply, effects, producer),  # noqa: B023
            )
            assert reply.is_given
        for producer, is_committed in ((producers[0], True), (producers[1], False)):
            reply = MemoryReply()
            harness.topic.append_end_marker(0, producer, is_committed=is_committed, coordinator_epoch=1, reply=reply)
            assert not isinstance(reply.outcome, KafkaError)
        live = harness.machine()
        assert (live.totals, list(live.open)) == ({b"key0": 1}, [producers[2]])
        harness.follow(1, 2)
        harness.lead(1)
        await asyncio.sleep(1)
        loaded = harness.machine()
        assert (loaded.totals, loaded.open) == (live.totals, live.open)

    with_harness(scenario)


def test_an_end_marker_waits_for_its_commit_and_is_refused_where_nobody_coordinates() -> None:
    async def scenario(harness: CountingHarness) -> None:
        early, reply = MemoryReply(), MemoryReply()
        producer = Producer(1, 0)
        harness.topic.append_end_marker(0, producer, is_committed=True, coordinator_epoch=1, reply=early)
        assert isinstance(early.outcome, NotCoordinator)
        harness.lead()
        harness.topic.append_end_marker(0, producer, is_committed=True, coordinator_epoch=1, reply=reply)
        await a_moment()
        assert not reply.is_given
        harness.replicate()
        await a_moment()
        assert not isinstance(reply.outcome, KafkaError)

    with_harness(scenario)


def test_a_partition_that_leaves_while_it_loads_is_loaded_again_when_it_comes_back() -> None:
    async def scenario(harness: CountingHarness) -> None:
        harness.lead()
        harness.add(3)
        harness.follow()
        harness.lead()
        harness.follow()
        harness.lead()
        await asyncio.sleep(1)
        assert harness.machine().totals == {b"a": 3}
        harness.follow()
        harness.lead()
        harness.follow()
        await asyncio.sleep(1)
        assert list(harness.topic.loaded()) == []

    with_harness(scenario)


def test_a_long_log_is_loaded_in_turns() -> None:
    async def scenario(harness: CountingHarness) -> None:
        harness.lead(1)
        for number in range(3_000):
            harness.add(1, key=f"key{number % 100}")
        harness.follow(1, 2)
        harness.lead(1)
        turns = 0
        fractions = set()
        while harness.topic.is_loading:
            await asyncio.sleep(0)
            turns += 1
            if harness.topic.progress is not None:
                fractions.add(harness.topic.progress.fraction)
        assert turns >= 3
        assert harness.machine().totals == {b"key%d" % number: 30 for number in range(100)}

    with_harness(scenario)


def test_a_record_that_cannot_be_read_is_skipped(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(harness: CountingHarness) -> None:
        harness.lead(1)
        harness.add(1, key="before")
        harness.topic.perform_in(0, lambda machine, effects: effects.write(b"bad", b"no number"))
        harness.add(1, key="after")
        harness.follow(1, 2)
        harness.lead(1)
        await asyncio.sleep(1)
        assert harness.machine().totals == {b"before": 1, b"after": 1}
        assert f"key={b'bad'.hex()}" in caplog.text

    with_harness(scenario)


def segment_of(harness: CountingHarness) -> tuple[MemoryDisk, str]:
    log = harness.partition().log
    thrifty = log.directory.context.disk
    assert isinstance(thrifty, DescriptorReclaimingDisk)
    disk = thrifty.disk
    assert isinstance(disk, MemoryDisk)
    return disk, f"{log.path}/00000000000000000000.log"


def test_a_batch_that_is_damaged_is_skipped(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(harness: CountingHarness) -> None:
        harness.lead(1)
        for key in ("one", "two", "six"):
            harness.add(1, key=key)
        disk, path = segment_of(harness)
        batch_bytes = disk.size(path) // 3
        data = bytearray(disk.read_file(path))
        data[2 * batch_bytes - 3] ^= 1
        disk.write_file_atomically(path, bytes(data))
        harness.partition().log.active_segment.release_file()
        harness.follow(1, 2)
        harness.lead(1)
        await asyncio.sleep(1)
        assert harness.machine().totals == {b"one": 1, b"six": 1}
        assert "offset=1" in caplog.text

    with_harness(scenario)


def test_a_log_that_cannot_be_read_has_no_coordinator_and_its_directory_goes_offline() -> None:
    async def scenario(harness: CountingHarness) -> None:
        harness.lead(1)
        harness.add(1)
        disk, path = segment_of(harness)
        harness.follow(1, 2)
        disk.inject(errno.EIO, path, ("read",))
        harness.lead(1)
        await asyncio.sleep(1)
        assert isinstance(harness.add(1).outcome, NotCoordinator)
        assert not harness.partition().log.directory.is_online

    with_harness(scenario)


def test_a_broker_that_is_short_of_descriptors_loads_later() -> None:
    async def scenario(harness: CountingHarness) -> None:
        harness.lead(1)
        harness.add(3)
        disk, path = segment_of(harness)
        harness.follow(1, 2)
        fault = disk.inject(errno.EMFILE, path, ("read",))
        harness.lead(1)
        await asyncio.sleep(5)
        assert isinstance(harness.add(1).outcome, CoordinatorLoadInProgress)
        disk.faults.remove(fault)
        await asyncio.sleep(2)
        assert harness.machine().totals == {b"a": 3}

    with_harness(scenario)


def test_each_partition_has_its_own_machine() -> None:
    async def scenario(harness: CountingHarness) -> None:
        for partition in range(3):
            harness.lead(1, partition=partition)
        for key in ("a", "b", "c"):
            harness.add(1, key=key)
        assert {index: machine.totals for index, machine in harness.topic.loaded()} == {
            97 % 3: {b"a": 1},
            98 % 3: {b"b": 1},
            99 % 3: {b"c": 1},
        }

    with_harness(scenario, partition_count=3)


# ---- what it costs


def test_steps_leave_no_cycles_behind() -> None:
    """They would make the garbage collector stop the broker for milliseconds."""

    async def scenario(harness: CountingHarness) -> None:
        harness.lead()
        set_timer(harness, "session", 10_000)
        await a_moment()
        gc.collect()
        gc.disable()
        try:
            for number in range(1000):
                harness.add(1)
                harness.get()
                set_timer(harness, "session", 10_000)
                harness.topic.perform(KEY, Forgetful(), reject)
                harness.topic.perform(KEY, Forgetful(), reject_in_words)
                if number % 10 == 0:
                    harness.replicate()
                    await a_moment()
            assert gc.collect() < 100
        finally:
            gc.enable()

    with_harness(scenario)


class Forgetful(MemoryReply):
    """As handlers are: makes an answer of the error and lets go of it, and of the steps that it came by."""

    def fail(self, error: Exception) -> None:
        assert isinstance(error, InvalidGroupId)


def reject(machine: CountingMachine, effects: Effects) -> None:
    raise InvalidGroupId


def reject_in_words(machine: CountingMachine, effects: Effects) -> None:
    """As machines do, which have prepared for their records to be refused, too."""

    def on_rejected(error: KafkaError, instead: Effects) -> None:
        instead.timers.extend(effects.timers)

    effects.on_rejected = on_rejected
    try:
        reject(machine, effects)
    except InvalidGroupId as error:
        effects.fail(Forgetful(), error)


def test_nothing_waits_while_nothing_is_asked() -> None:
    async def scenario(harness: CountingHarness) -> None:
        harness.lead()
        harness.add(1)
        harness.replicate()
        await a_moment()
        assert len(asyncio.all_tasks()) == 1
        assert not harness.partition().watchers

    with_harness(scenario)
