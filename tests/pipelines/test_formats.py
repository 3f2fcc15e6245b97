"""Record formats: columns where the bytes of a record fit, one sentence where they do not."""

import io
import json
import struct
from collections.abc import Iterable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pytest
from google.protobuf import descriptor_pb2

from tidelog.pipelines.definition.model import Format, FormatKind
from tidelog.pipelines.formats import FormatError, confluent, parse, serialise
from tidelog.pipelines.formats.arrow_types import columns_ddl
from tidelog.pipelines.formats.avro_types import row_type
from tidelog.pipelines.formats.protobuf_types import message_class

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

SOURCE = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp"
AT = datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=UTC)
PREFIX = confluent.prefix(7)


def source(spark: "SparkSession", values: Iterable[bytes | None]) -> "DataFrame":
    rows = [(b"k", value, "orders", 0, offset, AT) for offset, value in enumerate(values)]
    return spark.createDataFrame(rows, SOURCE).coalesce(1)


def parsed(spark: "SparkSession", how: Format, values: Iterable[bytes | None]) -> "list[Row]":
    return parse(source(spark, values), how).orderBy("_offset").collect()


def errors(spark: "SparkSession", how: Format, values: Iterable[bytes | None]) -> list[str | None]:
    rows = parse(source(spark, values), how).select("_offset", "_error").orderBy("_offset").collect()
    return [row["_error"] for row in rows]


# -- JSON

JSON = Format(FormatKind.JSON, "id bigint not null, name string, amount double, at timestamp, sub struct<x:int>")


@pytest.mark.spark
def test_json_becomes_columns_beside_the_records_place(spark: "SparkSession") -> None:
    value = b'{"id": 1, "name": "a", "amount": 2, "at": "2026-01-31T12:00:00Z", "sub": {"x": 3}, "more": []}'
    (row,) = parsed(spark, JSON, [value])
    assert row["_error"] is None
    assert (row["id"], row["name"], row["amount"], row["sub"]["x"]) == (1, "a", 2.0, 3)
    assert in_utc(row["at"]) == datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
    assert (bytes(row["_key"]), row["_topic"], row["_partition"], row["_offset"]) == (b"k", "orders", 0, 0)
    assert bytes(row["_value"]) == value


BAD_JSON: list[tuple[bytes | None, str]] = [
    (None, "the value is null"),
    (b"", "the value is empty"),
    (b"  ", "the value is empty"),
    (b"nonsense", "the value is not JSON"),
    (b'{"id": 1', "the value is not JSON"),
    (b'{"id": 1} trailing', "the value is not JSON"),
    (b'{"id": 1}{"id": 2}', "the value is not JSON"),
    (b'{"id": 1}, {"id": 2}', "the value is JSON, but not a single object"),
    (b'{"id": 1}, "x": 2', "the value is not JSON"),
    (b"5", "the value is JSON, but not a single object"),
    (b"null", "the value is JSON, but not a single object"),
    (b'[{"id": 1}]', "the value is JSON, but not a single object"),
    (b'{"id": "1"}', "field 'id' is not bigint"),
    (b'{"id": 1.5}', "field 'id' is not bigint"),
    (b'{"id": 99999999999999999999}', "field 'id' is not bigint"),
    (b'{"id": 1, "amount": "much"}', "field 'amount' is not double"),
    (b'{"id": 1, "at": "yesterday"}', "field 'at' is not timestamp"),
    (
        b'{"id": 1, "at": 1700000000000}',
        "field 'at' is after the year 9999: numbers are seconds since 1970, not milliseconds",
    ),
    (b'{"id": 1, "sub": 5}', "field 'sub' is not struct<x:int>"),
    (b'{"id": 1, "sub": {"x": "a"}}', "a nested field does not have its declared type"),
    (b'{"name": "a"}', "field 'id' is missing"),
    (b'{"id": 1, "name": "\xff"}', "the value is not text in UTF-8"),
    (b"{'id': 1}", "the value is not JSON"),
]


@pytest.mark.spark
def test_json_that_does_not_fit_is_an_error_and_never_nulls(spark: "SparkSession") -> None:
    found = errors(spark, JSON, [value for value, _ in BAD_JSON])
    assert list(zip([value for value, _ in BAD_JSON], found, strict=True)) == BAD_JSON


@pytest.mark.spark
def test_values_are_decoded_once_though_errors_are_filtered(spark: "SparkSession", tmp_path: Path) -> None:
    frame = parse(source(spark, [b"{}"]), avro_format(tmp_path)).where("_error is null")
    plan = frame._jdf.queryExecution().executedPlan().toString()
    assert plan.count("ArrowEvalPython") == 1


# -- CSV


@pytest.mark.spark
def test_csv_has_a_value_for_each_column(spark: "SparkSession") -> None:
    how = Format(FormatKind.CSV, "id int not null, name string, amount double", options={"sep": ";"})
    rows = parsed(spark, how, [b'1;"a;b";2.5', b"1;a", b"1;a;2;3", b"x;a;2", b"", None, b";;", b"1;a;2\n2;b;3"])
    assert (rows[0]["id"], rows[0]["name"], rows[0]["amount"], rows[0]["_error"]) == (1, "a;b", 2.5, None)
    (ended,) = parsed(spark, how, [b"1;a;2.5\r\n"])
    assert (ended["amount"], ended["_error"]) == (2.5, None)
    does_not_fit = "the value does not fit the 3 declared columns"
    assert [row["_error"] for row in rows[1:]] == [
        does_not_fit,
        does_not_fit,
        does_not_fit,
        "the value is empty",
        "the value is null",
        "column 'id' is missing",
        does_not_fit,
    ]


# -- Avro

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "count", "type": "int"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "exact", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 4}},
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {"type": "record", "name": "Line", "fields": [{"name": "sku", "type": "string"}]},
            },
        },
        {"name": "first", "type": ["null", "Line"]},
        {"name": "tags", "type": {"type": "map", "values": {"type": "long", "logicalType": "timestamp-millis"}}},
        {"name": "number", "type": ["null", "int", "double"]},
        {"name": "either", "type": ["null", "string", "boolean"]},
        {"name": "ratio", "type": "float"},
    ],
}

AN_ORDER: dict[str, Any] = {
    "id": 2**40,
    "count": 3,
    "note": None,
    "at": datetime(2026, 1, 31, 12, 0, 0, 123000, tzinfo=UTC),
    "exact": AT,
    "local": datetime(2026, 1, 31, 13, 0),
    "day": date(2026, 2, 1),
    "price": Decimal("12.34"),
    "state": "PAID",
    "hash": b"abcd",
    "lines": [{"sku": "x"}, {"sku": "y"}],
    "first": {"sku": "x"},
    "tags": {"seen": datetime(2026, 1, 1, tzinfo=UTC)},
    "number": 5,
    "either": True,
    "ratio": 0.5,
}


def avro_format(directory: Path, schema: Any = ORDER, **more: Any) -> Format:
    file = directory / "order.avsc"
    file.write_text(json.dumps(schema))
    return Format(FormatKind.AVRO, schema_file=file, **more)


def avro(record: Any, schema: Any = ORDER) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema, named_schemas={}), record)
    return stream.getvalue()


def in_utc(moment: datetime) -> datetime:
    """PySpark gives moments in the zone of the machine, without saying so."""
    return moment.astimezone(UTC)


@pytest.mark.spark
def test_avro_keeps_its_types(spark: "SparkSession", tmp_path: Path) -> None:
    (row,) = parsed(spark, avro_format(tmp_path), [PREFIX + avro(AN_ORDER)])
    assert row["_error"] is None
    found = row.asDict(recursive=True)
    plain = ("id", "count", "note", "local", "day", "price", "state", "lines", "first", "ratio")
    assert {name: found[name] for name in plain} == {name: AN_ORDER[name] for name in plain}
    assert in_utc(found["at"]) == AN_ORDER["at"]
    assert in_utc(found["exact"]) == AT
    assert bytes(found["hash"]) == b"abcd"
    assert in_utc(found["tags"]["seen"]) == AN_ORDER["tags"]["seen"]
    assert found["number"] == 5.0
    assert found["either"] == {"member0": None, "member1": True}


@pytest.mark.spark
def test_avro_reports_bad_values_and_finds_the_prefix_by_itself(spark: "SparkSession", tmp_path: Path) -> None:
    small = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": "string"}]}
    begins_with_zero = avro({"a": 0, "b": "hello"}, small)
    values = [begins_with_zero, PREFIX + begins_with_zero, b"\x02", begins_with_zero + b"?", None, b""]
    rows = parsed(spark, avro_format(tmp_path, small), values)
    assert [(row["a"], row["b"]) for row in rows[:2]] == [(0, "hello")] * 2
    assert rows[0]["_error"] is rows[1]["_error"] is None
    assert all("not Avro of this schema" in row["_error"] for row in (rows[2], rows[3], rows[5]))
    assert "1 bytes are left" in rows[3]["_error"]
    assert rows[4]["_error"] == "the value is null"


@pytest.mark.spark
def test_declared_columns_choose_among_those_of_the_schema(spark: "SparkSession", tmp_path: Path) -> None:
    how = avro_format(tmp_path, schema=ORDER)
    chosen = Format(FormatKind.AVRO, "id string, count tinyint", how.schema_file)
    rows = parsed(spark, chosen, [avro(AN_ORDER), avro(AN_ORDER | {"count": 1000})])
    assert (rows[0]["id"], rows[0]["count"], rows[0]["_error"]) == (str(2**40), 3, None)
    assert rows[1]["_error"] == "field 'count' is not tinyint"
    with pytest.raises(FormatError, match="no field 'nothing'"):
        parse(source(spark, []), Format(FormatKind.AVRO, "nothing int", how.schema_file))


def test_avro_schemas_that_spark_cannot_hold_are_refused() -> None:
    node = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
    with pytest.raises(FormatError, match="contains Node recursively"):
        row_type(node)
    twins = {"type": "record", "name": "R", "fields": [{"name": "u", "type": ["string", ORDER["fields"][8]["type"]]}]}
    with pytest.raises(FormatError, match="cannot be distinguished"):
        row_type(twins)
    with pytest.raises(FormatError, match="must be a record"):
        row_type("string")


def test_a_named_type_may_be_used_again_in_another_place() -> None:
    assert "`first` struct<`sku`:string>" in columns_ddl(row_type(ORDER).arrow)


# -- Protobuf

Field = descriptor_pb2.FieldDescriptorProto


def field(name: str, number: int, kind: int, type_name: str = "", *, repeated: bool = False, **more: Any) -> Any:
    label = Field.LABEL_REPEATED if repeated else Field.LABEL_OPTIONAL
    return Field(name=name, number=number, type=kind, type_name=type_name or None, label=label, **more)


def descriptor_set() -> bytes:
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    file.dependency.extend(["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"])
    line = file.message_type.add(name="Line")
    line.field.append(field("sku", 1, Field.TYPE_STRING))
    order = file.message_type.add(name="Order")
    order.enum_type.add(name="State").value.extend(
        [
            descriptor_pb2.EnumValueDescriptorProto(name="NEW", number=0),
            descriptor_pb2.EnumValueDescriptorProto(name="PAID", number=1),
        ]
    )
    entry = order.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    entry.field.extend([field("key", 1, Field.TYPE_STRING), field("value", 2, Field.TYPE_INT64)])
    order.oneof_decl.add(name="payment")
    order.oneof_decl.add(name="_note")
    order.field.extend(
        [
            field("id", 1, Field.TYPE_INT64),
            field("big", 2, Field.TYPE_UINT64),
            field("state", 3, Field.TYPE_ENUM, ".shop.Order.State"),
            field("at", 4, Field.TYPE_MESSAGE, ".google.protobuf.Timestamp"),
            field("weight", 5, Field.TYPE_MESSAGE, ".google.protobuf.DoubleValue"),
            field("lines", 6, Field.TYPE_MESSAGE, ".shop.Line", repeated=True),
            field("scores", 7, Field.TYPE_INT32, repeated=True),
            field("counts", 8, Field.TYPE_MESSAGE, ".shop.Order.CountsEntry", repeated=True),
            field("card", 9, Field.TYPE_STRING, oneof_index=0),
            field("cash", 10, Field.TYPE_BOOL, oneof_index=0),
            field("note", 11, Field.TYPE_STRING, oneof_index=1, proto3_optional=True),
            field("raw", 12, Field.TYPE_BYTES),
            field("first", 13, Field.TYPE_MESSAGE, ".shop.Line"),
        ]
    )
    return bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())


def protobuf_format(directory: Path, **more: Any) -> Format:
    file = directory / "shop.desc"
    file.write_bytes(descriptor_set())
    return Format(FormatKind.PROTOBUF, schema_file=file, message="shop.Order", **more)


def an_order_message() -> Any:
    order = message_class(descriptor_set(), "shop.Order")(id=5, big=2**64 - 1, state=1, cash=True, raw=b"\0\1")
    order.at.seconds, order.at.nanos = 1_769_860_800, 123_456_000
    order.weight.value = 0.0
    order.lines.add(sku="x")
    order.scores.extend([1, 2])
    order.counts["a"] = 9
    return order


@pytest.mark.spark
def test_protobuf_keeps_its_types(spark: "SparkSession", tmp_path: Path) -> None:
    message = an_order_message().SerializeToString()
    values = [message, PREFIX + b"\0" + message, PREFIX + b"\x02\x02" + message, b"", b"\x0a\xff", None]
    rows = parsed(spark, protobuf_format(tmp_path), values)
    assert [row["_error"] for row in rows[:4]] == [None] * 4
    assert "not a valid shop.Order" in rows[4]["_error"]
    assert rows[5]["_error"] == "the value is null"
    for row in rows[:3]:
        found = row.asDict(recursive=True)
        assert (found["id"], found["big"], found["state"]) == (5, Decimal(2**64 - 1), "PAID")
        assert in_utc(found["at"]) == AT
        assert (found["weight"], found["lines"], found["scores"]) == (0.0, [{"sku": "x"}], [1, 2])
        assert (found["counts"], found["card"], found["cash"], found["note"]) == ({"a": 9}, None, True, None)
        assert (bytes(found["raw"]), found["first"]) == (b"\0\1", None)
    empty = rows[3].asDict()
    assert (empty["id"], empty["state"], empty["weight"], empty["at"], empty["lines"]) == (0, "NEW", None, None, [])


def test_descriptor_sets_that_lack_the_message_are_refused() -> None:
    with pytest.raises(FormatError, match=r"no message 'shop\.Ordre'; it has shop\.Line, shop\.Order"):
        message_class(descriptor_set(), "shop.Ordre")
    with pytest.raises(FormatError, match=r"one of shop\.Line, shop\.Order"):
        message_class(descriptor_set(), None)
    with pytest.raises(FormatError, match="not a descriptor set"):
        message_class(b"\xff\xff", "shop.Order")


# -- back to bytes


@pytest.mark.spark
def test_what_was_parsed_is_written_again_without_its_place(spark: "SparkSession", tmp_path: Path) -> None:
    def written(how_in: Format, value: bytes, how_out: Format) -> bytes:
        frame = parse(source(spark, [value]), how_in).drop("_error", "_value")
        (row,) = frame.select(serialise(frame, how_out).alias("bytes")).collect()
        return bytes(row["bytes"])

    flat = Format(FormatKind.JSON, "id bigint, name string")
    assert json.loads(written(flat, b'{"id":1,"name":"a"}', Format(FormatKind.JSON))) == {"id": 1, "name": "a"}
    assert written(flat, b'{"id":1,"name":"a"}', Format(FormatKind.CSV)) == b"1,a"

    without_union = avro_format(tmp_path, ORDER | {"fields": [f for f in ORDER["fields"] if f["name"] != "either"]})
    record = {name: value for name, value in AN_ORDER.items() if name != "either"}
    schema = json.loads(without_union.schema_file.read_text()) if without_union.schema_file else None
    with_id = Format(FormatKind.AVRO, schema_file=without_union.schema_file, options={"schema_id": "7"})
    again = written(without_union, avro(record, schema), with_id)
    assert again[:5] == struct.pack(">bI", 0, 7)
    assert again[5:] == avro(record | {"number": 5.0}, schema)

    derived = written(flat, b'{"id":1,"name":"a"}', Format(FormatKind.AVRO))
    assert derived == b"\x02\x02\x02\x02a"

    message = an_order_message()
    assert (
        message.FromString(written(protobuf_format(tmp_path), message.SerializeToString(), protobuf_format(tmp_path)))
        == message
    )


@pytest.mark.spark
def test_raw_writes_the_column_value_and_says_when_there_is_none(spark: "SparkSession") -> None:
    frame = source(spark, [b"\0x"])
    assert bytes(frame.select(serialise(frame, Format()).alias("b")).collect()[0]["b"]) == b"\0x"
    with pytest.raises(FormatError, match=r"'value'.*not among key"):
        serialise(frame.drop("value"), Format())
    with pytest.raises(FormatError, match="no columns to write"):
        serialise(frame.selectExpr("key as _key"), Format(FormatKind.JSON))


def test_a_cut_off_message_index_is_a_bad_prefix() -> None:
    assert confluent.after_message_indexes(PREFIX + b"\x00rest") == b"rest"
    assert confluent.after_message_indexes(PREFIX + b"\x04\x02\x06rest") == b"rest"
    with pytest.raises(confluent.BadPrefix):
        confluent.after_message_indexes(PREFIX + b"\x04\x02")
