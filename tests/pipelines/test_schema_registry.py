"""Schemas by the id in the record, from a stand-in for a registry with Confluent's REST interface. What a real one
answers is in test_real_registry.py."""

import base64
import io
import json
import ssl
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2

from tests.certificates import Authority
from tidelog.pipelines.definition.mistakes import Mistakes
from tidelog.pipelines.definition.model import Pipeline, Registry, RegistryUse, TopicSource
from tidelog.pipelines.definition.parsing import load
from tidelog.pipelines.formats import FormatError, avro_registry, confluent, json_schema_types, protobuf_registry
from tidelog.pipelines.formats.arrow_types import columns_ddl
from tidelog.pipelines.formats.proto_files import compiled_texts
from tidelog.pipelines.formats.schema_registry import Reference, RegisteredSchema, SchemaKind, registry_of


def record(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "Order", "fields": list(fields)}


ID, NAME = {"name": "id", "type": "long"}, {"name": "name", "type": "string"}
FIRST = record(ID, NAME)
SECOND = record(ID, {"name": "amount", "type": "double", "default": 1.5}, NAME)
OTHER = record({"name": "else", "type": "long"})
AVRO = SchemaKind.AVRO


def avro(schema: dict[str, Any]) -> RegisteredSchema:
    return RegisteredSchema(0, AVRO, json.dumps(schema))


def encoded(schema: dict[str, Any], schema_id: int, row: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), row)
    return confluent.prefix(schema_id) + stream.getvalue()


class Schemas:
    """Of a registry, in memory."""

    def __init__(self, **schemas: RegisteredSchema) -> None:
        self._schemas = schemas

    def schema(self, schema_id: int, kind: SchemaKind) -> RegisteredSchema:
        if schema_id == 9:
            raise ConnectionError("away")
        known = {1: FIRST, 2: SECOND, 3: OTHER}
        return self._schemas.get(f"id{schema_id}") or RegisteredSchema(schema_id, kind, json.dumps(known[schema_id]))

    def latest(self, subject: str, kind: SchemaKind) -> RegisteredSchema:
        return self._schemas[subject]

    def register(self, subject: str, schema: RegisteredSchema) -> int:
        return 1


def test_records_of_several_schemas_become_rows_of_one() -> None:
    values = [encoded(FIRST, 1, {"id": 1, "name": "a"}), encoded(SECOND, 2, {"id": 2, "name": "b", "amount": 7.0})]
    rows = avro_registry.decoder(Schemas(), json.dumps(SECOND))(pa.array([*values, b"none", None], pa.binary()))
    found = rows.to_pylist()
    assert [(row["id"], row["amount"], row["name"]) for row in found[:2]] == [(1, 1.5, "a"), (2, 7.0, "b")]
    assert [row["_error"] if "_error" in row else next(reversed(row.values())) for row in found[2:]] == [
        "the value has no schema registry prefix",
        "the value is null",
    ]


def test_a_schema_that_cannot_be_resolved_makes_a_bad_record_and_a_registry_that_is_away_none() -> None:
    decode = avro_registry.decoder(Schemas(), json.dumps(SECOND))
    (row,) = decode(pa.array([encoded(OTHER, 3, {"else": 1})], pa.binary())).to_pylist()
    assert "not Avro of its schema" in str(list(row.values()))
    with pytest.raises(ConnectionError, match="away"):
        decode(pa.array([confluent.prefix(9)], pa.binary()))


def test_an_avro_schema_may_refer_to_others() -> None:
    line = {"type": "record", "name": "Line", "namespace": "shop", "fields": [{"name": "sku", "type": "string"}]}
    lines = {"type": "array", "items": "shop.Line"}
    order = record(ID, {"name": "lines", "type": lines}, {"name": "last", "type": ["null", "shop.Line"]})
    whole = record(
        ID, {"name": "lines", "type": {**lines, "items": line}}, {"name": "last", "type": ["null", "shop.Line"]}
    )
    schema = RegisteredSchema(4, AVRO, json.dumps(order), (Reference("shop.Line", json.dumps(line)),))
    assert json.loads(avro_registry.whole_text(schema)) == whole
    value = encoded(whole, 4, {"id": 1, "lines": [{"sku": "x"}], "last": None})
    decode = avro_registry.decoder(Schemas(id4=schema), json.dumps(whole))
    (row,) = decode(pa.array([value], pa.binary())).to_pylist()
    assert (row["lines"], row["last"]) == ([{"sku": "x"}], None)


ORDER_PROTO = """syntax = "proto3";
package shop;
message Refund { int64 id = 1; }
message Order {
  int64 id = 1;
  string name = 2;
  message Line { string sku = 1; }
}
"""


def protobuf_rows(schema: RegisteredSchema, columns: bytes, name: str, values: list[bytes]) -> list[dict[str, Any]]:
    decode = protobuf_registry.decoder(Schemas(id5=schema), columns, name)
    found: list[dict[str, Any]] = decode(pa.array(values, pa.binary())).to_pylist()
    return found


def test_the_indexes_in_a_record_name_its_message_type() -> None:
    pytest.importorskip("grpc_tools", reason="a schema as text needs pip install 'tidelog[registry]'")
    schema = RegisteredSchema(5, SchemaKind.PROTOBUF, ORDER_PROTO)
    columns = compiled_texts("new.proto", {"new.proto": ORDER_PROTO.replace("string name = 2;", "double amount = 3;")})
    order = b"\x08\x07\x12\x01a\x19" + struct.pack("<d", 2.5)
    prefix = confluent.prefix(5)
    values = [
        prefix + confluent.message_indexes((1,)) + order,
        prefix + b"\0" + b"\x08\x07",
        prefix + confluent.message_indexes((1, 0)) + b"",
        prefix + confluent.message_indexes((7,)) + b"",
        prefix + b"\xff\xff\xff\xff\x0f",
    ]
    rows = protobuf_rows(schema, columns, "shop.Order", values)
    assert (rows[0]["id"], rows[0]["amount"], rows[0]["_error"]) == (7, 2.5, None)
    assert [row["_error"] for row in rows[1:]] == [
        "the value is a shop.Refund, not a shop.Order",
        "the value is a shop.Order.Line, not a shop.Order",
        "schema 5 of the registry has no message type at [7]",
        "the schema id is followed by -2147483648 message indexes, at most 64 are valid",
    ]
    assert protobuf_registry.first_message(columns) == "shop.Refund"


def test_a_schema_may_be_a_descriptor_and_refer_to_others() -> None:
    line = descriptor_pb2.FileDescriptorProto(name="line.proto", package="shop", syntax="proto3")
    line.message_type.add(name="Line").field.add(name="sku", number=1, type=9, label=1)
    order = descriptor_pb2.FileDescriptorProto(package="shop", syntax="proto3", dependency=["line.proto"])
    order.message_type.add(name="Order").field.add(name="last", number=1, type=11, label=1, type_name=".shop.Line")
    texts = [base64.b64encode(file.SerializeToString()).decode() for file in (line, order)]
    schema = RegisteredSchema(5, SchemaKind.PROTOBUF, texts[1], (Reference("line.proto", texts[0]),))
    columns = protobuf_registry.descriptor_set(schema)
    (row,) = protobuf_rows(schema, columns, "shop.Order", [confluent.prefix(5) + b"\0\x0a\x03\x0a\x01x"])
    assert row["last"] == {"sku": "x"}


@pytest.mark.parametrize("indexes", [(0,), (1,), (1, 0), (63, 64, 200)])
def test_message_indexes_are_read_as_written(indexes: tuple[int, ...]) -> None:
    value = confluent.prefix(1) + confluent.message_indexes(indexes) + b"rest"
    assert confluent.split_message_indexes(value) == (indexes, b"rest")
    assert confluent.message_indexes((0,)) == b"\0"


JSON_SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "amount": {"oneOf": [{"type": "null"}, {"type": "number", "minimum": 0}]},
        "at": {"type": "string", "format": "date-time"},
        "day": {"type": "string", "format": "date"},
        "kind": {"enum": ["a", "b"]},
        "line": {"$ref": "#/definitions/line"},
        "address": {"$ref": "address.json"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
        "any": {"type": ["string", "integer"]},
    },
    "required": ["id"],
    "definitions": {"line": {"type": "object", "properties": {"sku": {"type": "string"}}}},
}
ADDRESS = Reference("address.json", json.dumps({"type": "object", "properties": {"city": {"type": "string"}}}))
JSON_ORDER = RegisteredSchema(6, SchemaKind.JSON, json.dumps(JSON_SCHEMA), (ADDRESS,))


def test_a_json_schema_gives_the_columns_and_rejects_what_does_not_match() -> None:
    pytest.importorskip("jsonschema", reason="JSON Schemas need pip install 'tidelog[registry]'")
    from tidelog.pipelines.formats import json_registry

    assert columns_ddl(json_schema_types.row_type(JSON_SCHEMA, {"address.json": json.loads(ADDRESS.text)}).arrow) == (
        "`id` bigint, `amount` double, `at` timestamp, `day` date, `kind` string, `line` struct<`sku`:string>,"
        " `address` struct<`city`:string>, `tags` array<string>, `counts` map<string,bigint>, `any` string"
    )
    good = {"id": 1.0, "amount": 2, "at": "2026-01-31T12:00:00Z", "day": "2026-01-31", "line": {"sku": "x"}}
    good |= {"address": {"city": "Bern"}, "tags": ["t"], "counts": {"n": 1}, "any": 5, "more": 1}
    texts = [json.dumps(good), '{"id": "x"}', '{"id": 1, "amount": -1}', '{"id": 1, "address": 1}', "{", "{}"]
    texts += ['{"id": 1, "at": "yesterday"}', '{"id": 99999999999999999999}', '{"id": NaN}', "5"]
    values = [confluent.prefix(6) + text.encode() for text in texts]
    decode = json_registry.decoder(Schemas(id6=JSON_ORDER), JSON_ORDER)
    row, *bad = decode(pa.array([*values, b"{}"], pa.binary())).to_pylist()
    assert (row["id"], row["amount"], row["day"], row["any"]) == (1, 2.0, date(2026, 1, 31), "5")
    assert (row["line"], row["address"], row["counts"]) == ({"sku": "x"}, {"city": "Bern"}, [("n", 1)])
    errors = [each["_error"] for each in bad]
    assert errors[0] == "the value does not match its schema: $.id: 'x' is not of type 'integer'"
    assert [error.partition(":")[0] for error in errors] == [
        *["the value does not match its schema"] * 3,
        "the value is not JSON",
        "the value does not match its schema",
        "the value is not JSON of its schema",
        "the value does not fit its columns",
        "the value is not JSON",
        "the value does not match its schema",
        "the value has no schema registry prefix",
    ]


def test_a_json_schema_that_columns_cannot_have_is_refused() -> None:
    tree = {"type": "object", "properties": {"child": {"$ref": "#"}}}
    with pytest.raises(FormatError, match="refers to # recursively"):
        json_schema_types.row_type(tree, {})
    with pytest.raises(FormatError, match="object with properties"):
        json_schema_types.row_type({"type": "string"}, {})
    with pytest.raises(FormatError, match="not among its references"):
        json_schema_types.row_type({"properties": {"a": {"$ref": "b.json"}}}, {})


class Recorded(BaseHTTPRequestHandler):
    """Answers as a registry of Confluent gives them."""

    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self.asked.append(path)
        if self.headers["Authorization"] != "Basic " + base64.b64encode(b"me:secret").decode():
            self._answer(401, {"error_code": 401, "message": "Unauthorized"})
        elif path == "/schemas/ids/1":
            self._answer(200, {"schema": json.dumps(FIRST)})
        elif path == "/subjects/orders-value/versions/latest":
            self._answer(200, {"subject": "orders-value", "version": 2, "id": 2, "schema": json.dumps(SECOND)})
        elif path.startswith("/schemas/"):
            self._answer(404, {"error_code": 40403, "message": "Schema 17 not found"})
        else:
            self._answer(404, {"error_code": 40401, "message": "Subject 'no-value' not found."})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append(self.path.partition("?")[0])
        if self.path.startswith("/compatibility/subjects/new-value"):
            self._answer(404, {"error_code": 40401, "message": "Subject 'new-value' not found."})
        elif self.path.startswith("/compatibility"):
            self._answer(200, {"is_compatible": "else" not in body["schema"]})
        elif "else" in body["schema"]:
            self._answer(409, {"error_code": 409, "message": "Schema being registered is incompatible"})
        else:
            self._answer(200, {"id": 5})

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def serving(tls: ssl.SSLContext | None = None) -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Recorded)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # of clients that are refused
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    Recorded.asked.clear()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def registry() -> Iterator[Registry]:
    pytest.importorskip("authlib", reason="the registry's client needs pip install 'tidelog[registry]'")
    with serving() as port:
        yield Registry(f"http://127.0.0.1:{port}", "me", "secret")


def test_a_schema_is_asked_for_once(registry: Registry) -> None:
    from tidelog.pipelines.formats.schema_registry import SchemaRegistry, UnknownSchema

    client = SchemaRegistry(registry)
    assert [json.loads(client.schema(1, AVRO).text) for _ in range(3)] == [FIRST] * 3
    assert Recorded.asked == ["/schemas/ids/1"]
    assert client.latest("orders-value", AVRO).id == 2
    with pytest.raises(UnknownSchema, match=r"schema 1 of the registry .* is AVRO, not JSON"):
        client.schema(1, SchemaKind.JSON)
    with pytest.raises(FormatError, match=r"'orders-value' of the registry .* is AVRO, not PROTOBUF"):
        client.latest("orders-value", SchemaKind.PROTOBUF)
    with pytest.raises(FormatError, match="has no subject 'no-value'"):
        client.latest("no-value", AVRO)


def test_an_unknown_id_is_asked_for_again_after_a_while(registry: Registry) -> None:
    from tidelog.pipelines.formats.schema_registry import UNKNOWN_FOR_S, SchemaRegistry, UnknownSchema

    now = 5.0
    client = SchemaRegistry(registry, lambda: now)
    for seconds, asked in ((0.0, 1), (UNKNOWN_FOR_S - 1, 1), (2.0, 2)):
        now += seconds
        with pytest.raises(UnknownSchema, match="has no schema 17"):
            client.schema(17, AVRO)
        assert Recorded.asked == ["/schemas/ids/17"] * asked


def test_a_check_registers_nothing(registry: Registry) -> None:
    from tidelog.pipelines.formats.schema_registry import SchemaRegistry

    client = SchemaRegistry(replace(registry, use=RegistryUse.CHECK))
    assert client.register("orders-value", avro(FIRST)) == 0
    with pytest.raises(FormatError, match="not compatible with that of 'orders-value'"):
        client.register("orders-value", avro(OTHER))
    assert client.register("new-value", avro(FIRST)) == 0
    assert {path.split("/")[1] for path in Recorded.asked} == {"compatibility"}


def test_schemas_of_a_check_are_saved_for_one_without_the_registry(registry: Registry, tmp_path: Path) -> None:
    online = replace(registry, use=RegistryUse.CHECK, copy=str(tmp_path / "schemas"))
    offline = replace(online, url="http://127.0.0.1:1", use=RegistryUse.OFFLINE)
    with pytest.raises(FormatError, match=r"no saved copy of 'orders-value' .*check once with the registry"):
        registry_of(offline).latest("orders-value", AVRO)
    found = registry_of(online).latest("orders-value", AVRO)
    assert registry_of(offline).latest("orders-value", AVRO) == found
    with pytest.raises(FormatError, match="is AVRO, not JSON"):
        registry_of(offline).latest("orders-value", SchemaKind.JSON)
    assert registry_of(offline).register("orders-value", avro(OTHER)) == 0
    (tmp_path / "schemas" / "orders-value.json").write_text("{")
    with pytest.raises(FormatError, match="cannot be read"):
        registry_of(offline).latest("orders-value", AVRO)


def test_a_schema_is_registered_or_refused(registry: Registry) -> None:
    from tidelog.pipelines.formats.schema_registry import SchemaRegistry

    client = SchemaRegistry(registry)
    assert client.register("orders-value", avro(FIRST)) == 5
    with pytest.raises(FormatError, match=r"refuses the schema of 'orders-value': .*incompatible"):
        client.register("orders-value", avro(OTHER))


def test_a_registry_that_is_away_or_unwilling_is_reported(registry: Registry) -> None:
    from tidelog.pipelines.formats.schema_registry import SchemaRegistry

    with pytest.raises(ConnectionError, match=r"the schema registry http://127.0.0.1:1 does not answer"):
        SchemaRegistry(Registry("http://127.0.0.1:1")).schema(1, AVRO)
    with pytest.raises(ConnectionError, match="Unauthorized"):
        SchemaRegistry(Registry(registry.url, "me", "wrong")).schema(1, AVRO)


def test_a_registry_over_tls_that_asks_for_a_certificate(tmp_path: Path) -> None:
    pytest.importorskip("authlib", reason="the registry's client needs pip install 'tidelog[registry]'")
    from tidelog.pipelines.formats.schema_registry import SchemaRegistry

    authority = Authority(tmp_path)
    server_certificate, own = authority.sign("server"), authority.sign("client")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority.certificate)
    context.load_cert_chain(server_certificate.location)
    context.verify_mode = ssl.CERT_REQUIRED
    with serving(context) as port:
        url, trusted = f"https://localhost:{port}", str(authority.certificate)
        registry = Registry(url, "me", "secret", trusted, str(own.location), str(own.location))
        assert json.loads(SchemaRegistry(registry).schema(1, AVRO).text) == FIRST
        for refused in (replace(registry, ca_file=None), replace(registry, certificate_file=None, key_file=None)):
            with pytest.raises(ConnectionError, match="does not answer"):
                SchemaRegistry(refused).schema(1, AVRO)


FILE = """
[sources.orders]
topic = "orders"
format = "avro"
{source}
[sinks.out]
from = "orders"
topic = "out"
format = "avro"
registry = "http://localhost:8081"
"""


def parsed(directory: Path, source: str) -> Pipeline:
    file = directory / "shop.toml"
    file.write_text(FILE.format(source=source))
    return load(file, {"SECRET": "s", "TIDELOG_BOOTSTRAP": "localhost:29092"})


def test_a_registry_in_a_file(tmp_path: Path) -> None:
    text = "registry = { url = 'https://r', user = 'me', password = '${SECRET}', ca = 'ca.pem' }"
    pipeline = parsed(tmp_path, text)
    source, sink = pipeline.sources[0], pipeline.sinks[0]
    assert isinstance(source, TopicSource)
    assert source.format.registry == Registry("https://r", "me", "s", str(tmp_path / "ca.pem"))
    assert (source.format.subject, sink.format.subject) == ("orders-value", "out-value")  # type: ignore[union-attr]
    assert "'s'" not in repr(source.format.registry)


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("registry = 'localhost:8081'", "expected a URL such as"),
        ("subject = 'x'\nschema_file = 'a.avsc'", "subject needs a registry"),
        ("registry = { url = 'http://a', usr = 'x' }", "did you mean 'user'"),
        ("registry = { url = 'https://a', key = 'me.key' }", "key needs the certificate"),
    ],
)
def test_mistakes_in_a_registry(tmp_path: Path, source: str, sentence: str) -> None:
    with pytest.raises(Mistakes) as found:
        parsed(tmp_path, source)
    assert sentence in str(found.value)
