"""Copies of registered schemas on disk, for checks without the registry."""

import json
import os
from pathlib import Path
from urllib.parse import quote

from tidelog.pipelines.definition.model import Registry
from tidelog.pipelines.formats import FormatError
from tidelog.pipelines.formats.schema_registry import (
    UNREGISTERED_ID,
    Reference,
    RegisteredSchema,
    SchemaKind,
    Schemas,
    UnknownSchema,
)


def file_of(registry: Registry, subject: str) -> Path:
    return Path(registry.copy or ".", quote(subject, safe="") + ".json")


class SavedSchemas:
    """The saved copy in place of the registry. Nothing is registered."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def schema(self, schema_id: int, kind: SchemaKind) -> RegisteredSchema:
        raise UnknownSchema(f"schema {schema_id} is asked for only while records are read")

    def latest(self, subject: str, kind: SchemaKind) -> RegisteredSchema:
        file = file_of(self._registry, subject)
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
            references = tuple(Reference(each["name"], each["schema"]) for each in found["references"])
            saved = RegisteredSchema(int(found["id"]), str(found["schemaType"]), str(found["schema"]), references)
        except FileNotFoundError:
            raise FormatError(
                f"There is no saved copy of '{subject}' ({file}); check once with the registry, without --offline"
            ) from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise FormatError(f"The saved copy {file} of '{subject}' cannot be read: {error!r}") from error
        if saved.kind != kind:
            raise FormatError(f"Subject '{subject}' is {saved.kind}, not {kind} ({file})")
        return saved

    def register(self, subject: str, schema: RegisteredSchema) -> int:
        return UNREGISTERED_ID


class SavingSchemas:
    """A registry whose latest schemas are saved as they are asked for."""

    def __init__(self, asked: Schemas, registry: Registry) -> None:
        self._asked = asked
        self._registry = registry

    def schema(self, schema_id: int, kind: SchemaKind) -> RegisteredSchema:
        return self._asked.schema(schema_id, kind)

    def latest(self, subject: str, kind: SchemaKind) -> RegisteredSchema:
        found = self._asked.latest(subject, kind)
        content = {
            "subject": subject,
            "id": found.id,
            "schemaType": found.kind,
            "schema": found.text,
            "references": [{"name": name, "schema": text} for name, text in found.references],
        }
        file = file_of(self._registry, subject)
        new = file.with_name(f"{file.name}.{os.getpid()}.new")
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            new.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
            new.replace(file)
        except OSError as error:
            raise FormatError(f"The copy {file} of '{subject}' cannot be written: {error.strerror}") from error
        return found

    def register(self, subject: str, schema: RegisteredSchema) -> int:
        return self._asked.register(subject, schema)
