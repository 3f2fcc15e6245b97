"""Values of the three kinds of schemas, by a registry or a file, and what does not fit its schema."""

import asyncio
import base64
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fastavro
import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2

from tidelog.cli.command_error import CommandError
from tidelog.console.decoding import Decoding, file_schemas
from tidelog.console.schema_registry import NoSchema, SchemaRegistry
from tidelog.pipelines.formats.confluent import prefix
from tidelog.pipelines.formats.protobuf_types import message_class

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
AVRO, PROTOBUF, JSON = 1, 2, 3


def avro(order_id: int) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(ORDER), {"id": order_id})
    return out.getvalue()


def order_file() -> Any:
    """`message Order { int64 id = 1; Timestamp at = 2; message Line { string sku = 1; } }`"""
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    order = file.message_type.add(name="Order")
    order.field.add(name="id", number=1, type=3, label=1)
    order.field.add(name="at", number=2, type=11, label=1, type_name=".google.protobuf.Timestamp")
    order.nested_type.add(name="Line").field.add(name="sku", number=1, type=9, label=1)
    return file


class FakeRegistry:
    """Answers of a registry, and how often it was asked."""

    def __init__(self) -> None:
        text = base64.b64encode(order_file().SerializeToString()).decode()
        timestamp = descriptor_pb2.FileDescriptorProto()
        timestamp_pb2.DESCRIPTOR.CopyToProto(timestamp)
        imported = {"name": "google/protobuf/timestamp.proto", "subject": "time", "version": 1}
        self.answers: dict[str, Mapping[str, Any]] = {
            "/schemas/ids/1": {"schema": json.dumps(ORDER)},
            "/schemas/ids/2": {"schema": "syntax ...", "schemaType": "PROTOBUF"},
            "/schemas/ids/2?format=serialized": {"schema": text, "references": [imported]},
            "/subjects/time/versions/1?format=serialized": {
                "schema": base64.b64encode(timestamp.SerializeToString()).decode()
            },
            "/schemas/ids/3": {"schema": "{}", "schemaType": "JSON"},
        }
        self.asked: list[str] = []

    def read(self, path: str) -> Mapping[str, Any]:
        self.asked.append(path)
        if path not in self.answers:
            raise NoSchema("the schema registry does not know it")
        return self.answers[path]


def shown(decoding: Decoding, *values: bytes, topic: str = "orders") -> list[dict[str, object]]:
    async def main() -> list[dict[str, object]]:
        return [await decoding.shown_value(topic, value) or {} for value in values]

    return asyncio.run(main())


def texts(found: list[dict[str, object]]) -> list[tuple[object, object]]:
    return [(each["format"], json.loads(str(each["text"]))) for each in found]


def test_a_registry_names_the_schema_of_each_value() -> None:
    registry = FakeRegistry()
    descriptors = descriptor_pb2.FileDescriptorSet(file=[order_file()]).SerializeToString()
    order, line = message_class(descriptors, "shop.Order"), message_class(descriptors, "shop.Order.Line")
    nested = bytes([4, 0, 0])  # two indexes: the first message, and in it the first
    values = (
        prefix(AVRO) + avro(7),
        prefix(PROTOBUF) + b"\0" + order(id=8).SerializeToString(),
        prefix(PROTOBUF) + nested + line(sku="a").SerializeToString(),
        prefix(JSON) + b'{"id": 9}',
    )
    known = SchemaRegistry(registry.read)
    expected = [("avro", {"id": 7}), ("protobuf", {"id": "8"}), ("protobuf", {"sku": "a"}), ("json schema", {"id": 9})]
    assert texts(shown(Decoding(registry=known), *values)) == expected
    asked = len(registry.asked)
    assert texts(shown(Decoding(registry=known), *values * 3)) == expected * 3
    assert len(registry.asked) == asked


def test_what_does_not_fit_is_shown_as_it_is_with_the_reason() -> None:
    registry = FakeRegistry()
    values = (prefix(AVRO) + b"\xff", prefix(99) + b"x", prefix(PROTOBUF) + b"\x02\x7e", prefix(JSON) + b"{", b"{}")
    found = shown(Decoding(registry=SchemaRegistry(registry.read)), *values)
    assert [each["format"] for each in found] == ["hex", "hex", "hex", "hex", "json"]
    problems = [str(each.get("problem")) for each in found]
    assert "not of its schema" in problems[0]
    assert problems[1] == "the schema registry does not know it"
    assert "no message at the position" in problems[2]
    assert "not of its schema" in problems[3]
    assert problems[4] == "None"


def test_downloads_have_what_a_schema_decodes_and_nothing_else() -> None:
    async def main() -> list[str | None]:
        decoding = Decoding(registry=SchemaRegistry(FakeRegistry().read))
        values = [prefix(AVRO) + avro(7), b"plain", prefix(99) + b"x", None]
        return [await decoding.decoded_value("orders", value) for value in values]

    assert asyncio.run(main()) == ['{"id": 7}', None, None, None]


def test_a_registry_that_does_not_answer_is_not_asked_for_every_record() -> None:
    registry = FakeRegistry()
    shown(Decoding(registry=SchemaRegistry(registry.read)), *[prefix(99) + b"x"] * 100)
    assert registry.asked == ["/schemas/ids/99"]


def test_a_schema_file_is_for_one_topic(tmp_path: Path) -> None:
    (tmp_path / "order.avsc").write_text(json.dumps(ORDER))
    (tmp_path / "order.desc").write_bytes(descriptor_pb2.FileDescriptorSet(file=[order_file()]).SerializeToString())
    files = file_schemas([f"orders={tmp_path / 'order.avsc'}", f"parts={tmp_path / 'order.desc'}:shop.Order"])
    decoding = Decoding(files)
    assert texts(shown(decoding, avro(7))) == [("avro", {"id": 7})]
    assert texts(shown(decoding, b"\x08\x05", topic="parts")) == [("protobuf", {"id": "5"})]
    assert shown(decoding, avro(7), topic="others")[0]["format"] != "avro"


@pytest.mark.parametrize("option", ["orders", "=x.avsc", "orders=", "orders=/nowhere.avsc"])
def test_a_wrong_schema_option_is_one_sentence(option: str) -> None:
    with pytest.raises(CommandError):
        file_schemas([option])
