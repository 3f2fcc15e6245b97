"""`tidelog consume --group`: members share a topic, commit what they have printed, and leave in order."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Producer

from tests.cli.process import TIME_LIMIT_S, RunningBroker, running_broker, settings
from tests.cli.test_topic_commands import good, rejection

SESSION_S = 3


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    directory = tmp_path_factory.mktemp("broker")
    values = {
        "group_consumer_min_session_timeout_ms": f"{SESSION_S * 1000}",
        "group_consumer_session_timeout_ms": f"{SESSION_S * 1000}",
        "group_consumer_min_heartbeat_interval_ms": "500",
        "group_consumer_heartbeat_interval_ms": "500",
    }
    with running_broker(directory / "log", *settings(directory / "data", broker_id="1", **values)) as running:
        yield running


@contextmanager
def consuming(broker: RunningBroker, *arguments: str, stderr: int | None = None) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tidelog", "consume", *arguments, "--bootstrap", broker.address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_group_goes_on_after_what_was_printed(broker: RunningBroker) -> None:
    good(broker, "topic", "create", "numbers", "--partitions", "1")
    good(broker, "produce", "numbers", given="".join(f"{number}\n" for number in range(10)))
    read = ["consume", "numbers", "--group", "counters", "--from-beginning"]
    assert good(broker, *read, "--max-messages", "3") == "0\n1\n2\n"
    assert good(broker, *read, "--max-messages", "4") == "3\n4\n5\n6\n"
    assert good(broker, *read, "--rack", "here", "--max-messages", "3", "--format", "%o") == "7\n8\n9\n"
    assert "Empty" in good(broker, "group", "describe", "counters")


def test_an_interrupt_commits_and_leaves(broker: RunningBroker) -> None:
    good(broker, "topic", "create", "waves", "--partitions", "1")
    good(broker, "produce", "waves", given="one\ntwo\n")
    with consuming(broker, "waves", "--group", "watchers", "--from-beginning") as process:
        assert process.stdout is not None
        assert [process.stdout.readline(), process.stdout.readline()] == ["one\n", "two\n"]
        process.send_signal(signal.SIGINT)
        assert process.wait(TIME_LIMIT_S) == 0
    assert "Empty" in good(broker, "group", "describe", "watchers")
    good(broker, "produce", "waves", given="three\n")
    assert good(broker, "consume", "waves", "--group", "watchers", "--max-messages", "1") == "three\n"


def test_a_slow_reader_stays_a_member_and_can_be_interrupted(broker: RunningBroker) -> None:
    """As with a pager that shows the first page."""
    good(broker, "topic", "create", "floods", "--partitions", "1")
    good(broker, "produce", "floods", given=f"{'x' * 1000}\n" * 1000)
    with consuming(broker, "floods", "--group", "pagers", "--from-beginning") as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        time.sleep(2 * SESSION_S)
        assert "Stable, 1 member" in good(broker, "group", "describe", "pagers")
        process.send_signal(signal.SIGINT)
        assert process.wait(TIME_LIMIT_S) == 0
        assert "Empty" in good(broker, "group", "describe", "pagers")


def test_an_interrupt_counts_and_commits_the_records_that_were_written(broker: RunningBroker) -> None:
    """The reader is slow, so the interrupt comes while many records wait to be written."""
    good(broker, "topic", "create", "breakers", "--partitions", "1")
    good(broker, "produce", "breakers", given="".join(f"{number:0100}\n" for number in range(10_000)))
    with consuming(broker, "breakers", "--group", "counting", "--from-beginning", stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == f"{0:0100}\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(TIME_LIMIT_S) == 0
        count = 1 + process.stdout.read().count("\n")
        assert 1 < count < 10_000
        assert process.stderr.read() == f"{count:,} records read from breakers\n"
    rest = ["consume", "breakers", "--group", "counting", "--max-messages", "1"]
    assert good(broker, *rest) == f"{count:0100}\n"


def test_a_member_with_an_instance_id_is_waited_for(broker: RunningBroker) -> None:
    good(broker, "topic", "create", "swells", "--partitions", "1")
    good(broker, "produce", "swells", given="one\ntwo\n")
    read = ["consume", "swells", "--group", "regulars", "--instance-id", "left", "--from-beginning"]
    assert good(broker, *read, "--max-messages", "1") == "one\n"
    assert ", 1 member" in good(broker, "group", "describe", "regulars")
    with consuming(broker, *read[1:]) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "two\n"
        assert "instance id left is in use" in rejection(broker, *read)
    assert "--instance-id needs --group" in rejection(broker, "consume", "swells", "--instance-id", "left")


def write_transactions(broker: RunningBroker, topic: str, *transactions: tuple[list[str], bool]) -> None:
    producer = Producer({"bootstrap.servers": broker.address, "transactional.id": f"writer of {topic}"})
    producer.init_transactions(TIME_LIMIT_S)
    for values, is_committed in transactions:
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, partition=0)
        producer.flush(TIME_LIMIT_S)
        end = producer.commit_transaction if is_committed else producer.abort_transaction
        end(TIME_LIMIT_S)


def committed_and_lag(broker: RunningBroker, group: str) -> tuple[str, str]:
    row = good(broker, "group", "describe", group).splitlines()[-1].split()
    return row[2], row[4]


def test_a_group_that_has_read_all_transactions_has_no_lag(broker: RunningBroker) -> None:
    good(broker, "topic", "create", "eddies", "--partitions", "1")
    write_transactions(broker, "eddies", (["one", "two", "three"], True), (["four"], True))
    read = ["consume", "eddies", "--group", "auditors", "--from-beginning"]
    assert good(broker, *read, "--max-messages", "2") == "one\ntwo\n"
    assert committed_and_lag(broker, "auditors") == ("2", "4")
    assert good(broker, *read, "--timeout", "3") == "three\nfour\n"
    assert committed_and_lag(broker, "auditors") == ("6", "0")


@pytest.mark.parametrize("group", [[], ["--group", "believers"]], ids=["alone", "group"])
def test_aborted_records_are_left_out_where_only_committed_ones_are_asked_for(
    broker: RunningBroker, group: list[str]
) -> None:
    topic = f"gusts-{len(group)}"
    good(broker, "topic", "create", topic, "--partitions", "1")
    write_transactions(broker, topic, (["one"], True), (["never"], False), (["two"], True), (["nor this"], False))
    read = ["consume", topic, "--from-beginning", "--timeout", "3"]
    assert good(broker, *read) == "one\nnever\ntwo\nnor this\n"
    assert good(broker, *read, *group, "--committed") == "one\ntwo\n"
    if group:
        assert committed_and_lag(broker, "believers") == ("8", "0")


def test_a_group_that_began_at_the_end_goes_on_there(broker: RunningBroker) -> None:
    good(broker, "topic", "create", "ebbs", "--partitions", "1")
    good(broker, "produce", "ebbs", given="old\n")
    assert good(broker, "consume", "ebbs", "--group", "latecomers", "--timeout", "3") == ""
    assert committed_and_lag(broker, "latecomers") == ("1", "0")
    good(broker, "produce", "ebbs", given="new\n")
    assert good(broker, "consume", "ebbs", "--group", "latecomers", "--max-messages", "1") == "new\n"


def test_a_group_chooses_partitions_and_offsets_itself(broker: RunningBroker) -> None:
    good(broker, "topic", "create", "tides", "--partitions", "1")
    for flags in (["--partition", "0"], ["--offset", "3"]):
        assert "--group cannot be combined" in rejection(broker, "consume", "tides", "--group", "watchers", *flags)
