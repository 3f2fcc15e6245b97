"""`tidelog group` and `tidelog transaction` as a newcomer meets them: real processes, their output and exit codes."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from bench import wire
from tests.cli.client import WAIT_S
from tests.cli.process import RunningBroker, running_broker, settings, tidelog
from tests.cli.test_topic_commands import good, rejection

MADE_UP_PRODUCER_ID = 424242


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    directory = tmp_path_factory.mktemp("broker")
    # Without the verification a transaction can hang, as with brokers from before KIP-890.
    values = {"group_initial_rebalance_delay_ms": "0", "transaction_partition_verification_enable": "false"}
    with running_broker(directory / "log", *settings(directory / "data", broker_id="1", **values)) as running:
        yield running


def write(broker: RunningBroker, topic: str, partition: int, count: int) -> None:
    lines = "".join(f"{number}\n" for number in range(count))
    good(broker, "produce", topic, "--partition", str(partition), given=lines)


@contextmanager
def reading(broker: RunningBroker, group: str, topic: str, protocol: str = "classic") -> Iterator[Consumer]:
    """A member of the group that has been given partitions, and has read from them."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.subscribe([topic])
        assert consumer.consume(1, WAIT_S)
        yield consumer
    finally:
        consumer.close()


def commit(consumer: Consumer, topic: str, *offsets: int) -> None:
    """One for each partition from 0 on."""
    wanted = [TopicPartition(topic, partition, offset) for partition, offset in enumerate(offsets)]
    consumer.commit(offsets=wanted, asynchronous=False)


def cells(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_before_there_are_any_it_is_said_how_they_come_about(broker: RunningBroker) -> None:
    assert good(broker, "group", "list") == "no groups yet; a consumer with a group.id creates one\n"
    assert good(broker, "transaction", "list") == (
        "no transactional ids yet; a producer with a transactional.id creates one\n"
    )


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_group_from_its_first_member_to_its_deletion(broker: RunningBroker, protocol: str) -> None:
    topic, group = f"orders-{protocol}", f"billing-{protocol}"
    good(broker, "topic", "create", topic, "--partitions", "2")
    write(broker, topic, 0, 3)
    write(broker, topic, 1, 1)
    with reading(broker, group, topic, protocol) as consumer:
        commit(consumer, topic, 1)
        assert [group, protocol, "Stable", "1"] in cells(good(broker, "group", "list"))
        described = good(broker, "group", "describe", group).splitlines()
        assert described[0] == f"group     {group}"
        assert described[1].startswith(f"kind      {protocol}, assignor ")
        assert described[2] == "state     Stable, 1 member"
        assert described[3] == "lag       2 records, not counting 1 partition without a committed offset"
        assert described[5].split() == ["TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "MEMBER", "HOST"]
        first, second = (line.split() for line in described[6:])
        assert (first[:5], first[6]) == ([topic, "0", "1", "3", "2"], "127.0.0.1")
        assert second[:5] == [topic, "1", "-", "1", "-"]
        has_members = f"group {group} has members: stop its consumers first"
        assert rejection(broker, "group", "delete", group) == f"tidelog group delete: {has_members}"
        reset = ["group", "reset-offsets", group, "--to-earliest"]
        assert rejection(broker, *reset, "--execute") == f"tidelog group reset-offsets: {has_members}"
        assert good(broker, *reset).splitlines()[-1] == (
            "no offset was changed; stop the consumers of the group (it has 1 member), then add --execute to apply"
        )
    emptied = good(broker, "group", "describe", group).splitlines()
    assert emptied[2:4] == ["state     Empty, 0 members", "lag       2 records"]
    assert emptied[-1].split() == [topic, "0", "1", "3", "2", "-", "-"]
    assert good(broker, "group", "delete", group) == f"deleted group {group}\n"
    assert group not in good(broker, "group", "list")
    assert "does not exist" in rejection(broker, "group", "describe", group)


def test_offsets_are_shown_and_then_reset(broker: RunningBroker) -> None:
    good(broker, "topic", "create", "moved", "--partitions", "2")
    write(broker, "moved", 0, 5)
    write(broker, "moved", 1, 2)
    reset = ["group", "reset-offsets", "movers"]
    assert rejection(broker, *reset, "--to-latest") == (
        "tidelog group reset-offsets: group movers does not exist; `tidelog group list` lists the groups; a new one"
        " needs --topic"
    )
    done = good(broker, *reset, "--topic", "moved", "--to-offset", "3", "--execute")
    assert cells(done) == [
        ["TOPIC", "PARTITION", "COMMITTED", "NEW"],
        ["moved", "0", "-", "3"],
        ["moved", "1", "-", "2"],
        ["group", "movers", "continues", "from", "these", "offsets"],
    ]
    for flags, expected in (
        (["--to-earliest"], ["0", "0"]),
        (["--to-latest"], ["5", "2"]),
        (["--shift-by", "-1"], ["2", "1"]),
        (["--shift-by", "100"], ["5", "2"]),
        (["--to-time", "2020-01-31T12:00"], ["0", "0"]),
        (["--to-time", "1950-01-31"], ["0", "0"]),
        (["--to-time", "2120-01-31T12:00:00Z"], ["5", "2"]),
        (["--to-offset", "1", "--topic", "moved:1"], ["1"]),
    ):
        shown = good(broker, *reset, *flags)
        assert [row[-1] for row in cells(shown)[1:-1]] == expected
        assert shown.splitlines()[-1] == "no offset was changed; add --execute to apply"
    assert [row[2] for row in cells(good(broker, "group", "describe", "movers"))[-2:]] == ["3", "2"]


def test_what_cannot_be_done_to_a_group_is_reported_in_one_sentence(broker: RunningBroker) -> None:
    good(broker, "topic", "create", "known", "--partitions", "2")
    unknown = "group nobody does not exist; `tidelog group list` lists the groups"
    for action in ("describe", "delete"):
        assert rejection(broker, "group", action, "nobody") == f"tidelog group {action}: {unknown}"
    assert rejection(broker, "group", "reset-offsets", "nobody", "--to-latest") == (
        f"tidelog group reset-offsets: {unknown}; a new one needs --topic"
    )
    reset = ["group", "reset-offsets", "nobody", "--to-latest", "--topic"]
    assert good(broker, *reset, "known").splitlines()[-1] == (
        "no offset was changed; group nobody does not exist yet: add --execute to create it"
    )
    assert rejection(broker, *reset, "nowhere") == (
        "tidelog group reset-offsets: topic nowhere does not exist; `tidelog topic list` lists the topics"
    )
    assert rejection(broker, *reset, "known:2") == (
        "tidelog group reset-offsets: topic known has no partition 2; it has 2 partitions, numbered from 0"
    )
    assert "nobody" not in good(broker, "group", "list")


@contextmanager
def open_transaction(broker: RunningBroker, transactional_id: str, topic: str) -> Iterator[Producer]:
    """A producer that has written one record to partition 0, and has not ended its transaction."""
    producer = Producer({"bootstrap.servers": broker.address, "transactional.id": transactional_id, "log_level": 0})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce(topic, b"perhaps", partition=0)
    assert producer.flush(WAIT_S) == 0
    yield producer


def test_open_transaction_is_found_and_aborted(broker: RunningBroker) -> None:
    good(broker, "topic", "create", "payments", "--partitions", "1")
    with open_transaction(broker, "payer", "payments") as producer:
        listed = good(broker, "transaction", "list", "--state", "ongoing").splitlines()
        assert listed[0].split() == ["TRANSACTIONAL", "ID", "PRODUCER", "ID", "STATE", "COORDINATOR"]
        ((_, producer_id, _, _),) = [line.split() for line in listed[1:]]
        described = good(broker, "transaction", "describe", "payer").splitlines()
        assert described[:4] == [
            "transactional id  payer",
            "state             Ongoing",
            f"producer          id {producer_id}, epoch 0",
            "timeout           60 s",
        ]
        assert described[4].startswith("open since        20")
        assert described[5] == "partitions        payments-0"
        hanging = ["transaction", "abort", "--partition", "payments:0", "--producer-id", producer_id]
        assert rejection(broker, *hanging) == (
            f"tidelog transaction abort: the transaction of producer {producer_id} on payments-0 is not hanging:"
            " it belongs to payer (Ongoing); use `tidelog transaction abort payer`"
        )
        assert good(broker, "transaction", "abort", "payer") == (
            "fenced the producer of payer; its open transaction was aborted\n"
        )
        with pytest.raises(KafkaException, match="fenced"):
            producer.commit_transaction(WAIT_S)
    assert good(broker, "transaction", "list", "--state", "Ongoing") == "no transactional ids in this state\n"
    assert good(broker, "transaction", "abort", "payer") == (
        "fenced the producer of payer; it had no transaction open\n"
    )
    described = good(broker, "transaction", "describe", "payer").splitlines()
    assert described[4:] == ["open since        -", "partitions        -"]


def test_transaction_that_has_ended_is_not_shown_as_open(broker: RunningBroker) -> None:
    good(broker, "topic", "create", "refunds", "--partitions", "1")
    with open_transaction(broker, "refunder", "refunds") as producer:
        producer.commit_transaction(WAIT_S)
    described = good(broker, "transaction", "describe", "refunder").splitlines()
    assert described[1] == "state             CompleteCommit"
    assert described[4:] == ["open since        -", "partitions        -"]


def leave_hanging_transaction(broker: RunningBroker, topic: str) -> None:
    """A record of a transaction that no coordinator has ever heard of."""
    batch = wire.transactional(wire.record_batch([b"lost"], int(time.time() * 1000)), MADE_UP_PRODUCER_ID, 0, 0)
    with wire.Connection(int(broker.address.rpartition(":")[2])) as connection:
        response = connection.ask(wire.produce_frame(topic, {0: batch}, transactional_id="nobody-knows"))
    assert wire.produce_error(response) == wire.ERROR_NONE


def test_hanging_transaction_is_ended_by_hand(broker: RunningBroker) -> None:
    good(broker, "topic", "create", "stuck", "--partitions", "1")
    abort = ["transaction", "abort", "--partition", "stuck:0"]
    nobody = "tidelog transaction abort: no producer has an open transaction on stuck-0"
    assert rejection(broker, *abort) == nobody
    leave_hanging_transaction(broker, "stuck")
    assert rejection(broker, *abort) == (
        "tidelog transaction abort: choose a producer with --producer-id; producers with an open transaction on"
        " stuck-0:"
        f" {MADE_UP_PRODUCER_ID}"
    )
    assert rejection(broker, *abort, "--producer-id", "7") == (
        "tidelog transaction abort: producer 7 has no open transaction on stuck-0;"
        f" producers that have one: {MADE_UP_PRODUCER_ID}"
    )
    ended = good(broker, *abort, "--producer-id", str(MADE_UP_PRODUCER_ID))
    assert ended == f"aborted the transaction of producer {MADE_UP_PRODUCER_ID} on stuck-0\n"
    assert rejection(broker, *abort) == nobody


def test_what_cannot_be_done_to_a_transaction_is_reported_in_one_sentence(broker: RunningBroker) -> None:
    unknown = "transactional id nobody does not exist; `tidelog transaction list` lists the transactional ids"
    for action in ("describe", "abort"):
        assert rejection(broker, "transaction", action, "nobody") == f"tidelog transaction {action}: {unknown}"
    assert rejection(broker, "transaction", "abort", "--partition", "nowhere:0") == (
        "tidelog transaction abort: topic nowhere does not exist; `tidelog topic list` lists the topics"
    )
    assert rejection(broker, "transaction", "abort", "payer", "--producer-id", "7") == (
        "tidelog transaction abort: --producer-id needs --partition; a transactional id has only one producer"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["group"], "ACTION"),
        (["group", "describe", ""], "the name must not be empty"),
        (["group", "reset-offsets", "g"], "--to-earliest --to-latest --to-offset --to-time --shift-by is required"),
        (["group", "reset-offsets", "g", "--to-latest", "--to-earliest"], "not allowed with argument --to-latest"),
        (["group", "reset-offsets", "g", "--to-offset", "-1"], "expected an offset of at least 0, found '-1'"),
        (["group", "reset-offsets", "g", "--to-time", "soon"], "expected a time such as 2026-01-31T12:00"),
        (["group", "reset-offsets", "g", "--shift-by", "x"], "expected a number of records such as -100, found 'x'"),
        (
            ["group", "reset-offsets", "g", "--to-latest", "--topic", "t:"],
            "expected TOPIC or TOPIC:0,1 (partitions 0 and 1), found 't:'",
        ),
        (["transaction", "list", "--state", "odd"], "expected one of Empty, Ongoing, PrepareCommit"),
        (["transaction", "abort"], "one of the arguments TRANSACTIONAL_ID --partition is required"),
        (["transaction", "abort", "--partition", "t"], "expected TOPIC:N, found 't'"),
    ],
)
def test_mistake_in_a_flag_is_refused_before_anybody_is_asked(arguments: list[str], said: str) -> None:
    ended = tidelog(*arguments)
    assert ended.returncode == 2
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr
