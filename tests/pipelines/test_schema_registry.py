"""Avro by the schema id in the record, from a stand-in for a registry with Confluent's REST interface."""

import base64
import io
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import fastavro
import pyarrow as pa
import pytest

from tidelog.pipelines.definition.mistakes import Mistakes
from tidelog.pipelines.definition.model import Pipeline, Registry, TopicSource
from tidelog.pipelines.definition.parsing import load
from tidelog.pipelines.formats import FormatError, avro_registry, confluent


def record(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "Order", "fields": list(fields)}


ID, NAME = {"name": "id", "type": "long"}, {"name": "name", "type": "string"}
FIRST = record(ID, NAME)
SECOND = record(ID, {"name": "amount", "type": "double", "default": 1.5}, NAME)
OTHER = record({"name": "else", "type": "long"})


def encoded(schema: dict[str, Any], schema_id: int, row: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), row)
    return confluent.prefix(schema_id) + stream.getvalue()


class Schemas:
    """Of a registry, in memory."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def schema(self, schema_id: int) -> str:
        self.asked.append(schema_id)
        if schema_id == 9:
            raise ConnectionError("away")
        return json.dumps({1: FIRST, 2: SECOND, 3: OTHER}[schema_id])


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
        if "else" in body["schema"]:
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


@pytest.fixture
def registry() -> Iterator[Registry]:
    pytest.importorskip("authlib", reason="the registry's client needs pip install 'tidelog[registry]'")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Recorded)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    Recorded.asked.clear()
    yield Registry(f"http://127.0.0.1:{server.server_port}", "me", "secret")
    server.shutdown()
    server.server_close()


def test_a_schema_is_asked_for_once(registry: Registry) -> None:
    from tidelog.pipelines.formats.schema_registry import SchemaRegistry, UnknownSchema

    client = SchemaRegistry(registry)
    assert [json.loads(client.schema(1)) for _ in range(3)] == [FIRST] * 3
    assert Recorded.asked == ["/schemas/ids/1"]
    assert client.latest("orders-value").id == 2
    with pytest.raises(UnknownSchema, match="has no schema 17"):
        client.schema(17)
    with pytest.raises(FormatError, match="has no subject 'no-value'"):
        client.latest("no-value")


def test_a_schema_is_registered_or_refused(registry: Registry) -> None:
    from tidelog.pipelines.formats.schema_registry import SchemaRegistry

    client = SchemaRegistry(registry)
    assert client.register("orders-value", json.dumps(FIRST)) == 5
    with pytest.raises(FormatError, match=r"refuses the schema of 'orders-value': .*incompatible"):
        client.register("orders-value", json.dumps(OTHER))


def test_a_registry_that_is_away_or_unwilling_is_told(registry: Registry) -> None:
    from tidelog.pipelines.formats.schema_registry import SchemaRegistry

    with pytest.raises(ConnectionError, match=r"the schema registry http://127.0.0.1:1 does not answer"):
        SchemaRegistry(Registry("http://127.0.0.1:1")).schema(1)
    with pytest.raises(ConnectionError, match="Unauthorized"):
        SchemaRegistry(Registry(registry.url, "me", "wrong")).schema(1)


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
    ],
)
def test_mistakes_in_a_registry(tmp_path: Path, source: str, sentence: str) -> None:
    with pytest.raises(Mistakes) as found:
        parsed(tmp_path, source)
    assert sentence in str(found.value)
