"""Client of a schema registry with Confluent's REST interface; a schema is asked for once per process."""

import time
from collections.abc import Callable
from enum import StrEnum
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

from tidelog.pipelines.definition.model import Registry, RegistryUse
from tidelog.pipelines.formats import FormatError

NOT_FOUND = 404
TIMEOUT_S = 8.0
UNKNOWN_FOR_S = 30.0
"""An unknown id is asked for again after this time: a registry of several nodes may learn of it a little later."""
MAX_REFERENCES = 256
UNREGISTERED_ID = 0
"""Id in the prefix while a pipeline is only checked; nothing is written then."""
NEEDS_CLIENT = "A schema registry needs its client: pip install 'tidelog[registry]'"


class SchemaKind(StrEnum):
    AVRO = "AVRO"
    PROTOBUF = "PROTOBUF"
    JSON = "JSON"


class UnknownSchema(ValueError):
    """The registry has no schema of this id and kind; the record is bad."""


class Reference(NamedTuple):
    """Another schema, under the name by which a schema refers to it."""

    name: str
    text: str


class RegisteredSchema(NamedTuple):
    id: int
    kind: str
    text: str
    references: tuple[Reference, ...] = ()
    """Also those of references; each comes after those that it refers to."""


class Schemas(Protocol):
    def schema(self, schema_id: int, kind: SchemaKind) -> RegisteredSchema: ...

    def latest(self, subject: str, kind: SchemaKind) -> RegisteredSchema: ...

    def register(self, subject: str, schema: RegisteredSchema) -> int: ...


class SchemaRegistry:
    def __init__(self, registry: Registry, clock: Callable[[], float] = time.monotonic) -> None:
        try:
            from confluent_kafka.schema_registry import SchemaRegistryClient
        except ImportError as error:
            raise FormatError(NEEDS_CLIENT) from error
        self._url = registry.url
        self._is_check = registry.use is RegistryUse.CHECK
        self._client: Any = SchemaRegistryClient(_settings(registry))
        self._clock = clock
        self._known: dict[int, RegisteredSchema] = {}
        self._unknown_until: dict[int, float] = {}

    def schema(self, schema_id: int, kind: SchemaKind) -> RegisteredSchema:
        """Raises UnknownSchema, or ConnectionError if the registry cannot be asked."""
        found = self._known.get(schema_id)
        if found is None:
            found = self._known[schema_id] = self._asked(schema_id)
        if found.kind != kind:
            raise UnknownSchema(f"schema {schema_id} of the registry {self._url} is {found.kind}, not {kind}")
        return found

    def _asked(self, schema_id: int) -> RegisteredSchema:
        sentence = f"the registry {self._url} has no schema {schema_id}"
        if self._clock() < self._unknown_until.get(schema_id, 0.0):
            raise UnknownSchema(sentence)
        try:
            return self._registered(schema_id, self._client.get_schema(schema_id))
        except FormatError:
            raise
        except Exception as error:
            if getattr(error, "http_status_code", None) != NOT_FOUND:
                raise ConnectionError(self._problem(error)) from error
            self._unknown_until[schema_id] = self._clock() + UNKNOWN_FOR_S
            raise UnknownSchema(sentence) from error

    def latest(self, subject: str, kind: SchemaKind) -> RegisteredSchema:
        """Raises FormatError, or ConnectionError."""
        try:
            version = self._client.get_latest_version(subject)
            found = self._registered(int(version.schema_id), version.schema)
        except FormatError:
            raise
        except Exception as error:
            if getattr(error, "http_status_code", None) == NOT_FOUND:
                raise FormatError(f"The registry {self._url} has no subject '{subject}'") from error
            raise ConnectionError(self._problem(error)) from error
        if found.kind != kind:
            raise FormatError(f"Subject '{subject}' of the registry {self._url} is {found.kind}, not {kind}")
        return found

    def _registered(self, schema_id: int, schema: Any) -> RegisteredSchema:
        references: dict[str, Reference] = {}
        self._collect(schema, references)
        return RegisteredSchema(
            schema_id, schema.schema_type or SchemaKind.AVRO, str(schema.schema_str), tuple(references.values())
        )

    def _collect(self, schema: Any, found: dict[str, Reference]) -> None:
        for reference in schema.references or ():
            if reference.name in found:
                continue
            if len(found) >= MAX_REFERENCES:
                raise FormatError(f"A schema of the registry {self._url} has more than {MAX_REFERENCES} references")
            other = self._client.get_version(reference.subject, reference.version).schema
            self._collect(other, found)
            found[reference.name] = Reference(reference.name, str(other.schema_str))

    def register(self, subject: str, schema: RegisteredSchema) -> int:
        """The id of the schema, which is new or known already. Raises FormatError if it is not compatible.

        References are registered under their names. A check registers nothing, it only asks for compatibility."""
        try:
            if self._is_check:
                self._reject_incompatible(subject, schema)
                return UNREGISTERED_ID
            references: list[Any] = []
            for reference in schema.references:
                references.append(self._registered_reference(schema.kind, reference, references))
            return int(self._client.register_schema(subject, _schema(schema, references)))
        except FormatError:
            raise
        except Exception as error:
            if getattr(error, "http_status_code", None) is not None:
                raise FormatError(f"The registry {self._url} refuses the schema of '{subject}': {error}") from error
            raise ConnectionError(self._problem(error)) from error

    def _registered_reference(self, kind: str, reference: Reference, earlier: list[Any]) -> Any:
        from confluent_kafka import schema_registry

        kinds: Any = schema_registry
        schema = _schema(RegisteredSchema(0, kind, reference.text), list(earlier))
        self._client.register_schema(reference.name, schema)
        version = self._client.lookup_schema(reference.name, schema).version
        return kinds.SchemaReference(reference.name, reference.name, version)

    def _reject_incompatible(self, subject: str, schema: RegisteredSchema) -> None:
        """A new subject takes any schema. One with references cannot be compared before these are registered."""
        if schema.references:
            return
        try:
            is_compatible = self._client.test_compatibility(subject, _schema(schema, []))
        except Exception as error:
            if getattr(error, "http_status_code", None) == NOT_FOUND:
                return
            raise
        if not is_compatible:
            raise FormatError(f"The schema is not compatible with that of '{subject}' in the registry {self._url}")

    def _problem(self, error: Exception) -> str:
        return f"the schema registry {self._url} does not answer: {error}"


def _schema(schema: RegisteredSchema, references: list[Any]) -> Any:
    from confluent_kafka import schema_registry

    kinds: Any = schema_registry
    return kinds.Schema(schema.text, str(schema.kind), references)


def _settings(registry: Registry) -> dict[str, Any]:
    settings: dict[str, Any] = {"url": registry.url, "timeout": TIMEOUT_S, "max.retries": 2}
    if registry.user is not None:
        settings["basic.auth.user.info"] = f"{registry.user}:{registry.password or ''}"
    files = {
        "ssl.ca.location": registry.ca_file,
        "ssl.certificate.location": registry.certificate_file,
        "ssl.key.location": registry.key_file,
    }
    return settings | {name: file for name, file in files.items() if file is not None}


@lru_cache(maxsize=8)
def registry_of(registry: Registry) -> Schemas:
    from tidelog.pipelines.formats.saved_schemas import SavedSchemas, SavingSchemas

    if registry.use is RegistryUse.OFFLINE:
        return SavedSchemas(registry)
    asked = SchemaRegistry(registry)
    return asked if registry.copy is None else SavingSchemas(asked, registry)
