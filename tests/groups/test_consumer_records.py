"""Records of consumer groups, byte by byte as Kafka 4.3.1 reads and writes them."""

import pytest

from tidelog.groups.consumer import record_keys, records
from tidelog.groups.consumer.members import ClassicMember, Member, MemberState
from tidelog.groups.consumer.records import ResolvedRegex
from tidelog.protocol.errors import MalformedMessage, UnencodableMessage
from tidelog.protocol.internal.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    TopicPartitions,
)
from tidelog.protocol.internal.versioned import decode_versioned, encode_versioned
from tidelog.protocol.structs import Message
from tidelog.replicated.machine import Effects

TOPIC_ID = (1).to_bytes(16, "big")
NOW_MS = 1_700_000_000_000
SUBSCRIPTION = bytes.fromhex("000100000001000161ffffffff00000000")
NEW = Member(
    member_id="m2",
    client_id="client",
    client_host="/127.0.0.1",
    subscribed_topics=frozenset({"a"}),
    rebalance_timeout_ms=10_000,
)
CLASSIC = Member(
    member_id="m1",
    client_id="client",
    client_host="/127.0.0.1",
    subscribed_topics=frozenset({"a"}),
    rebalance_timeout_ms=20_000,
    classic=ClassicMember(10_000, (("cooperative", SUBSCRIPTION),)),
    epoch=1,
    previous_epoch=1,
    assigned={TOPIC_ID: {0: 1, 1: 1, 2: 1, 3: 1}},
)


def written(write: str, *arguments: object) -> tuple[str, str]:
    effects = Effects(NOW_MS)
    getattr(records, write)(effects, "g", *arguments)
    (record,) = effects.records
    assert record.value is not None
    return record.key.hex(), record.value.hex()


@pytest.mark.parametrize(
    ("write", "arguments", "key", "value"),
    [
        ("write_group_epoch", (1, 0), "0003000167", "00000000000100"),
        ("write_group_epoch", (5, -7), "0003000167", "000000000005010008fffffffffffffff9"),
        (
            "write_member",
            (NEW,),
            "000500016700026d32",
            "0000000007636c69656e740b2f3132372e302e302e3102026101000027100001000100",
        ),
        (
            "write_member",
            (CLASSIC,),
            "000500016700026d31",
            "0000000007636c69656e740b2f3132372e302e302e310202610100004e20000100260100002710020c636f6f7065726174697665"
            "12000100000001000161ffffffff000000000000",
        ),
        ("write_assignment_epoch", (1,), "0006000167", "0000000000010100080000018bcfe56800"),
        (
            "write_target",
            ("m1", {TOPIC_ID: frozenset(range(4))}),
            "000700016700026d31",
            "0000020000000000000000000000000000000105000000000000000100000002000000030000",
        ),
        (
            "write_current_assignment",
            (CLASSIC,),
            "000800016700026d31",
            "0000000000010000000100020000000000000000000000000000000105000000000000000100000002000000030100110500000001"
            "0000000100000001000000010100",
        ),
        (
            "write_regex",
            ("a.*", ResolvedRegex(frozenset({"a"}), 0, NOW_MS)),
            "00100001670003612e2a",
            "000002026100000000000000000000018bcfe5680000",
        ),
    ],
)
def test_records_are_kafkas(write: str, arguments: tuple[object, ...], key: str, value: str) -> None:
    assert written(write, *arguments) == (key, value)


def test_a_member_without_classic_metadata_says_so() -> None:
    """Kafka takes what is not there for an empty struct: then the member would be a classic one."""
    value = ConsumerGroupMemberMetadataValue(client_id="c", client_host="h", classic_member_metadata=None)
    data = encode_versioned(value, 0)
    assert data.endswith(b"\x01\x00\x01\x00")
    assert decode_versioned(ConsumerGroupMemberMetadataValue, data).classic_member_metadata is None


def test_records_of_older_versions_have_no_epochs_of_partitions() -> None:
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=7, assigned_partitions=[TopicPartitions(topic_id=TOPIC_ID, partitions=[0, 3])]
    )
    data = encode_versioned(value, 0)
    read = decode_versioned(ConsumerGroupCurrentMemberAssignmentValue, data)
    assert records.holdings_of(read.assigned_partitions, 7) == {TOPIC_ID: {0: 7, 3: 7}}


def test_states_have_kafkas_numbers() -> None:
    assert [state.value for state in MemberState] == [0, 1, 2]
    assert records.member_state_of(127) is MemberState.UNRELEASED_PARTITIONS


# ---- keys, which are encoded by hand


@pytest.mark.parametrize("name", ["", "g", "größer", "x" * 300])
@pytest.mark.parametrize(
    ("declared", "version", "has_second_name"),
    [
        (ConsumerGroupMetadataKey, record_keys.GROUP, False),
        (ConsumerGroupMemberMetadataKey, record_keys.MEMBER, True),
        (ConsumerGroupTargetAssignmentMetadataKey, record_keys.ASSIGNMENT_EPOCH, False),
        (ConsumerGroupTargetAssignmentMemberKey, record_keys.TARGET, True),
        (ConsumerGroupCurrentMemberAssignmentKey, record_keys.CURRENT_ASSIGNMENT, True),
        (ConsumerGroupRegularExpressionKey, record_keys.EXPRESSION, True),
    ],
)
def test_keys_are_the_declared_ones(declared: type[Message], version: int, has_second_name: bool, name: str) -> None:
    names = (f"group-{name}", name) if has_second_name else (name,)
    key = encode_versioned(declared(*names), version)
    assert record_keys.encode_key(version, *names) == key
    assert record_keys.decode_key(version, key) == (names if has_second_name else (name, ""))


def test_names_that_do_not_fit_into_a_key_are_refused() -> None:
    for names in (("x" * 2**15, "m"), ("g", "x" * 2**15)):
        with pytest.raises(UnencodableMessage):
            record_keys.encode_key(record_keys.MEMBER, *names)


@pytest.mark.parametrize(
    "key",
    [
        "0005",  # no group
        "00050001",  # the group is cut off
        "0005000167",  # no member
        "000500016700026d",  # the member is cut off
        "000500016700016d32",  # something follows
        "0005ffff00026d32",  # a group of length -1
        "00050001670001ff",  # not UTF-8
        "0005000167ffff",  # a member of length -1
    ],
)
def test_malformed_keys_are_refused(key: str) -> None:
    with pytest.raises(MalformedMessage):
        record_keys.decode_key(record_keys.MEMBER, bytes.fromhex(key))
