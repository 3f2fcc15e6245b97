"""Records of __transaction_state are those of Kafka 4.3, whose own code wrote the bytes here."""

import pytest

from tidelog.protocol.transaction_groups import PlainId
from tidelog.state_machine import IllegalTransition
from tidelog.transactions.states import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    STATES_BY_LABEL,
    TRANSITIONS,
    TransactionState,
)
from tidelog.transactions.transaction import Transaction, created, decode_key, decode_transaction, encode_key
from tidelog.types import TopicPartition

ID = "orders-7"
BORN_MS = 1_700_000_000_000
PARTITIONS = frozenset({TopicPartition("orders", 3)})

KAFKAS = {
    "new": "0001000000000000126700000000ea6000000000018bcfe56800ffffffffffffffff0100080000000000001267",
    "ongoing": "0001000000000000126700000000ea600102076f72646572730200000003000000018bcfe56801"
    "0000018bcfe56801020008000000000000126702020002",
    "prepared": "0001000000000000126700010000ea600202076f72646572730200000003000000018bcfe56802"
    "0000018bcfe56801020008000000000000126702020002",
    "exhausted": "000100000000000012677fff0000ea600302076f72646572730200000003000000018bcfe56802"
    "0000018bcfe5680103000800000000000012670108000000000000126802020002",
    "rotated": "0001000000000000126800000000ea6005010000018bcfe568030000018bcfe56801020008000000000000126702020002",
    "of an older client": "0001000000000000126700000000ea6004010000018bcfe568030000018bcfe568010100080000000000001267",
}


def _transaction(
    state: TransactionState,
    *,
    producer_id: int = 4711,
    epoch: int = 0,
    next_producer_id: int = -1,
    client_version: int = 2,
    age_ms: int = 0,
) -> Transaction:
    return Transaction(
        id=PlainId(ID),
        producer_id=producer_id,
        producer_epoch=epoch,
        timeout_ms=60_000,
        state=state,
        updated_at_ms=BORN_MS + age_ms,
        started_at_ms=-1 if state is EMPTY else BORN_MS + 1,
        partitions=PARTITIONS if state in (ONGOING, PREPARE_COMMIT, PREPARE_ABORT) else frozenset(),
        client_version=client_version,
        previous_producer_id=4711,
        next_producer_id=next_producer_id,
    )


OURS = {
    "new": _transaction(EMPTY, client_version=0),
    "ongoing": _transaction(ONGOING, age_ms=1),
    "prepared": _transaction(PREPARE_COMMIT, epoch=1, age_ms=2),
    "exhausted": _transaction(PREPARE_ABORT, epoch=32767, next_producer_id=4712, age_ms=2),
    "rotated": _transaction(COMPLETE_ABORT, producer_id=4712, age_ms=3),
    "of an older client": _transaction(COMPLETE_COMMIT, client_version=0, age_ms=3),
}


@pytest.mark.parametrize("name", KAFKAS)
def test_values_are_written_as_kafka_writes_them(name: str) -> None:
    assert OURS[name].encode().hex() == KAFKAS[name]


@pytest.mark.parametrize("name", KAFKAS)
def test_kafkas_values_are_read(name: str) -> None:
    assert decode_transaction(PlainId(ID), bytes.fromhex(KAFKAS[name])) == OURS[name]


def test_a_key_is_the_transactional_id() -> None:
    assert encode_key(ID).hex() == "000000086f72646572732d37"
    assert decode_key(encode_key(ID)) == ID


def test_a_transaction_goes_the_way_that_kafka_writes_down() -> None:
    new = created(PlainId(ID), 4711, 60_000, BORN_MS).initialized(None, 60_000, BORN_MS, None)
    ongoing = new.with_partitions(PARTITIONS, BORN_MS + 1, 2)
    prepared = ongoing.prepared(PREPARE_COMMIT, 2, BORN_MS + 2)
    assert [each.encode().hex() for each in (new, ongoing, prepared)] == [
        KAFKAS["new"],
        KAFKAS["ongoing"],
        KAFKAS["prepared"],
    ]


def test_what_only_we_write_down_is_read_again() -> None:
    group = _transaction(PREPARE_COMMIT)
    group = type(group)(
        **{name: getattr(group, name) for name in group.__slots__}
        | {"batch_id": 7, "winners": ("x", "y"), "last_epoch": 4}
    )
    assert decode_transaction(PlainId(ID), group.encode()) == group


def test_states_have_kafkas_numbers_and_names() -> None:
    assert {state.value: label for label, state in STATES_BY_LABEL.items()} == {
        0: "Empty",
        1: "Ongoing",
        2: "PrepareCommit",
        3: "PrepareAbort",
        4: "CompleteCommit",
        5: "CompleteAbort",
        6: "Dead",
        7: "PrepareEpochFence",
    }


def test_a_decision_cannot_be_turned_round() -> None:
    assert TRANSITIONS[PREPARE_COMMIT] == {COMPLETE_COMMIT}
    assert TRANSITIONS[PREPARE_ABORT] == {COMPLETE_ABORT}
    with pytest.raises(IllegalTransition, match="orders-7: PREPARE_COMMIT -> PREPARE_ABORT"):
        _transaction(PREPARE_COMMIT).prepared(PREPARE_ABORT, 2, BORN_MS)
