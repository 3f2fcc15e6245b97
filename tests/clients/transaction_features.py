"""Features of a transactional client."""

import itertools
import time
from concurrent.futures import ThreadPoolExecutor

from tests.clients.driver import Capability, Consumed, ProducerOptions, Record, Rejected, wait_until
from tests.clients.features import Workbench, feature, numbered
from tidelog.replicated.partition_keys import partition_for

TRANSACTIONS_TOPIC = "__transaction_state"

_id_numbers = itertools.count()


def new_id() -> str:
    return f"x{time.time_ns():x}-{next(_id_numbers)}"


def values(consumed: list[Consumed]) -> list[bytes | None]:
    return [one.value for one in consumed]


@feature("transaction-commit", Capability.TRANSACTIONS)
def commits_to_several_partitions(bench: Workbench) -> None:
    topic = bench.new_topic(partitions=2)
    records = numbered(10)
    with bench.client.open_transactions(new_id()) as writer:
        writer.begin()
        for partition in (0, 1):
            writer.send(topic, partition, records)
        assert values(bench.helper.consume(topic, 1, 0, 10, "read_uncommitted")) == [one.value for one in records]
        writer.commit()
        for partition in (0, 1):
            assert values(bench.client.consume(topic, partition, 0, 10)) == [one.value for one in records]


@feature("transaction-abort", Capability.TRANSACTIONS)
def takes_back_what_it_aborts(bench: Workbench) -> None:
    topic = bench.new_topic()
    expected = []
    with bench.client.open_transactions(new_id()) as writer:
        for number in range(6):
            writer.begin()
            records = [Record(b"%d-%d" % (number, each)) for each in range(4)]
            writer.send(topic, 0, records)
            if number % 2:
                writer.abort()
            else:
                writer.commit()
                expected += [record.value for record in records]
    bench.helper.produce(topic, [Record(b"plain")], ProducerOptions())
    assert values(bench.client.consume(topic, 0, 0, 13)) == [*expected, b"plain"]
    assert len(bench.client.consume(topic, 0, 0, 25, "read_uncommitted")) == 25


@feature("transaction-fencing", Capability.TRANSACTIONS)
def fences_its_predecessor(bench: Workbench) -> None:
    topic = bench.new_topic()
    transactional_id = new_id()
    with bench.client.open_transactions(transactional_id) as first:
        first.begin()
        first.send(topic, 0, [Record(b"of the first")])
        with bench.client.open_transactions(transactional_id) as second:
            second.begin()
            second.send(topic, 0, [Record(b"of the second")])
            rejections: list[Rejected] = []
            try:
                first.commit()
            except Rejected as rejection:
                rejections.append(rejection)
            assert rejections, "the first producer was replaced, and could commit"
            second.commit()
            assert values(bench.client.consume(topic, 0, 0, 1)) == [b"of the second"]


@feature("transaction-offsets", Capability.TRANSACTIONS)
def commits_offsets_with_its_records(bench: Workbench) -> None:
    topic, group = bench.new_topic(), f"group-{new_id()}"
    with bench.client.open_transactions(new_id()) as writer:
        for offset in (5, 7, 9):
            writer.begin()
            writer.send(topic, 0, [Record(b"%d" % offset)])
            writer.send_offset(group, topic, 0, offset)
            if offset == 7:
                writer.abort()
            else:
                writer.commit()
            expected = 5 if offset == 7 else offset
            wait_until(
                lambda expected=expected: bench.client.committed_offset(group, topic, 0) == expected,  # type: ignore[misc]
                f"offset {expected} is committed",
            )
    assert values(bench.client.consume(topic, 0, 0, 2)) == [b"5", b"9"]


@feature("transaction-through-leader-kill", Capability.TRANSACTIONS, needs_cluster=True)
def writes_exactly_once_while_the_leader_is_killed(bench: Workbench) -> None:
    writes_exactly_once_while_a_broker_is_killed(bench, is_coordinator=False)


@feature(
    "transaction-through-coordinator-kill",
    Capability.TRANSACTIONS,
    Capability.REPLACE_TRANSACTION_COORDINATOR,
    needs_cluster=True,
)
def writes_exactly_once_while_the_coordinator_is_killed(bench: Workbench) -> None:
    writes_exactly_once_while_a_broker_is_killed(bench, is_coordinator=True)


def writes_exactly_once_while_a_broker_is_killed(bench: Workbench, *, is_coordinator: bool) -> None:
    """Either the leader of the partition that is written to or the coordinator of the transactions."""
    topic = bench.new_topic(partitions=3, configs={"min.insync.replicas": "2"})
    transactional_id = new_id()
    expected: list[bytes | None] = []

    with bench.client.open_transactions(transactional_id) as writer, ThreadPoolExecutor(1) as others:
        bench.wait_for_replicas(TRANSACTIONS_TOPIC)
        coordinators = bench.helper.describe_topic(TRANSACTIONS_TOPIC)
        number = partition_for(transactional_id, len(coordinators))
        partition = next(
            partition
            for partition, described in bench.helper.describe_topic(topic).items()
            if described.leader != coordinators[number].leader
        )

        def write() -> None:
            records = [Record(b"%d" % each) for each in range(len(expected), len(expected) + 5)]
            writer.begin()
            writer.send(topic, partition, records)
            writer.commit()
            expected.extend(record.value for record in records)

        for _ in range(5):
            write()
        victim = (TRANSACTIONS_TOPIC, number) if is_coordinator else (topic, partition)
        killing = others.submit(bench.kill_leader_and_start_it_again, *victim)
        while not killing.done():
            write()
        killing.result()
        write()
    bench.helper.produce(topic, [Record(b"end")], ProducerOptions(), partition)
    assert values(bench.helper.consume(topic, partition, 0, len(expected) + 1)) == [*expected, b"end"]
    bench.wait_for_replicas(topic)
