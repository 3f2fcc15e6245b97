"""Tidelog takes over groups and transactions that Apache Kafka has coordinated: members, offsets, and what was open."""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from compat.answers.conversation import Conversation, differences
from compat.answers.writers import described
from compat.written_by_kafka import FEW_INTERNAL_PARTITIONS, copy_log_dir, read_partitions
from tests.clients.broker import TidelogProcess
from tests.clients.confluent_driver import ConfluentDriver
from tests.clients.driver import GroupMember, MemberOptions, ProducerOptions, Record, Transactions, wait_until
from tidelog.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from tidelog.protocol.messages.describe_groups import DescribeGroupsRequest
from tidelog.protocol.messages.describe_transactions import DescribeTransactionsResponse
from tidelog.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tidelog.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from tidelog.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tools.apache_kafka import KAFKA_4, ApacheKafka

TOPIC = "read"
INTERNAL = ("__consumer_offsets", "__transaction_state")
CLASSIC, LEFT, BY_HAND, ASSIGNED, IN_TRANSACTION = "classic", "left", "by-hand", "assigned", "in-transaction"
COMMITTED, ABORTED, OPEN = "committed", "aborted", "open"
RECORDS = 10


class Fillers:
    """Clients that stay connected until Kafka has ended."""

    def __init__(self, bootstrap: str) -> None:
        self._driver = ConfluentDriver(bootstrap)
        self._members: list[GroupMember] = []
        self._writers: list[Transactions] = []

    def fill_groups(self, version: str) -> None:
        self._driver.create_topic(TOPIC, 1, {})
        self._driver.produce(TOPIC, [Record(b"%d" % number) for number in range(RECORDS)], ProducerOptions())
        self._read_in(CLASSIC, MemberOptions(instance_id="one"))
        self._read_in(LEFT, MemberOptions())
        self._members.pop().close()
        if version == KAFKA_4:
            self._read_in(ASSIGNED, MemberOptions(is_assigned_by_broker=True))
        self._driver.commit_offset(BY_HAND, TOPIC, 0, 4)

    def _read_in(self, group: str, options: MemberOptions) -> None:
        member = self._driver.join_group(group, TOPIC, options)
        self._members.append(member)
        wait_until(lambda: bool(member.poll()), f"a member of {group} reads")
        member.commit()

    def fill_transactions(self) -> None:
        for transactional_id in (COMMITTED, ABORTED, OPEN):
            writer = self._driver.open_transactions(transactional_id)
            self._writers.append(writer)
            writer.begin()
            writer.send(TOPIC, 0, [Record(transactional_id.encode())])
            writer.send_offset(f"{IN_TRANSACTION}-{transactional_id}", TOPIC, 0, 7)
        self._writers[0].commit()
        self._writers[1].abort()


def transcript_of(bootstrap: str, groups: Sequence[str]) -> dict[str, Any]:
    """What a coordinator says of all groups and transactions."""
    talk = Conversation(bootstrap)
    try:
        talk.ask("groups", ListGroupsRequest(), 5)
        talk.ask("members of classic groups", DescribeGroupsRequest(groups=list(groups)), 5)
        if ASSIGNED in groups:
            talk.ask("members of consumer groups", ConsumerGroupDescribeRequest(group_ids=list(groups)), 0)
        for group in groups:
            talk.ask(f"offsets of {group}", offsets_of(group, is_stable=False), 9)
            talk.ask(f"stable offsets of {group}", offsets_of(group, is_stable=True), 9)
        talk.ask("transactions", described(COMMITTED, ABORTED, OPEN), 0)
        talk.ask("list of transactions", ListTransactionsRequest(), 0)
        return talk.transcript()
    finally:
        talk.close()


def is_ended(bootstrap: str) -> bool:
    """Their markers are written after the producers have their answers."""
    talk = Conversation(bootstrap)
    try:
        found = talk.ask_quietly(described(COMMITTED, ABORTED), 0, DescribeTransactionsResponse).transaction_states
        return all(each.transaction_state.startswith("Complete") for each in found)
    finally:
        talk.close()


def is_loaded(bootstrap: str) -> bool:
    talk = Conversation(bootstrap)
    try:
        groups = talk.ask_quietly(ListGroupsRequest(), 5, ListGroupsResponse)
        transactions = talk.ask_quietly(ListTransactionsRequest(), 0, ListTransactionsResponse)
        return groups.error_code == transactions.error_code == 0 and bool(groups.groups)
    finally:
        talk.close()


def offsets_of(group: str, *, is_stable: bool) -> OffsetFetchRequest:
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=None)], require_stable=is_stable)


def check(version: str, end: Callable[[ApacheKafka], None]) -> list[str]:
    """Kafka coordinates, ends, and Tidelog goes on with the same directory: what is not the same."""
    settings = FEW_INTERNAL_PARTITIONS | {"group.initial.rebalance.delay.ms": "0"}
    groups = [CLASSIC, LEFT, BY_HAND, *(f"{IN_TRANSACTION}-{each}" for each in (COMMITTED, ABORTED, OPEN))]
    groups += [ASSIGNED] if version == KAFKA_4 else []
    with tempfile.TemporaryDirectory(prefix="compat-coordinators-") as scratch:
        kafka = ApacheKafka(version, 0, Path(scratch) / "kafka", heap="512m", settings=settings)
        kafka.start()
        # A second life: the coordinator's epoch is then no longer the first.
        kafka.stop()
        kafka.start()
        try:
            fillers = Fillers(kafka.bootstrap)
            fillers.fill_groups(version)
            fillers.fill_transactions()
            wait_until(lambda: is_ended(kafka.bootstrap), "the transactions have ended")
            theirs = transcript_of(kafka.bootstrap, groups)
            end(kafka)
        finally:
            kafka.kill()
        copy_log_dir(kafka.log_dir, Path(scratch) / "tidelog" / "data", (TOPIC, *INTERNAL))
        return take_over(Path(scratch) / "tidelog", settings, theirs, groups)


def take_over(directory: Path, settings: dict[str, str], theirs: dict[str, Any], groups: Sequence[str]) -> list[str]:
    broker = TidelogProcess(directory, settings)
    broker.start()
    try:
        wait_until(lambda: is_loaded(broker.bootstrap), "the coordinators are loaded")
        ours = transcript_of(broker.bootstrap, groups)
        found = [
            f"{question}: {fault}" for question in theirs for fault in differences(theirs[question], ours.get(question))
        ]
        found += goes_on(broker.bootstrap)
        broker.stop()
    finally:
        broker.kill()
    return found


def goes_on(bootstrap: str) -> list[str]:
    """What was open is aborted by its producer's successor, and groups read on where they were."""
    driver = ConfluentDriver(bootstrap)
    try:
        with driver.open_transactions(OPEN) as writer:
            writer.begin()
            writer.send(TOPIC, 0, [Record(b"next")])
            writer.commit()
        found = [value for _, _, _, value, _ in read_partitions(bootstrap, [(TOPIC, 0)], "read_committed")[TOPIC, 0]]
        expected = [*(b"%d" % number for number in range(RECORDS)), b"committed", b"next"]
        wrong = [] if found == expected else [f"read_committed: {found} instead of {expected}"]
        with_open = driver.committed_offset(f"{IN_TRANSACTION}-{OPEN}", TOPIC, 0)
        wrong += [] if with_open is None else [f"offset {with_open} of a transaction that was aborted"]
        member = driver.join_group(LEFT, TOPIC, MemberOptions())
        taken: list[bytes | None] = []

        def reads_on() -> bool:
            taken.extend(record.value for _, record in member.poll())
            return bool(taken) and taken[-1] == b"next"

        wait_until(reads_on, "the group reads on")
        member.close()
        return wrong if taken == [b"committed", b"next"] else [*wrong, f"the group goes on with {taken}"]
    finally:
        driver.close()
