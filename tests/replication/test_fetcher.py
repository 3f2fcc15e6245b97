"""Rounds of fetching against a scripted leader, on virtual time."""

import asyncio
import gc
import logging
from functools import partial
from itertools import pairwise

import pytest

from tests.replication.fetcher_harness import FOLLOWER, FetcherHarness, content, run_fetching
from tests.replication.scripted_leader import topic_id_of
from tests.storage.logs import append, new_log
from tidelog.errors import KafkaStorageError, NotLeaderOrFollower
from tidelog.protocol.messages.fetch import FetchRequest
from tidelog.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from tidelog.protocol.structs import Request
from tidelog.replication.partition import Partition
from tidelog.types import TopicPartition


def test_a_follower_gets_a_copy_of_the_log_and_its_high_watermark() -> None:
    async def scenario(harness: FetcherHarness) -> None:
        led = harness.leader.lead("orders")
        harness.leader.append("orders", b"a", b"b")
        replica = harness.start_following("orders")
        await harness.until(lambda: replica.log.log_end_offset == 2)
        harness.leader.append("orders", b"c")
        await harness.until(lambda: replica.log.high_watermark == 3)
        assert content(replica.log) == content(led.log)
        assert list(replica.log.leader_epochs.starts) == list(led.log.leader_epochs.starts)

    run_fetching(scenario)


def test_the_fetch_says_who_asks_and_from_where() -> None:
    async def scenario(harness: FetcherHarness) -> None:
        harness.leader.lead("orders", leader_epoch=3)
        harness.leader.append("orders", b"a")
        replica = harness.start_following("orders", leader_epoch=3)
        await harness.until(lambda: replica.log.high_watermark == 1)
        await asyncio.sleep(0.01)
        first, second = harness.leader.fetches()[:2]
        assert first.replica_state is not None
        assert (first.replica_state.replica_id, first.replica_state.replica_epoch) == (FOLLOWER, 7)
        assert (first.session_epoch, first.max_wait_ms) == (0, 0)
        assert (second.session_epoch, second.max_wait_ms, second.min_bytes) == (1, 500, 1)
        assert (second.max_bytes, second.topics[0].topic_id) == (10_485_760, topic_id_of("orders"))
        wanted = second.topics[0].partitions[0]
        assert (wanted.fetch_offset, wanted.last_fetched_epoch, wanted.current_leader_epoch) == (1, 3, 3)
        assert (wanted.log_start_offset, wanted.partition_max_bytes) == (0, 1_048_576)

    run_fetching(scenario)


def test_one_fetch_is_on_its_way_and_an_idle_one_waits_at_the_leader() -> None:
    async def scenario(harness: FetcherHarness) -> None:
        harness.leader.lead("orders")
        harness.start_following("orders")
        await asyncio.sleep(10)
        assert 20 <= len(harness.leader.fetches()) <= 23
        assert len(harness.leader.connections) == 1

    run_fetching(scenario)


def test_a_thousand_idle_partitions_are_not_named_again() -> None:
    async def scenario(harness: FetcherHarness) -> None:
        for index in range(1000):
            harness.leader.lead("orders", index)
        replicas = [harness.start_following("orders", index) for index in range(1000)]
        await asyncio.sleep(1)
        before = len(harness.leader.fetches())
        harness.leader.append("orders", b"a", partition=7)
        await harness.until(lambda: replicas[7].log.high_watermark == 1)
        await asyncio.sleep(1)
        fetches = harness.leader.fetches()[before:]
        named = [wanted.partition for fetch in fetches for topic in fetch.topics for wanted in topic.partitions]
        assert (named, len(fetches)) == ([7], 4)

    run_fetching(scenario)


# ---- acting at once


def test_a_partition_that_is_added_while_a_fetch_waits_at_the_leader_is_asked_for_at_once() -> None:
    async def scenario(harness: FetcherHarness) -> None:
        harness.leader.lead("idle")
        harness.start_following("idle")
        await asyncio.sleep(0.1)
        log = new_log()
        append(log, b"a", leader_epoch=1)
        harness.leader.lead("orders", leader_epoch=2, log=log)
        replica = harness.start_following("orders", leader_epoch=2)
        took_s = await harness.until(lambda: replica.log.log_end_offset == 1)
        assert took_s < 0.01
        assert len(harness.leader.connections) == 1

    run_fetching(scenario)


def test_a_leader_that_does_not_end_its_wait_costs_that_wait_and_nothing_else() -> None:
    async def scenario(harness: FetcherHarness) -> None:
        harness.leader.answers_held_fetch = False
        harness.leader.lead("idle")
        other = harness.start_following("idle")
        await asyncio.sleep(0.1)
        harness.leader.lead("orders")
        harness.leader.append("orders", b"a")
        replica = harness.start_following("orders")
        took_s = await harness.until(lambda: replica.log.log_end_offset == 1)
        assert 0.3 < took_s <= 0.6
        harness.leader.append("idle", b"x")
        await harness.until(lambda: other.log.high_watermark == 1)

    run_fetching(scenario)


def test_a_change_acts_at_once_while_the_leader_cannot_be_reached() -> None:
    """A fetcher that waits after failures tries again as soon as there is something new to ask."""

    async def scenario(harness: FetcherHarness) -> None:
        harness.leader.lead("idle")
        harness.start_following("idle")
        await asyncio.sleep(0.1)
        harness.leader.stop()
        await asyncio.sleep(20.0)
        await harness.leader.start()
        harness.leader.lead("orders")
        harness.leader.append("orders", b"a")
        replica = harness.start_following("orders")
        assert await harness.until(lambda: replica.log.log_end_offset == 1) < 0.01

    run_fetching(scenario)


def test_followers_are_back_soon_after_a_short_absence_of_the_leader() -> None:
    async def scenario(harness: FetcherHarness) -> None:
        harness.leader.lead("orders")
        replica = harness.start_following("orders")
        await asyncio.sleep(0.1)
        harness.leader.stop()
        await asyncio.sleep(0.05)
        await harness.leader.start()
        harness.leader.append("orders", b"a")
        assert await harness.until(lambda: replica.log.log_end_offset == 1) < 0.1

    run_fetching(scenario)


def test_waits_between_attempts_grow_to_the_setting() -> None:
    async def scenario(harness: FetcherHarness) -> None:
        harness.leader.lead("orders")
        harness.start_following("orders")
        await asyncio.sleep(0.1)
        harness.leader.stop()
        attempts: list[float] = []
        connect = harness.network.connect

        async def counted(*arguments: object) -> object:
            attempts.append(harness.clock.monotonic())
            return await connect(*arguments)  # type: ignore[arg-type]

        harness.network.connect = counted  # type: ignore[method-assign, assignment]
        await asyncio.sleep(10)
        gaps = [round(later - earlier, 3) for earlier, later in pairwise(attempts)]
        assert gaps[:7] == [0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0]
        assert set(gaps[7:]) == {1.0}

    run_fetching(scenario)


def test_a_leader_that_does_not_answer_is_connected_to_again() -> None:
    async def scenario(harness: FetcherHarness) -> None:
        harness.leader.lead("orders")
        replica = harness.start_following("orders")
        await asyncio.sleep(0.1)
        harness.leader.is_mute = True
        hung = harness.leader.connections[0]
        await asyncio.sleep(3.0)
        harness.leader.is_mute = False
        harness.leader.append("orders", b"a")
        assert hung in harness.leader.connections
        took_s = await harness.until(lambda: replica.log.log_end_offset == 1)
        assert 1.0 < took_s < 4.0
        assert hung not in harness.leader.connections

    run_fetching(scenario, replica_socket_timeout_ms=5000)


# ---- what does not count


def test_an_answer_to_an_earlier_epoch_does_not_count() -> None:
    """KAFKA-18991: the partition gets a new epoch while an answer with records is on its way."""

    async def scenario(harness: FetcherHarness) -> None:
        led = harness.leader.lead("orders")
        harness.leader.append("orders", b"a")
        replica = harness.start_following("orders")
        await harness.until(lambda: replica.log.high_watermark == 1)
        await asyncio.sleep(0.1)
        renewed: list[Request] = []

        def renew(request: Request) -> None:
            if not renewed:
                renewed.append(request)
                append(led.log, b"b", leader_epoch=1)
                harness.follow(replica, leader_epoch=2)

        harness.leader.on_request = renew
        await asyncio.sleep(0.5)
        assert isinstance(renewed[0], FetchRequest)
        assert replica.log.log_end_offset == 1
        led.leader_epoch = 2
        led.log.truncate_to(1)
        led.log.leader_epochs.assign(2, 1)
        harness.leader.append("orders", b"c")
        await harness.until(lambda: replica.log.high_watermark == 2)
        assert content(replica.log) == content(led.log)

    run_fetching(scenario)


def test_nothing_of_a_later_epoch_is_taken_than_the_one_that_was_asked_in() -> None:
    """KAFKA-18723: the leader has gone on in an epoch that this replica has not reconciled with."""

    async def scenario(harness: FetcherHarness) -> None:
        led = harness.leader.lead("orders", leader_epoch=2)
        harness.leader.append("orders", b"a")
        replica = harness.start_following("orders", leader_epoch=2)
        await harness.until(lambda: replica.log.high_watermark == 1)
        append(led.log, b"b", leader_epoch=3)
        led.log.raise_high_watermark(2)
        harness.leader.changed()
        await asyncio.sleep(2)
        assert (replica.log.log_end_offset, replica.log.high_watermark) == (1, 1)
        led.leader_epoch = 3
        harness.follow(replica, leader_epoch=3)
        await harness.until(lambda: replica.log.high_watermark == 2)

    run_fetching(scenario)


def test_nothing_is_appended_after_a_partition_was_forgotten() -> None:
    async def scenario(harness: FetcherHarness) -> None:
        harness.leader.lead("orders")
        harness.leader.lead("others")
        replica, other = harness.start_following("orders"), harness.start_following("others")
        await asyncio.sleep(0.1)
        harness.leader.append("orders", b"a")
        harness.fetchers.forget([replica.topic_partition])
        await asyncio.sleep(0.1)
        assert replica.log.log_end_offset == 0
        harness.leader.append("others", b"a")
        await harness.until(lambda: other.log.log_end_offset == 1)
        await asyncio.sleep(0.1)
        forgotten = [topic.topic_id for fetch in harness.leader.fetches() for topic in fetch.forgotten_topics_data]
        assert forgotten == [topic_id_of("orders")]

    run_fetching(scenario)


# ---- reconciling


def test_every_new_epoch_is_reconciled_in_one_question_for_all_partitions() -> None:
    async def scenario(harness: FetcherHarness) -> None:
        replicas = []
        for index in range(3):
            log = new_log()
            append(log, b"common", leader_epoch=1)
            append(log, b"only here", leader_epoch=1)
            led_log = new_log()
            append(led_log, b"common", leader_epoch=1)
            harness.leader.lead("orders", index, leader_epoch=2, log=led_log)
            replicas.append(harness.replica("orders", index, log=log))
        for replica in replicas:
            harness.follow(replica, leader_epoch=2)
        await harness.until(lambda: all(replica.log.log_end_offset == 1 for replica in replicas))
        questions = [each for each in harness.leader.requests if isinstance(each, OffsetForLeaderEpochRequest)]
        assert [len(question.topics[0].partitions) for question in questions] == [3]
        assert questions[0].replica_id == FOLLOWER

    run_fetching(scenario)


def test_cascaded_failovers_are_reconciled_question_by_question() -> None:
    async def scenario(harness: FetcherHarness) -> None:
        ours, theirs = new_log(), new_log()
        for epoch in (1, 1, 3, 3):
            append(ours, b"%d" % epoch, leader_epoch=epoch)
        for epoch in (1, 2, 4):
            append(theirs, b"%d" % epoch, leader_epoch=epoch)
        led = harness.leader.lead("orders", leader_epoch=5, log=theirs)
        led.reports_divergence = False
        replica = harness.replica("orders", log=ours)
        harness.follow(replica, leader_epoch=5)
        await harness.until(lambda: replica.log.log_end_offset == 3)
        assert content(replica.log) == content(theirs)

    run_fetching(scenario)


def test_a_divergence_that_only_the_fetch_shows_is_cut_before_anything_moves() -> None:
    async def scenario(harness: FetcherHarness) -> None:
        ours, theirs = new_log(), new_log()
        for log, epoch in ((ours, 2), (theirs, 3)):
            append(log, b"a", leader_epoch=1)
            append(log, b"epoch %d" % epoch, leader_epoch=epoch)
        theirs.raise_high_watermark(2)
        harness.leader.lead("orders", leader_epoch=3, log=theirs)
        harness.leader.answers_epoch_ends = False
        replica = harness.replica("orders", log=ours)
        high_watermarks: list[int] = []
        harness.leader.on_request = lambda request: high_watermarks.append(replica.log.high_watermark)
        harness.follow(replica, leader_epoch=3)
        await harness.until(lambda: replica.log.high_watermark == 2)
        assert content(replica.log) == content(theirs)
        assert set(high_watermarks[:4]) == {0}, "until the cut is made and the leader's records are there"

    run_fetching(scenario)


# ---- out of range


def test_where_the_leader_starts_later_the_follower_starts_over_there() -> None:
    async def scenario(harness: FetcherHarness) -> None:
        led = harness.leader.lead("orders")
        for value in (b"a", b"b", b"c", b"d"):
            harness.leader.append("orders", value)
        led.log.advance_log_start_offset(2)
        replica = harness.start_following("orders")
        await harness.until(lambda: replica.log.high_watermark == 4)
        assert replica.log.log_start_offset == 2
        assert content(replica.log) == content(led.log)

    run_fetching(scenario)


def test_where_the_leader_ends_earlier_the_rest_is_truncated_and_the_loss_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(harness: FetcherHarness) -> None:
        led = harness.leader.lead("orders")
        led.reports_divergence = False
        for value in (b"a", b"b", b"c"):
            harness.leader.append("orders", value)
        replica = harness.start_following("orders")
        await harness.until(lambda: replica.log.high_watermark == 3)
        led.log = new_log()
        harness.leader.append("orders", b"a")
        await harness.until(lambda: replica.log.log_end_offset == 1)
        assert "high_watermark=3 log_end_offset=3 truncate_to=1 lost=2" in caplog.text

    with caplog.at_level(logging.WARNING):
        run_fetching(scenario)


def test_the_log_start_follows_the_leaders_and_is_reported_back() -> None:
    async def scenario(harness: FetcherHarness) -> None:
        led = harness.leader.lead("orders")
        for value in (b"a", b"b", b"c"):
            harness.leader.append("orders", value)
        replica = harness.start_following("orders")
        await harness.until(lambda: replica.log.high_watermark == 3)
        led.log.advance_log_start_offset(2)
        harness.leader.changed()
        await harness.until(lambda: replica.log.log_start_offset == 2)
        await asyncio.sleep(0.01)
        assert harness.leader.fetches()[-1].topics[0].partitions[0].log_start_offset == 2

    run_fetching(scenario)


# ---- errors


def test_an_error_of_one_partition_delays_only_that_one() -> None:
    async def scenario(harness: FetcherHarness) -> None:
        rejecting, _ = harness.leader.lead("orders"), harness.leader.lead("others")
        rejecting.error_code = NotLeaderOrFollower.code
        harness.leader.append("orders", b"a")
        delayed, other = harness.start_following("orders"), harness.start_following("others")
        await asyncio.sleep(5)
        harness.leader.append("others", b"a")
        assert await harness.until(lambda: other.log.log_end_offset == 1) < 0.01
        assert delayed.log.log_end_offset == 0
        before = harness.leader.partitions_read
        await asyncio.sleep(10)
        assert harness.leader.partitions_read - before < 100, "an error is not asked for again and again"
        rejecting.error_code = 0
        await harness.until(lambda: delayed.log.log_end_offset == 1, within_s=1.1)

    run_fetching(scenario)


def test_trouble_is_logged_once_and_so_is_its_end(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(harness: FetcherHarness) -> None:
        led = harness.leader.lead("orders")
        replica = harness.start_following("orders")
        await harness.until(lambda: harness.leader.fetches() != [])
        led.error_code = NotLeaderOrFollower.code
        harness.leader.append("orders", b"a")
        await asyncio.sleep(20)
        assert caplog.text.count("cannot fetch, retrying") == 1
        assert "fetching again" not in caplog.text
        led.error_code = 0
        await harness.until(lambda: replica.log.log_end_offset == 1)
        assert caplog.text.count("fetching again leader=1 partitions=1 first=orders-0") == 1

    with caplog.at_level(logging.INFO, "tidelog.replication.fetcher_log_lines"):
        run_fetching(scenario)


def test_a_leader_that_hears_of_its_election_late_is_asked_again_soon() -> None:
    async def scenario(harness: FetcherHarness) -> None:
        log = new_log()
        append(log, b"a", leader_epoch=1)
        led = harness.leader.lead("orders", leader_epoch=1, log=log)
        replica = harness.replica("orders")
        append(replica.log, b"a", leader_epoch=1)
        harness.follow(replica, leader_epoch=2)
        await asyncio.sleep(0.03)
        led.leader_epoch = 2
        led.log.leader_epochs.assign(2, 1)
        harness.leader.append("orders", b"b")
        assert await harness.until(lambda: replica.log.log_end_offset == 2) < 0.1

    run_fetching(scenario)


def test_a_fenced_partition_is_shown_and_fetched_again_in_its_new_epoch() -> None:
    async def scenario(harness: FetcherHarness) -> None:
        led = harness.leader.lead("orders", leader_epoch=3)
        harness.leader.append("orders", b"a")
        replica = harness.start_following("orders", leader_epoch=2)
        await asyncio.sleep(2)
        assert harness.fetchers.failed_partitions == {
            TopicPartition("orders", 0): "the leader is in a later epoch than 2"
        }
        asked = len(harness.leader.requests)
        await asyncio.sleep(10)
        assert len(harness.leader.requests) == asked
        harness.follow(replica, leader_epoch=3)
        await harness.until(lambda: replica.log.log_end_offset == 1)
        assert not harness.fetchers.failed_partitions
        assert content(replica.log) == content(led.log)

    run_fetching(scenario)


def test_a_damaged_batch_is_fetched_again() -> None:
    async def scenario(harness: FetcherHarness) -> None:
        led = harness.leader.lead("orders")
        harness.leader.append("orders", b"a")
        good, read = led.log, led.log.read
        damaged = new_log()
        append(damaged, b"a", leader_epoch=1)
        damaged.raise_high_watermark(1)
        segment = damaged.segments[-1]
        segment.truncate(segment.prepare_truncation(0, 0))
        found = read(0, 1000, 1).slice
        assert found is not None
        batch = bytearray(found.read())
        batch[-1] ^= 1
        segment.append(memoryview(batch), len(batch), 0, 0, 4096)
        led.log = damaged
        replica = harness.start_following("orders")
        await asyncio.sleep(0.5)
        assert replica.log.log_end_offset == 0
        led.log = good
        await harness.until(lambda: replica.log.log_end_offset == 1)

    run_fetching(scenario)


def test_a_partition_whose_disk_fails_is_given_up_and_the_others_go_on() -> None:
    async def scenario(harness: FetcherHarness) -> None:
        harness.leader.lead("orders")
        harness.leader.lead("others")
        broken, other = harness.start_following("orders"), harness.start_following("others")
        await asyncio.sleep(0.1)
        broken.log.directory.fail(OSError("disk"))
        harness.leader.append("orders", b"a")
        harness.leader.append("others", b"a")
        await harness.until(lambda: other.log.log_end_offset == 1)
        assert TopicPartition("orders", 0) in harness.fetchers.failed_partitions
        with pytest.raises(KafkaStorageError):
            broken.log.append_as_follower(b"")

    run_fetching(scenario)


def test_a_session_that_the_leader_forgot_is_opened_again() -> None:
    async def scenario(harness: FetcherHarness) -> None:
        harness.leader.lead("orders")
        replica = harness.start_following("orders")
        await asyncio.sleep(0.1)
        harness.leader.sessions.clear()
        await asyncio.sleep(1)
        harness.leader.append("orders", b"a")
        await harness.until(lambda: replica.log.log_end_offset == 1)
        assert len(harness.leader.sessions) == 1

    run_fetching(scenario)


def test_a_leader_that_refuses_every_session_is_not_asked_without_pause() -> None:
    async def scenario(harness: FetcherHarness) -> None:
        harness.leader.lead("orders")
        harness.start_following("orders")
        await asyncio.sleep(0.1)
        harness.leader.session_of = lambda request: None  # type: ignore[method-assign]
        before = len(harness.leader.fetches())
        await asyncio.sleep(10)
        assert len(harness.leader.fetches()) - before < 25

    run_fetching(scenario)


def test_a_leader_without_room_for_a_session_is_fetched_from_by_full_requests_that_wait() -> None:
    async def scenario(harness: FetcherHarness) -> None:
        harness.leader.keeps_sessions = False
        harness.leader.lead("orders")
        replica = harness.start_following("orders")
        await asyncio.sleep(10)
        fetches = harness.leader.fetches()
        assert len(fetches) < 25
        assert {fetch.session_epoch for fetch in fetches} == {0}
        harness.leader.append("orders", b"a")
        assert await harness.until(lambda: replica.log.log_end_offset == 1) < 0.01

    run_fetching(scenario)


def test_an_older_leader_is_asked_by_topic_name() -> None:
    async def scenario(harness: FetcherHarness) -> None:
        harness.leader.fetch_version = 12
        harness.leader.lead("orders")
        harness.leader.append("orders", b"a")
        replica = harness.start_following("orders")
        await harness.until(lambda: replica.log.high_watermark == 1)
        assert [fetch.topics[0].topic for fetch in harness.leader.fetches()] == ["orders", "orders"]
        assert {fetch.replica_id for fetch in harness.leader.fetches()} == {FOLLOWER}

    run_fetching(scenario)


# ---- cost


def test_rounds_leave_no_reference_cycles_behind() -> None:
    async def scenario(harness: FetcherHarness) -> None:
        harness.leader.lead("orders")
        replica = harness.start_following("orders")
        await _replicate(harness, replica, 3)
        gc.collect()
        gc.disable()
        try:
            await _replicate(harness, replica, 30)
            found = gc.collect()
        finally:
            gc.enable()
        assert found < 10

    run_fetching(scenario)


async def _replicate(harness: FetcherHarness, replica: Partition, count: int) -> None:
    for _ in range(count):
        harness.leader.append("orders", b"x")
        end = harness.leader.partitions["orders", 0].log.log_end_offset
        await harness.until(partial(_ends_at, replica, end))


def _ends_at(replica: Partition, offset: int) -> bool:
    return replica.log.log_end_offset == offset
