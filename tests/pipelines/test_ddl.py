"""Schemas in Spark's words, read without Spark."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.pipelines.definition.ddl import BadSchema, Column, read_schema


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("id bigint", [("id", "bigint")]),
        ("id BIGINT NOT NULL, name STRING COMMENT 'who, really'", [("id", "bigint"), ("name", "string")]),
        ("`a b` int, `back``tick` date", [("a b", "int"), ("back`tick", "date")]),
        (
            "price decimal(10,2), plain decimal, code char(3)",
            [
                ("price", "decimal(10,2)"),
                ("plain", "decimal"),
                ("code", "char(3)"),
            ],
        ),
        (
            "tags array<string>, counts map<string, array<int>>",
            [
                ("tags", "array<string>"),
                ("counts", "map<string,array<int>>"),
            ],
        ),
        (
            "at struct<place: struct<x double, y: double>, when: timestamp_ntz>, empty struct<>",
            [
                ("at", "struct<place:struct<x:double,y:double>,when:timestamp_ntz>"),
                ("empty", "struct<>"),
            ],
        ),
        (
            "a interval day to second, b interval, c time(6), d string collate UTF8_LCASE, 1e real",
            [
                ("a", "interval day to second"),
                ("b", "interval"),
                ("c", "time(6)"),
                ("d", "string collate UTF8_LCASE"),
                ("1e", "real"),
            ],
        ),
        ("at timestamp without time zone", [("at", "timestamp_ntz")]),
        ("id: int, timestamp timestamp, date date", [("id", "int"), ("timestamp", "timestamp"), ("date", "date")]),
        ("\n  id int,\n  name string\n", [("id", "int"), ("name", "string")]),
    ],
)
def test_columns_and_their_types(text: str, columns: list[tuple[str, str]]) -> None:
    assert read_schema(text) == [Column(*column) for column in columns]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("id bigitn", "column 'id' of the schema has unknown type 'bigitn'; did you mean 'bigint'?"),
        ("id", "column 'id' of the schema has no type; add one, as in 'id string'"),
        ("id int name string", "column 'id' of the schema: expected ',', found 'name'"),
        ("id int,", "the schema: expected a column name, found the end; an example is 'id bigint, name string'"),
        ("1 int", "the schema: expected a column name, found '1'; an example is 'id bigint, name string'"),
        ("a array<int", "column 'a' of the schema: expected '>', found the end"),
        ("a map<string>", "column 'a' of the schema: expected ',', found '>'"),
        ("a array", "column 'a' of the schema: expected '<', found the end"),
        ("a struct<b: strng>", "column 'a.b' of the schema has unknown type 'strng'; did you mean 'string'?"),
        ("a decimal(x)", "column 'a' of the schema: expected a number in the brackets, found 'x'"),
        ("a varchar", "column 'a' of the schema: varchar needs a length; or use string"),
        ("a interval day to week", "column 'a' of the schema: expected an interval such as 'interval day to second'"),
        ("a int, A string", "the schema has column 'A' twice"),
    ],
)
def test_mistake_is_reported_in_one_sentence(text: str, said: str) -> None:
    with pytest.raises(BadSchema) as raised:
        read_schema(text)
    assert str(raised.value) == said


@pytest.mark.parametrize("text", ["a decimal(39,2)", "a decimal(2,3)"])
def test_decimal_that_no_engine_has(text: str) -> None:
    with pytest.raises(BadSchema, match="at most 38 digits"):
        read_schema(text)


WORDS = st.sampled_from(
    ["a", "`b c`", "int", "array", "map", "struct", "decimal", "<", ">", "(", ")", ",", ":", "5", "'"]
)


@given(st.lists(st.one_of(WORDS, st.text(max_size=3)), max_size=15).map(" ".join))
def test_any_text_is_a_schema_or_gets_a_sentence(text: str) -> None:
    with contextlib.suppress(BadSchema):
        assert read_schema(text)
