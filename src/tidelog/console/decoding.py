"""Decoding of keys and values for the page and the download: by a schema file, a schema registry, or as they are."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tidelog.cli.command_error import CommandError
from tidelog.cli.value_decoding import AVRO_SUFFIX, Decode, decoder_of
from tidelog.console.payload import MAX_SHOWN_BYTES, shown, shown_decoded
from tidelog.console.schema_registry import NoSchema, SchemaRegistry

MAX_PROBLEM_CHARACTERS = 200


class FileSchema(NamedTuple):
    kind: str
    decode: Decode


class Decoding:
    def __init__(self, files: Mapping[str, FileSchema] | None = None, registry: SchemaRegistry | None = None) -> None:
        self._files = files or {}
        self._registry = registry

    async def shown_key(self, data: bytes | None, max_bytes: int = MAX_SHOWN_BYTES) -> dict[str, object] | None:
        """Schemas of files are for values."""
        return await self._shown(None, data, max_bytes)

    async def shown_value(
        self, topic: str, data: bytes | None, max_bytes: int = MAX_SHOWN_BYTES
    ) -> dict[str, object] | None:
        return await self._shown(self._files.get(topic), data, max_bytes)

    async def _shown(self, file: FileSchema | None, data: bytes | None, max_bytes: int) -> dict[str, object] | None:
        """A value that its schema does not fit is shown as it is, with the reason."""
        if not data or (file is None and self._registry is None):
            return shown(data, max_bytes)
        try:
            schema = file or (await self._registry.schema_of(data) if self._registry else None)
            if schema is None:
                return shown(data, max_bytes)
            return shown_decoded(data, schema.kind, schema.decode(data), max_bytes)
        except NoSchema as problem:
            reason = str(problem)
        except Exception as error:  # noqa: BLE001  # bytes of anybody, decoded by libraries with errors of their own
            reason = f"not of its schema: {type(error).__name__}: {error}"
        return (shown(data, max_bytes) or {}) | {"problem": reason[:MAX_PROBLEM_CHARACTERS]}


AS_IT_IS = Decoding()


def file_schemas(options: Sequence[str]) -> dict[str, FileSchema]:
    """From `TOPIC=FILE` (Avro, .avsc) or `TOPIC=FILE:MESSAGE` (a Protobuf descriptor set). Raises CommandError."""
    found = {}
    for option in options:
        topic, separator, file = option.partition("=")
        if not topic or not separator or not file:
            raise CommandError(f"--schema: expected TOPIC=FILE or TOPIC=FILE:MESSAGE, found {option!r}")
        path, _, message = file.rpartition(":") if ":" in file else (file, "", "")
        kind = "avro" if path.endswith(AVRO_SUFFIX) else "protobuf"
        found[topic] = FileSchema(kind, decoder_of(path, message or None))
    return found
