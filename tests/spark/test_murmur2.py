import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.spark.arrow_types import BINARY_TYPES
from tidelog.client.producer import partitioner
from tidelog.spark.records.arrow_columns import bytes_column, no_numbers
from tidelog.spark.records.murmur2 import murmur2
from tidelog.spark.records.targets import Targets


def partition_of_keys(keys: pa.Array, partition_count: int) -> list[int]:
    targets = Targets()
    targets.add_topic("orders", partition_count, [])
    found: list[int] = targets.choose(np.zeros(len(keys), np.int32), no_numbers(), bytes_column(keys)).tolist()
    return found


def test_keys_of_every_length_go_where_the_client_puts_them() -> None:
    chance = random.Random(7)
    keys = [chance.randbytes(length) for length in range(41) for _ in range(25)]
    expected = [partitioner.partition_of_key(key, 97) for key in keys]
    assert partition_of_keys(pa.array(keys, pa.binary()), 97) == expected


def test_known_keys_go_where_java_puts_them() -> None:
    """The values of Kafka's own test of its hash, UtilsTest.testMurmur2."""
    hashes = {"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536}
    hashes |= {"a-little-bit-longer-string": -1486304829, "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971}
    hashes |= {"abc": 479470107}
    for key, value in hashes.items():
        assert murmur2(np.frombuffer(key.encode(), np.uint8), 0, len(key)) == value & 0xFFFFFFFF


@given(st.lists(st.none() | st.binary(max_size=12)), st.integers(1, 50), st.data())
def test_a_slice_with_nulls_is_hashed_row_by_row(keys: list[bytes | None], count: int, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(keys)))
    found = partition_of_keys(pa.array(keys, pa.binary())[start:], count)
    for key, partition in zip(keys[start:], found, strict=True):
        assert key is None or partition == partitioner.partition_of_key(key, count)


@pytest.mark.parametrize("kind", BINARY_TYPES, ids=str)
def test_keys_of_every_arrow_type_are_taken(kind: pa.DataType) -> None:
    keys = ["order-1", None, "", "order-with-a-long-name"]
    array = pa.array(keys, pa.string())
    array = array.cast(kind) if "string" in str(kind) else array.cast(pa.binary()).cast(kind)
    assert partition_of_keys(array, 12) == partition_of_keys(pa.array(keys, pa.string()), 12)
