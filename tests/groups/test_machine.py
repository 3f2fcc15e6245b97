"""All parts of a partition's groups together, and the proof that loading its records gives what was there before."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.groups.shard_of_groups import DAY_MS, GROUP, TOPIC, Clients, a_shard
from tidelog.errors import GroupIdNotFound, NonEmptyGroup, NotEnoughReplicas, UnsupportedVersion
from tidelog.groups.offset_records import (
    CommittedOffset,
    check_value,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from tidelog.protocol.errors import MalformedMessage, UnencodableMessage
from tidelog.protocol.internal.offset_records import OffsetCommitKey, OffsetCommitValue
from tidelog.protocol.internal.versioned import encode_versioned
from tidelog.replicated.entries import batch_of
from tidelog.replicated.machine import Producer, StateRecord
from tidelog.replicated.memory_shard import MemoryReply
from tidelog.types import ZERO_UUID

FIRST = Producer(1, 0)
DEFAULT_MAX_MESSAGE_BYTES = 1_048_588


@pytest.fixture
def clients() -> Clients:
    return Clients(a_shard())


class TestGroups:
    def test_a_group_is_described_with_its_members(self, clients: Clients) -> None:
        member, _ = clients.join(TOPIC)
        described = clients.describe()
        assert (described.error_code, described.group_state, described.protocol_type) == (0, "Stable", "consumer")
        assert described.protocol_data == "range"
        assert [(each.member_id, each.client_id, each.member_assignment) for each in described.members] == [
            (member, "client", b"yours")
        ]

    def test_a_group_with_thousands_of_offsets_is_deleted_in_one_message(self, clients: Clients) -> None:
        for partition in range(15_000):
            clients.shard.machine.offsets.committed.put(GROUP, TOPIC * 10, partition, b"")
        clients.commit(1)
        effects = clients.shard.perform(lambda machine, effects: machine.delete(GROUP, MemoryReply(), effects))
        assert len(effects.records) == 15_002
        assert len(batch_of(effects)) < DEFAULT_MAX_MESSAGE_BYTES
        assert clients.listed() == {}

    def test_a_group_that_is_not_there_is_dead_to_older_clients(self, clients: Clients) -> None:
        assert (clients.describe(version=5).error_code, clients.describe(version=5).group_state) == (0, "Dead")
        described = clients.describe(version=6)
        assert (described.error_code, described.group_state) == (GroupIdNotFound.code, "Dead")
        assert described.error_message == "Group readers not found."

    def test_a_deleted_group_leaves_nothing(self, clients: Clients) -> None:
        member, generation = clients.join(TOPIC)
        clients.commit(5, member=member, generation=generation)
        clients.commit_in_transaction(FIRST, 6, partition=1)
        clients.leave(member)
        assert clients.delete_group() == 0
        clients.shard.end_transaction(FIRST, is_committed=True)
        for each in (clients, Clients(clients.shard.reloaded())):
            assert each.listed() == {}
            assert each.fetch(0, 1, require_stable=True) == [-1, -1]

    def test_a_group_with_members_is_not_deleted(self, clients: Clients) -> None:
        clients.join(TOPIC)
        with pytest.raises(NonEmptyGroup):
            clients.delete_group()

    def test_a_group_that_is_not_there_cannot_be_deleted(self, clients: Clients) -> None:
        with pytest.raises(GroupIdNotFound):
            clients.delete_group()

    def test_a_deletion_that_cannot_be_written_deletes_nothing(self, clients: Clients) -> None:
        clients.commit(5)
        clients.shard.rejection = NotEnoughReplicas()
        with pytest.raises(NotEnoughReplicas):
            clients.delete_group()
        assert clients.fetch() == [5]

    def test_groups_of_each_kind_are_listed(self, clients: Clients) -> None:
        clients.commit(5)
        clients.join(TOPIC, group="members")
        assert clients.listed() == {GROUP: ("classic", "", "Empty"), "members": ("classic", "consumer", "Stable")}


class TestRecords:
    def test_an_offset_is_written_as_kafka_writes_it(self) -> None:
        committed = CommittedOffset(5, 2, "note", 1_700_000_000_000, topic_id=bytes(range(16)))
        assert encode_key("readers", "orders", 3).hex() == "00010007" + b"readers".hex() + "0006" + b"orders".hex() + (
            "00000003"
        )
        value = encode_value(committed)
        assert value.hex() == (
            "000400000000000000050000000205" + b"note".hex() + "0000018bcfe56800010010" + bytes(range(16)).hex()
        )
        assert decode_value(value) == committed

    def test_an_offset_with_a_time_to_expire_has_the_version_with_that_field(self) -> None:
        committed = CommittedOffset(5, -1, "", 1_700_000_000_000, 1_700_000_000_001)
        assert encode_value(committed).hex() == "0001000000000000000500000000018bcfe568000000018bcfe56801"
        assert decode_value(encode_value(committed)) == committed

    @pytest.mark.parametrize(
        "record",
        [
            StateRecord(b"", b"x"),
            StateRecord(b"\0\x63unknown", b"x"),
            StateRecord(b"\0\1\0\5ab", b"x"),
            StateRecord(encode_key("g", "t", 0), b"\0\x09future"),
            StateRecord(encode_key("g", "t", 0), b"\0\4short"),
        ],
    )
    def test_records_that_cannot_be_read_are_skipped(
        self, clients: Clients, record: StateRecord, caplog: pytest.LogCaptureFixture
    ) -> None:
        clients.shard.machine.replay(record, None)
        assert clients.listed() == {}
        assert "skipped" in caplog.text

    @given(
        group=st.text(max_size=9),
        topic=st.text(max_size=9),
        partition=st.integers(0, 2**31 - 1),
        offset=st.integers(-(2**63), 2**63 - 1),
        leader_epoch=st.integers(-1, 2**31 - 1),
        metadata=st.sampled_from(["", "note"]),
        topic_id=st.sampled_from([ZERO_UUID, bytes(range(16))]),
    )
    def test_what_is_written_out_is_what_the_declared_messages_say(
        self, group: str, topic: str, partition: int, offset: int, leader_epoch: int, metadata: str, topic_id: bytes
    ) -> None:
        key = OffsetCommitKey(group=group, topic=topic, partition=partition)
        assert encode_key(group, topic, partition) == encode_versioned(key, 1)
        value = OffsetCommitValue(
            offset=offset, leader_epoch=leader_epoch, metadata=metadata, commit_timestamp=7, topic_id=topic_id
        )
        committed = CommittedOffset(offset, leader_epoch, metadata, 7, topic_id=topic_id)
        assert encode_value(committed) == encode_versioned(value, 4)

    def test_a_name_that_no_record_can_hold_is_refused(self) -> None:
        with pytest.raises(UnencodableMessage):
            encode_key("g" * 2**15, "t", 0)

    @given(group=st.text(max_size=9), topic=st.text(max_size=9), partition=st.integers(0, 2**31 - 1))
    def test_a_key_is_read_as_it_was_written(self, group: str, topic: str, partition: int) -> None:
        key = encode_key(group, topic, partition)
        assert decode_key(key) == (group, topic, partition)
        for end in range(len(key)):
            with pytest.raises(MalformedMessage):
                decode_key(key[:end])

    @given(
        metadata=st.sampled_from(["", "note"]),
        topic_id=st.sampled_from([bytes(16), bytes(range(16))]),
        cut=st.integers(0, 44),
        changes=st.lists(st.tuples(st.integers(0, 44), st.integers(0, 255)), max_size=2),
    )
    def test_a_value_that_passes_can_be_read_later(
        self, metadata: str, topic_id: bytes, cut: int, changes: list[tuple[int, int]]
    ) -> None:
        value = bytearray(encode_value(CommittedOffset(5, 2, metadata, 1_700_000_000_000, topic_id=topic_id))[:cut])
        for position, byte in changes:
            if position < len(value):
                value[position] = byte
        try:
            check_value(bytes(value))
        except (MalformedMessage, UnsupportedVersion):
            with pytest.raises((MalformedMessage, UnsupportedVersion)):
                decode_value(bytes(value))
        else:
            decode_value(bytes(value))

    def test_records_of_old_brokers_are_read(self, clients: Clients) -> None:
        value = bytes.fromhex("000300000000000000050000000200000000018bcfe56800")
        clients.shard.machine.replay(StateRecord(encode_key(GROUP, TOPIC, 0), value), None)
        assert clients.fetch() == [5]


GROUPS = st.sampled_from(["a", "b"])
PLACES = st.tuples(st.sampled_from(["t", "u"]), st.integers(0, 1))
PRODUCERS = st.sampled_from([Producer(1, 0), Producer(2, 0)])
TOPIC_IDS = st.sampled_from([bytes(16), bytes(15) + b"\1", bytes(15) + b"\2"])


class OffsetsUnderTest(RuleBasedStateMachine):
    """Whatever happens: a coordinator that loads the records answers as the one that wrote them."""

    def __init__(self) -> None:
        super().__init__()
        self.clients = Clients(a_shard())

    @rule(group=GROUPS, place=PLACES, offset=st.integers(0, 99), topic_id=TOPIC_IDS, retention=st.sampled_from([-1, 1]))
    def commit(self, group: str, place: tuple[str, int], offset: int, topic_id: bytes, retention: int) -> None:
        retention_ms = -1 if retention < 0 else DAY_MS
        topic, partition = place
        self.clients.commit(
            offset, partition, group=group, topic=topic, topic_id=topic_id, retention_ms=retention_ms, version=4
        )

    @rule(producer=PRODUCERS, group=GROUPS, place=PLACES, offset=st.integers(100, 199))
    def commit_in_transaction(self, producer: Producer, group: str, place: tuple[str, int], offset: int) -> None:
        self.clients.commit_in_transaction(producer, offset, place[1], group=group, topic=place[0])

    @rule(producer=PRODUCERS, is_committed=st.booleans())
    def end_transaction(self, producer: Producer, is_committed: bool) -> None:
        self.clients.shard.end_transaction(producer, is_committed=is_committed)

    @rule(group=GROUPS, place=PLACES)
    def delete_offset(self, group: str, place: tuple[str, int]) -> None:
        if group in self.clients.listed():
            self.clients.delete_offset(place[1], group=group, topic=place[0])

    @rule(group=GROUPS)
    def delete_group(self, group: str) -> None:
        if group in self.clients.listed():
            self.clients.delete_group(group)

    @rule(topic_id=TOPIC_IDS)
    def delete_topic(self, topic_id: bytes) -> None:
        self.clients.shard.perform(lambda machine, effects: machine.on_topics_deleted({"t": topic_id}, effects))

    @rule(days=st.integers(1, 5))
    def wait(self, days: int) -> None:
        self.clients.shard.advance(days * DAY_MS)

    @invariant()
    def reloaded_is_live(self) -> None:
        reloaded = Clients(self.clients.shard.reloaded())
        assert _answers(reloaded) == _answers(self.clients)
        for producer in (Producer(1, 0), Producer(2, 0)):
            reloaded.shard.end_transaction(producer, is_committed=True)
        other = Clients(self.clients.shard.reloaded())
        for producer in (Producer(2, 0), Producer(1, 0)):
            other.shard.end_transaction(producer, is_committed=True)
        assert _answers(reloaded) == _answers(other), "the order in which transactions end makes no difference"


def _answers(clients: Clients) -> dict[str, Any]:
    return {
        group: (clients.fetch_all(group), clients.fetch_all(group, require_stable=True), clients.listed().get(group))
        for group in ("a", "b")
    }


TestOffsetsUnderTest = OffsetsUnderTest.TestCase
TestOffsetsUnderTest.settings = hypothesis_settings(max_examples=60, stateful_step_count=25)
