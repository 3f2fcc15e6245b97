"""Changes from topics to tables: Debezium's envelope, compacted topics, and running totals."""

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pytest

from tests.clients.broker import TidelogProcess
from tests.pipelines.test_runner import run_once
from tests.spark_session import Message, TopicMaker, produce
from tidelog.pipelines.definition.mistakes import Mistakes
from tidelog.pipelines.definition.model import (
    Format,
    FormatKind,
    NullValues,
    Pipeline,
    SqlStep,
    TableKind,
    TableSink,
    TopicSource,
    Upsert,
)
from tidelog.pipelines.definition.parsing import load
from tidelog.pipelines.formats import parse
from tidelog.pipelines.tables.exactly_once_writer import read_table

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

SOURCE = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp"
DEBEZIUM = Format(
    FormatKind.DEBEZIUM, "id bigint not null, name string", null_values=NullValues.DELETE, key_schema="id bigint"
)
AVRO_ROW = {
    "type": "record",
    "name": "Row",
    "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"]}],
}
AVRO = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {"name": "before", "type": ["null", AVRO_ROW]},
        {"name": "after", "type": ["null", "Row"]},
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"]},
    ],
}


def envelope(op: str, before: Any = None, after: Any = None, ts_ms: int = 1000) -> dict[str, Any]:
    return {"before": before, "after": after, "op": op, "ts_ms": ts_ms, "source": {"lsn": 7, "table": "customers"}}


def parsed(spark: "SparkSession", how: Format, records: list[tuple[bytes | None, bytes | None]]) -> "list[Row]":
    rows = [(key, value, "orders", 0, offset, None) for offset, (key, value) in enumerate(records)]
    return parse(spark.createDataFrame(rows, SOURCE).coalesce(1), how).orderBy("_offset").collect()


def values(rows: "list[Row]") -> list[tuple[object, ...]]:
    return [(row["id"], row["name"], row["_deleted"], row["_error"]) for row in rows]


@pytest.mark.spark
def test_changes_of_debezium_as_json(spark: "SparkSession") -> None:
    one, two = {"id": 1, "name": "a"}, {"id": 1, "name": "b"}
    changes = [
        envelope("c", None, one),
        {"schema": {}, "payload": envelope("u", one, two)},
        envelope("d", {"id": 1}, None),
        envelope("t"),
        envelope("c"),
        {"id": 1},
        envelope("c", None, {"name": "no id"}),
    ]
    records: list[tuple[bytes | None, bytes | None]] = [(b"1", json.dumps(change).encode()) for change in changes]
    records += [(b'{"id": 1}', None), (b'{"payload": {"id": 2}}', None), (b"3", None), (b"x", None), (None, None)]
    rows = parsed(spark, DEBEZIUM, records)
    assert values(rows) == [
        (1, "a", False, None),
        (1, "b", False, None),
        (1, None, True, None),
        (None, None, False, "Debezium's operation t is not supported"),
        (None, None, False, "the change has no row"),
        (None, None, False, "the value is not a change of Debezium: it has no op"),
        (None, "no id", False, "field 'id' is missing"),
        (1, None, True, None),
        (2, None, True, None),
        (3, None, True, None),
        (None, None, True, "the key of the delete has no 'id'"),
        (None, None, True, "the key of the delete has no 'id'"),
    ]
    assert (rows[1]["_op"], rows[1]["_source"]["lsn"], rows[1]["_changed_at"].timestamp()) == ("u", "7", 1.0)
    skipping = replace(DEBEZIUM, null_values=NullValues.SKIP, key_schema=None)
    assert len(parsed(spark, skipping, records)) == 7


@pytest.mark.spark
def test_changes_of_debezium_as_avro(spark: "SparkSession", tmp_path: Path) -> None:
    file = tmp_path / "envelope.avsc"
    file.write_text(json.dumps(AVRO))
    one = {"id": 1, "name": "a"}

    def encoded(change: dict[str, Any]) -> bytes:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, fastavro.parse_schema(AVRO), change)
        return b"\0\0\0\0\7" + stream.getvalue()

    how = Format(FormatKind.DEBEZIUM, schema_file=file, null_values=NullValues.SKIP)
    records: list[tuple[bytes | None, bytes | None]] = [
        (None, encoded(envelope("r", None, one))),
        (None, encoded(envelope("d", one))),
        (None, b"nonsense"),
        (None, None),
    ]
    rows = parsed(spark, how, records)
    assert values(rows[:2]) == [(1, "a", False, None), (1, "a", True, None)]
    assert len(rows) == 3
    assert "not Avro of this schema" in rows[2]["_error"]


FILE = """
[sources.customers]
topic = "customers"
format = "debezium"
{source}
[sinks.customers]
from = "customers"
{sink}
"""


@pytest.mark.parametrize(
    ("source", "sink", "sentence"),
    [
        ("", "delta = 't'", "format = 'debezium' needs the columns of the rows"),
        ("schema = 'id int'\nkey_schema = 'id int'\nnull_values = 'skip'", "delta = 't'", "is for records without"),
        ("schema = 'id int'", "delta = 't'\nkeys = ['id']", "keys needs mode = 'upsert'"),
        ("schema = 'id int'", "delta = 't'\nmode = 'upsert'", "needs the columns of the key"),
        ("schema = 'id int'", "parquet = 't'\nmode = 'upsert'\nkeys = 'id'", "needs a Delta or Iceberg table"),
        ("schema = 'id int'", "delta = 't'\nmode = 'upsert'\nkeys = 'id'\nhistory = true", "needs one column"),
        ("schema = 'id int'", "delta = 't'\nmode = 'upsert'\nkeys = 'ix'", "view 'customers' has no column 'ix'"),
        ("schema = 'id int'", "delta = 't'\nmode = 'upsert'\nkeys = 'id'\nomit = 'id'", "cannot be left out"),
        ("schema = 'id int'", "delta = 't'\nmode = 'upset'", "did you mean 'upsert'?"),
        ("schema = 'id int'", "topic = 't'\nformat = 'debezium'", "expected raw, json, avro, protobuf or csv"),
    ],
)
def test_mistakes_in_upserts(tmp_path: Path, source: str, sink: str, sentence: str) -> None:
    file = tmp_path / "shop.toml"
    file.write_text(FILE.format(source=source, sink=sink))
    with pytest.raises(Mistakes) as found:
        load(file, {})
    assert sentence in str(found.value)


def test_an_upsert_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "shop.toml"
    sink = "delta = 't'\nmode = 'upsert'\nkeys = 'id'\nsequence_by = '_changed_at'\nhistory = true\ndelete_when = 'x'"
    file.write_text(FILE.format(source="schema = 'id int'", sink=sink))
    (found,) = load(file, {"TIDELOG_BOOTSTRAP": "localhost:29092"}).sinks
    assert isinstance(found, TableSink)
    assert found.upsert == Upsert(("id",), ("_changed_at",), "x", has_history=True)


@pytest.mark.spark
@pytest.mark.parametrize("kind", [TableKind.DELTA, TableKind.ICEBERG])
def test_a_table_follows_its_change_stream(
    spark: "SparkSession", running_broker: TidelogProcess, new_topic: TopicMaker, tmp_path: Path, kind: TableKind
) -> None:
    topic = new_topic(cleanup_policy="compact")
    location = "shop.customers" if kind is TableKind.ICEBERG else str(tmp_path / "customers")
    pipeline = Pipeline(
        "shop",
        tmp_path / "shop.toml",
        (TopicSource("customers", running_broker.bootstrap, (topic,), format=DEBEZIUM),),
        (SqlStep("ordered", "SELECT *, CAST(_source['lsn'] AS bigint) AS lsn FROM customers"),),
        (TableSink("customers", "ordered", kind, location, upsert=Upsert(("id",), ("lsn",))),),
    )
    one = {"id": 1, "name": "a"}
    first = [envelope("c", None, {"id": number, "name": "a"}) for number in range(4)]
    second = [envelope("u", one, {"id": 1, "name": "b"}), envelope("d", {"id": 2})]
    for changes in (first, second):
        records = [Message(json.dumps(change).encode(), b"k") for change in changes]
        produce(running_broker.bootstrap, topic, [*records, Message(None, b'{"id": 3}')])
        run_once(spark, pipeline, tmp_path / "state")
    sink = pipeline.sinks[0]
    assert isinstance(sink, TableSink)
    rows = read_table(sink, tmp_path / "state" / "shop").to_pylist()
    assert sorted((row["id"], row["name"]) for row in rows) == [(0, "a"), (1, "b")]
    assert set(rows[0]) == {"id", "name", "lsn"}


@pytest.mark.spark
def test_totals_are_upserted_without_a_watermark(
    spark: "SparkSession", running_broker: TidelogProcess, new_topic: TopicMaker, tmp_path: Path
) -> None:
    topic = new_topic()
    orders = Format(FormatKind.JSON, "customer string")
    pipeline = Pipeline(
        "shop",
        tmp_path / "shop.toml",
        (TopicSource("orders", running_broker.bootstrap, (topic,), format=orders),),
        (SqlStep("totals", "SELECT customer, count(*) AS orders FROM orders GROUP BY customer"),),
        (TableSink("totals", "totals", TableKind.DELTA, str(tmp_path / "totals"), upsert=Upsert(("customer",))),),
    )
    for customers in ("aab", "abc"):
        produce(
            running_broker.bootstrap, topic, [Message(json.dumps({"customer": name}).encode()) for name in customers]
        )
        run_once(spark, pipeline, tmp_path / "state")
    sink = pipeline.sinks[0]
    assert isinstance(sink, TableSink)
    rows = read_table(sink, tmp_path).to_pylist()
    assert sorted((row["customer"], row["orders"]) for row in rows) == [("a", 3), ("b", 2), ("c", 1)]
