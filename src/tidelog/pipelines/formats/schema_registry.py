"""Client of a schema registry with Confluent's REST interface; a schema is asked for once per process."""

from functools import lru_cache
from typing import Any, NamedTuple

from tidelog.pipelines.definition.model import Registry
from tidelog.pipelines.formats import FormatError

NOT_FOUND = 404
TIMEOUT_S = 8.0
NEEDS_CLIENT = "A schema registry needs its client: pip install 'tidelog[registry]'"


class UnknownSchema(ValueError):
    """The registry has no schema of this id; the record is bad."""


class RegisteredSchema(NamedTuple):
    id: int
    text: str


class SchemaRegistry:
    def __init__(self, registry: Registry) -> None:
        try:
            from confluent_kafka.schema_registry import SchemaRegistryClient
        except ImportError as error:
            raise FormatError(NEEDS_CLIENT) from error
        settings: dict[str, Any] = {"url": registry.url, "timeout": TIMEOUT_S, "max.retries": 2}
        if registry.user is not None:
            settings["basic.auth.user.info"] = f"{registry.user}:{registry.password or ''}"
        if registry.ca_file is not None:
            settings["ssl.ca.location"] = registry.ca_file
        self._url = registry.url
        self._client: Any = SchemaRegistryClient(settings)
        self._known: dict[int, str] = {}

    def schema(self, schema_id: int) -> str:
        """Raises UnknownSchema, or ConnectionError if the registry cannot be asked."""
        if schema_id not in self._known:
            try:
                self._known[schema_id] = str(self._client.get_schema(schema_id).schema_str)
            except Exception as error:
                if getattr(error, "http_status_code", None) == NOT_FOUND:
                    raise UnknownSchema(f"the registry {self._url} has no schema {schema_id}") from error
                raise ConnectionError(self._problem(error)) from error
        return self._known[schema_id]

    def latest(self, subject: str) -> RegisteredSchema:
        """Raises FormatError."""
        try:
            found = self._client.get_latest_version(subject)
        except Exception as error:
            if getattr(error, "http_status_code", None) == NOT_FOUND:
                raise FormatError(f"The registry {self._url} has no subject '{subject}'") from error
            raise ConnectionError(self._problem(error)) from error
        return RegisteredSchema(int(found.schema_id), str(found.schema.schema_str))

    def register(self, subject: str, text: str) -> int:
        """The id of the schema, which is new or known already. Raises FormatError if it is not compatible."""
        from confluent_kafka import schema_registry

        kinds: Any = schema_registry
        try:
            return int(self._client.register_schema(subject, kinds.Schema(text, "AVRO")))
        except Exception as error:
            if getattr(error, "http_status_code", None) is not None:
                raise FormatError(f"The registry {self._url} refuses the schema of '{subject}': {error}") from error
            raise ConnectionError(self._problem(error)) from error

    def _problem(self, error: Exception) -> str:
        return f"the schema registry {self._url} does not answer: {error}"


@lru_cache(maxsize=8)
def registry_of(registry: Registry) -> SchemaRegistry:
    return SchemaRegistry(registry)
