"""Schemas of a registry with Confluent's REST interface: Avro, Protobuf and JSON Schema.

Read with Python's own HTTP client, and Protobuf as descriptors. Pipelines, which also register schemas, use Confluent's
client (`pipelines/formats/schema_registry.py`), which the console does not need.
"""

import asyncio
import base64
import json
import struct
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tidelog.cli.command_error import CommandError
from tidelog.cli.value_decoding import Decode, avro_decoder, missing, protobuf_decoder
from tidelog.pipelines.formats.confluent import BadPrefix, after_prefix, has_prefix, split_message_indexes

TIMEOUT_S = 5.0
RETRY_S = 30.0
"""A registry that did not answer, or does not know a schema, is asked again after this time."""
MAX_SCHEMAS = 500
MAX_ANSWER_BYTES = 4 * 1024 * 1024
MAX_REFERENCES = 100
NOT_FOUND = 404

Read = Callable[[str], Mapping[str, Any]]
"""The JSON answer of a path below the registry's address. Raises NoSchema."""


class NoSchema(Exception):
    """The message says why the value cannot be decoded."""


class Schema(NamedTuple):
    kind: str
    decode: Decode


class _Problem(NamedTuple):
    reason: str
    until_s: float


class SchemaRegistry:
    def __init__(self, read: Read) -> None:
        self._read = read
        self._schemas: dict[tuple[int, tuple[int, ...]], Schema] = {}
        self._problems: dict[int, _Problem] = {}
        self._asking = asyncio.Lock()

    async def schema_of(self, data: bytes) -> Schema | None:
        """None for a value without the registry's prefix. Raises NoSchema."""
        if not has_prefix(data):
            return None
        schema_id: int = struct.unpack_from(">I", data, 1)[0]
        # Only Protobuf has indexes, which say which message of the file it is; its schema is kept for each of them.
        known = self._schemas.get((schema_id, ())) or self._schemas.get((schema_id, _indexes(data)))
        return known or await self._ask(schema_id, data)

    async def _ask(self, schema_id: int, data: bytes) -> Schema:
        async with self._asking:
            problem = self._problems.get(schema_id)
            if problem is not None and time.monotonic() < problem.until_s:
                raise NoSchema(problem.reason)
            try:
                key, schema = await asyncio.to_thread(self._load, schema_id, data)
            except NoSchema as error:
                self._problems[schema_id] = _Problem(str(error), time.monotonic() + RETRY_S)
                if len(self._problems) > MAX_SCHEMAS:
                    del self._problems[next(iter(self._problems))]
                raise
            self._schemas[key] = schema
            if len(self._schemas) > MAX_SCHEMAS:
                del self._schemas[next(iter(self._schemas))]
            return schema

    def _load(self, schema_id: int, data: bytes) -> tuple[tuple[int, tuple[int, ...]], Schema]:
        found = self._read(f"/schemas/ids/{schema_id}")
        kind, text = str(found.get("schemaType", "AVRO")), str(found.get("schema", ""))
        try:
            if kind == "AVRO":
                return (schema_id, ()), Schema("avro", avro_decoder(text.encode()))
            if kind == "JSON":
                return (schema_id, ()), Schema("json schema", lambda value: json.loads(after_prefix(value)))
            if kind == "PROTOBUF":
                indexes = _indexes(data)
                return (schema_id, indexes), Schema("protobuf", self._protobuf(schema_id, indexes))
        except ImportError as error:
            raise NoSchema(missing(error)) from None
        except CommandError as error:
            raise NoSchema(str(error)) from None
        raise NoSchema(f"schema {schema_id} is of the unknown type {kind}")

    def _protobuf(self, schema_id: int, indexes: tuple[int, ...]) -> Decode:
        from google.protobuf import descriptor_pb2

        first = self._read(f"/schemas/ids/{schema_id}?format=serialized")
        names: dict[str, Mapping[str, Any]] = {}
        self._collect(first, names)
        files = descriptor_pb2.FileDescriptorSet()
        for name, answer in {**names, "": first}.items():
            file = _descriptor(answer)
            file.name = name or "default"
            files.file.append(file)
        return protobuf_decoder(files.SerializeToString(), _message_name(files.file[-1], indexes))

    def _collect(self, answer: Mapping[str, Any], found: dict[str, Mapping[str, Any]]) -> None:
        """The files that a schema imports, before those that import them."""
        for reference in answer.get("references") or []:
            name = str(reference["name"])
            if name in found or len(found) >= MAX_REFERENCES:
                continue
            subject = urllib.parse.quote(str(reference["subject"]), safe="")
            inner = self._read(f"/subjects/{subject}/versions/{int(reference['version'])}?format=serialized")
            self._collect(inner, found)
            found[name] = inner


def _indexes(data: bytes) -> tuple[int, ...]:
    try:
        return split_message_indexes(data)[0]
    except BadPrefix:
        return ()


def _descriptor(answer: Mapping[str, Any]) -> Any:
    from google.protobuf import descriptor_pb2

    try:
        content = base64.b64decode(str(answer.get("schema", "")), validate=True)
        return descriptor_pb2.FileDescriptorProto.FromString(content)
    except Exception:  # noqa: BLE001  # the text of the .proto file, which only protoc can read
        raise NoSchema("this registry has no serialized Protobuf schemas; use --schema with a descriptor set") from None


def _message_name(file: Any, indexes: tuple[int, ...]) -> str:
    names, messages = [file.package] if file.package else [], file.message_type
    for index in indexes or (0,):
        if not 0 <= index < len(messages):
            raise NoSchema("the schema has no message at the position that the value names")
        names.append(messages[index].name)
        messages = messages[index].nested_type
    return ".".join(names)


def reader_of(url: str, user_info: str | None) -> Read:
    """`user_info` is `user:password`."""
    base = url.rstrip("/")

    def read(path: str) -> Mapping[str, Any]:
        request = urllib.request.Request(base + path, headers={"Accept": "application/vnd.schemaregistry.v1+json"})
        if user_info:
            request.add_header("Authorization", f"Basic {base64.b64encode(user_info.encode()).decode()}")
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
                found = json.loads(response.read(MAX_ANSWER_BYTES))
        except urllib.error.HTTPError as error:
            with error:
                if error.code == NOT_FOUND:
                    raise NoSchema(f"the schema registry does not know {path.partition('?')[0]}") from None
                raise NoSchema(f"the schema registry answers {error.code}") from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or type(error).__name__
            raise NoSchema(f"the schema registry does not answer: {reason}") from None
        if not isinstance(found, dict):
            raise NoSchema("the schema registry answers something else than a schema")
        return found

    return read
