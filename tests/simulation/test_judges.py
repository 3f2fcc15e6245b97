"""The judges of client histories: each catches a bad history, and lets a good one pass."""

from collections.abc import Callable

import pytest

from tidelog.simulation.history import Decision, History, Transaction, Write
from tidelog.simulation.judges import judge
from tidelog.types import TopicPartition

PLACE = TopicPartition("orders", 0)
OTHER = TopicPartition("orders", 1)


def write(history: History, value: bytes, **facts: object) -> Write:
    return history.begin(Write(**{"topic_partition": PLACE, "writer": "w", **facts}, value=value))  # type: ignore[arg-type]


def written(history: History, *values: bytes, first_offset: int = 0, **facts: object) -> None:
    """Acknowledged one after the other."""
    for offset, value in enumerate(values, first_offset):
        history.acknowledge(write(history, value, **facts), offset)


def read(history: History, *polls: list[tuple[int, bytes]], is_read_committed: bool = False) -> None:
    """By a consumer that begins at 0."""
    consumer = history.consumer("reader", is_read_committed=is_read_committed)
    consumer.on_assigned({PLACE: 0})
    for poll in polls:
        consumer.on_poll((PLACE, offset, value) for offset, value in poll)


def in_transaction(history: History, decision: Decision, *values: bytes, first_offset: int = 0) -> Transaction:
    transaction = history.begin_transaction("t")
    written(history, *values, first_offset=first_offset, transaction=transaction)
    transaction.decision = decision
    return transaction


def a_lost_write(history: History) -> None:
    written(history, b"a", b"b", b"c")
    read(history, [(0, b"a"), (2, b"c")])


def an_unseen_write(history: History) -> None:
    written(history, b"a", b"b")
    read(history, [(0, b"a")])


def a_duplicate(history: History) -> None:
    written(history, b"a")
    read(history, [(0, b"a"), (1, b"a")])


def two_values_at_one_offset(history: History) -> None:
    written(history, b"a")
    write(history, b"b")
    read(history, [(0, b"b")])


def two_values_acknowledged_at_one_offset(history: History) -> None:
    written(history, b"a")
    written(history, b"b")


def one_value_at_another_offset(history: History) -> None:
    written(history, b"a")
    read(history, [(1, b"a")])


def a_skipped_record_in_a_poll(history: History) -> None:
    written(history, b"a", b"b", b"c")
    read(history, [(0, b"a"), (1, b"b"), (2, b"c")])
    read(history, [(0, b"a"), (2, b"c")])


def a_skipped_record_between_polls(history: History) -> None:
    written(history, b"a", b"b", b"c")
    read(history, [(0, b"a"), (1, b"b"), (2, b"c")])
    read(history, [(0, b"a")], [(2, b"c")])


def a_poll_that_goes_back(history: History) -> None:
    written(history, b"a", b"b")
    read(history, [(0, b"a"), (1, b"b")], [(0, b"a")])


def a_poll_that_goes_back_in_itself(history: History) -> None:
    written(history, b"a", b"b")
    read(history, [(0, b"a"), (1, b"b"), (0, b"a")])


def a_send_that_overtakes(history: History) -> None:
    first, second = write(history, b"a"), write(history, b"b")
    history.acknowledge(second, 0)
    history.acknowledge(first, 1)
    read(history, [(0, b"b"), (1, b"a")])


def an_aborted_read(history: History) -> None:
    in_transaction(history, Decision.ABORTED, b"a")
    history.transactions[0].decision = Decision.UNKNOWN
    read(history, [(0, b"a")], is_read_committed=True)
    history.transactions[0].decision = Decision.ABORTED


def a_precommitted_read(history: History) -> None:
    in_transaction(history, Decision.OPEN, b"a")
    read(history, [(0, b"a")], is_read_committed=True)
    history.transactions[0].decision = Decision.COMMITTED


def a_torn_transaction(history: History) -> None:
    in_transaction(history, Decision.UNKNOWN, b"a", b"b")
    read(history, [(0, b"a")], is_read_committed=True)


def a_committed_transaction_that_is_not_read(history: History) -> None:
    in_transaction(history, Decision.COMMITTED, b"a")
    read(history, [(0, b"a")])


def a_phantom(history: History) -> None:
    read(history, [(0, b"a")])


def a_record_in_another_partition(history: History) -> None:
    write(history, b"a", topic_partition=OTHER)
    read(history, [(0, b"a")])


def a_failed_write_that_shows(history: History) -> None:
    history.reject(write(history, b"a", is_idempotent=False))
    read(history, [(0, b"a")])


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (a_lost_write, "lost-write orders-0@1 b'b'"),
        (an_unseen_write, "unseen orders-0@1 b'b'"),
        (a_duplicate, "duplicate orders-0 holds b'a' at 0 and at 1"),
        (two_values_at_one_offset, "I5 orders-0@0 was b'a' and is read as b'b'"),
        (two_values_acknowledged_at_one_offset, "inconsistent-offset orders-0@0"),
        (one_value_at_another_offset, "inconsistent-offset orders-0 acknowledged b'a' at 0"),
        (a_skipped_record_in_a_poll, "int-poll-skip reader went from 1 to 2 of orders-0 and passed over b'b'"),
        (a_skipped_record_between_polls, "poll-skip reader went from 1 to 2 of orders-0 and passed over b'b'"),
        (a_poll_that_goes_back, "nonmonotonic-poll reader read orders-0@0 after 1"),
        (a_poll_that_goes_back_in_itself, "int-nonmonotonic-poll reader read orders-0@0 after 1"),
        (a_send_that_overtakes, "nonmonotonic-send orders-0 took b'b' at 0"),
        (an_aborted_read, "aborted-read reader read b'a'"),
        (a_precommitted_read, "precommitted-read reader read b'a'"),
        (a_torn_transaction, "torn-transaction b'b'"),
        (a_committed_transaction_that_is_not_read, "torn-transaction b'a'"),
        (a_phantom, "phantom orders-0@0 reader read b'a'"),
        (a_record_in_another_partition, "misplaced reader read b'a'"),
        (a_failed_write_that_shows, "failed-write orders-0@0 b'a' was refused"),
    ],
)
def test_a_bad_history_is_caught(bad: Callable[[History], None], message: str) -> None:
    history = History()
    bad(history)
    assert any(line.startswith(message) for line in judge(history)), judge(history)


def all_in_order(history: History) -> None:
    written(history, b"a", b"b", b"c")
    read(history, [(0, b"a")], [(1, b"b"), (2, b"c")])


def a_write_that_timed_out_and_shows(history: History) -> None:
    write(history, b"a")
    read(history, [(0, b"a")])


def a_write_that_timed_out_and_does_not_show(history: History) -> None:
    write(history, b"a")
    written(history, b"b")
    read(history, [(0, b"b")])


def a_write_of_acks_1_that_is_lost(history: History) -> None:
    history.acknowledge(write(history, b"a", acks=1, is_idempotent=False), 0)
    written(history, b"b")
    read(history, [(0, b"b")])


def records_deleted_under_a_reader(history: History) -> None:
    written(history, b"a", b"b", b"c")
    history.on_log_start(PLACE, 2)
    read(history, [(2, b"c")])


def records_deleted_in_a_gap(history: History) -> None:
    written(history, b"a", b"b", b"c")
    read(history, [(0, b"a"), (1, b"b"), (2, b"c")])
    history.on_log_start(PLACE, 2)
    read(history, [(0, b"a")], [(2, b"c")])


def a_superseded_record_of_a_compacted_topic(history: History) -> None:
    history.compacted_topics.add("orders")
    written(history, b"a", b"b", key=b"k")
    read(history, [(1, b"b")])


def a_seek_back(history: History) -> None:
    written(history, b"a", b"b")
    consumer = history.consumer("reader")
    consumer.on_assigned({PLACE: 0})
    consumer.on_poll([(PLACE, 0, b"a"), (PLACE, 1, b"b")])
    consumer.on_seek(PLACE, 0)
    consumer.on_poll([(PLACE, 0, b"a")])


def transactions_that_are_seen_as_decided(history: History) -> None:
    in_transaction(history, Decision.COMMITTED, b"a", b"b")
    in_transaction(history, Decision.ABORTED, b"c", first_offset=3)
    in_transaction(history, Decision.UNKNOWN, b"d", first_offset=5)
    read(history, [(0, b"a"), (1, b"b"), (3, b"c"), (5, b"d")])
    read(history, [(0, b"a"), (1, b"b")], is_read_committed=True)


def losses_of_a_topic_with_unclean_elections(history: History) -> None:
    history.lossy_topics.add("orders")
    written(history, b"a", b"b")
    written(history, b"c", first_offset=1)
    read(history, [(0, b"a"), (1, b"b")], [(1, b"c")])


@pytest.mark.parametrize(
    "good",
    [
        all_in_order,
        a_write_that_timed_out_and_shows,
        a_write_that_timed_out_and_does_not_show,
        a_write_of_acks_1_that_is_lost,
        records_deleted_under_a_reader,
        records_deleted_in_a_gap,
        a_superseded_record_of_a_compacted_topic,
        a_seek_back,
        transactions_that_are_seen_as_decided,
        losses_of_a_topic_with_unclean_elections,
    ],
)
def test_a_good_history_passes(good: Callable[[History], None]) -> None:
    history = History()
    good(history)
    assert judge(history) == []
