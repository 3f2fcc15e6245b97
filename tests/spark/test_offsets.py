"""Positions as they are written into checkpoints and by users."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.spark.offset_json import (
    BadOffsets,
    Offsets,
    from_dict,
    partition_lists,
    partition_numbers,
    to_dict,
    valid_ids,
)
from tidelog.types import ZERO_UUID, TopicPartition

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)
ID = bytes(range(16))

TOPIC_NAMES = st.text("abz019._-", min_size=1, max_size=20)
OFFSETS = st.dictionaries(st.builds(TopicPartition, TOPIC_NAMES, st.integers(0, 2**31 - 1)), st.integers(0, 2**63 - 1))


@given(OFFSETS, st.binary(min_size=16, max_size=16))
def test_what_is_written_is_read_back(offsets: Offsets, topic_id: bytes) -> None:
    ids = {topic: topic_id for topic, _ in offsets}
    assert from_dict(json.loads(json.dumps(to_dict(offsets, ids)))) == (offsets, ids)


def test_the_form_is_that_of_sparks_kafka_source_in_order_with_ids_beside() -> None:
    assert json.dumps(to_dict({B: 42, A: 23})) == '{"orders": {"0": 23, "1": 42}}'
    ids = {"orders": ID, "payments": ID}
    assert to_dict({A: 23}, ids) == {"orders": {"0": 23}, "@topicIds": {"orders": "AAECAwQFBgcICQoLDA0ODw"}}


def test_what_sparks_kafka_source_wrote_is_understood() -> None:
    assert from_dict({"orders": {"1": 42, "0": 23}}) == ({A: 23, B: 42}, {})


def test_brokers_without_topic_ids_leave_none() -> None:
    assert valid_ids({"orders": ZERO_UUID, "payments": ID}) == {"payments": ID}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "5",
        '{"orders":5}',
        '{"orders":{"0":null}}',
        '{"orders":{"0":true}}',
        '{"orders":{"0":"5"}}',
        '{"orders":{"-1":5}}',
        '{"orders":{"٣":5}}',
        '{"orders":{"99999999999":5}}',
        '{"orders":{"0":5},"orders":{"1":5}}',
        '{"orders":' + "[" * 100_000,
    ],
    ids=lambda text: text[:40],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(BadOffsets):
        partition_numbers(text)


@pytest.mark.parametrize("ids", [{"orders": "short"}, 7])
def test_ids_that_are_none_are_refused(ids: object) -> None:
    with pytest.raises(BadOffsets):
        from_dict({"orders": {"0": 5}, "@topicIds": ids})


def test_users_write_numbers_or_lists_by_partition() -> None:
    assert partition_numbers(' {"orders": {"0": -2, "1": -1}} ') == {A: -2, B: -1}
    assert partition_lists('{"orders":[1,0,1]}') == (A, B)
    with pytest.raises(BadOffsets):
        partition_lists('{"orders":["0"]}')
