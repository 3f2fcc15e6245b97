"""The columns of `format("tidelog")`, and those that a user asks for."""

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from tidelog.spark.options.values import OptionError
from tidelog.spark.source.row_schema import columns_of, schema_text

HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])


def test_the_type_of_times_does_not_depend_on_what_a_session_calls_timestamp() -> None:
    assert "timestamp timestamp_ltz" in schema_text(has_headers=False)
    assert columns_of(StructType([StructField("timestamp", TimestampType())])) == ("timestamp",)
    with pytest.raises(OptionError, match="has column 'timestamp' as timestamp_ntz, but it is timestamp"):
        columns_of(StructType([StructField("timestamp", TimestampNTZType())]))


def test_columns_come_in_the_order_asked_for() -> None:
    asked = StructType([StructField("offset", LongType()), StructField("headers", ArrayType(HEADER))])
    assert columns_of(asked) == ("offset", "headers")


def test_a_schema_without_columns_is_refused_as_its_rows_could_not_be_counted() -> None:
    with pytest.raises(OptionError, match="The schema has no columns; available are key, value"):
        columns_of(StructType([]))


@pytest.mark.parametrize(
    "field",
    [StructField("offset", LongType(), False), StructField("headers", ArrayType(HEADER, containsNull=False))],
    ids=lambda field: str(field.name),
)
def test_columns_that_may_not_be_null_are_refused(field: StructField) -> None:
    with pytest.raises(OptionError, match=f"has column '{field.name}' as NOT NULL: remove that"):
        columns_of(StructType([field]))
