"""Decoding of keys and values for the page and the download: by a schema file, a schema registry, or as they are."""

from collections.abc import Mapping, Sequence

from tidelog.cli.command_error import CommandError
from tidelog.cli.value_decoding import AVRO_SUFFIX, decoder_of
from tidelog.console.payload import json_of, shown, shown_decoded
from tidelog.console.schema_registry import NoSchema, Schema, SchemaRegistry

MAX_PROBLEM_CHARACTERS = 200


class Decoding:
    def __init__(self, files: Mapping[str, Schema] | None = None, registry: SchemaRegistry | None = None) -> None:
        self._files = files or {}
        self._registry = registry

    async def shown_key(self, data: bytes | None) -> dict[str, object] | None:
        """Schemas of files are for values."""
        return await self._shown(None, data)

    async def shown_value(self, topic: str, data: bytes | None) -> dict[str, object] | None:
        return await self._shown(self._files.get(topic), data)

    async def decoded_key(self, data: bytes | None) -> str | None:
        """The JSON that a schema makes of it, with nothing cut; None if it has no schema, or does not fit it."""
        return await self._decoded(None, data)

    async def decoded_value(self, topic: str, data: bytes | None) -> str | None:
        return await self._decoded(self._files.get(topic), data)

    async def _decoded(self, file: Schema | None, data: bytes | None) -> str | None:
        try:
            schema = await self._schema_of(file, data)
            return None if schema is None or data is None else json_of(schema.decode(data))
        except Exception:  # noqa: BLE001  # bytes of anybody, decoded by libraries with errors of their own
            return None

    async def _shown(self, file: Schema | None, data: bytes | None) -> dict[str, object] | None:
        """A value that its schema does not fit is shown as it is, with the reason."""
        try:
            schema = await self._schema_of(file, data)
            if schema is None or data is None:
                return shown(data)
            return shown_decoded(data, schema.kind, schema.decode(data))
        except NoSchema as problem:
            reason = str(problem)
        except Exception as error:  # noqa: BLE001  # bytes of anybody, decoded by libraries with errors of their own
            reason = f"not of its schema: {type(error).__name__}: {error}"
        return (shown(data) or {}) | {"problem": reason[:MAX_PROBLEM_CHARACTERS]}

    async def _schema_of(self, file: Schema | None, data: bytes | None) -> Schema | None:
        """Raises NoSchema if the registry does not give the one that the data names."""
        if not data:
            return None
        return file or (await self._registry.schema_of(data) if self._registry else None)


AS_IT_IS = Decoding()


def file_schemas(options: Sequence[str]) -> dict[str, Schema]:
    """From `TOPIC=FILE` (Avro, .avsc) or `TOPIC=FILE:MESSAGE` (a Protobuf descriptor set). Raises CommandError."""
    found = {}
    for option in options:
        topic, separator, file = option.partition("=")
        if not topic or not separator or not file:
            raise CommandError(f"--schema: expected TOPIC=FILE or TOPIC=FILE:MESSAGE, found {option!r}")
        path, _, message = file.rpartition(":") if ":" in file else (file, "", "")
        kind = "avro" if path.endswith(AVRO_SUFFIX) else "protobuf"
        found[topic] = Schema(kind, decoder_of(path, message or None))
    return found
