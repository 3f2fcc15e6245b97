"""JSON values whose JSON Schema is in a registry: validated by the schema of each record, into the columns of one."""

import json
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812

from tidelog.pipelines.definition.model import Format, Registry
from tidelog.pipelines.formats import FormatError, confluent
from tidelog.pipelines.formats.arrow_types import columns_ddl
from tidelog.pipelines.formats.confluent import after_prefix, schema_id_in
from tidelog.pipelines.formats.json_schema_types import row_type, schema_of_rows
from tidelog.pipelines.formats.parsed_rows import payload
from tidelog.pipelines.formats.python_rows import parsed_by, row_type_of
from tidelog.pipelines.formats.registry_rows import NotTheSchema, rows_decoder
from tidelog.pipelines.formats.schema_files import json_text
from tidelog.pipelines.formats.schema_registry import RegisteredSchema, SchemaKind, Schemas, registry_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

NEEDS_JSON_SCHEMA = "JSON Schemas of a registry need a validator: pip install 'tidelog[registry]'"


def parse(frame: "DataFrame", how: Format, registry: Registry) -> "DataFrame":
    """The columns are those of the latest schema, or of `schema_file`, for the whole run."""
    if how.schema_file is None:
        columns = registry_of(registry).latest(how.subject or "", SchemaKind.JSON)
    else:
        columns = RegisteredSchema(0, SchemaKind.JSON, schema_text(how))
    row = row_type(*_documents(columns))

    def decode(values: pa.Array) -> pa.Array:
        return decoder(registry_of(registry), columns)(values)

    return parsed_by(frame, how, decode, columns_ddl(row.arrow))


def serialise(frame: "DataFrame", how: Format, registry: Registry) -> "Column":
    text = json.dumps(schema_of_rows(row_type_of(frame))) if how.schema_file is None else schema_text(how)
    schema_id = registry_of(registry).register(how.subject or "", RegisteredSchema(0, SchemaKind.JSON, text))
    value = F.to_json(payload(frame), dict(how.options)).cast("binary")
    return F.concat(F.lit(confluent.prefix(schema_id)), value)


def schema_text(how: Format) -> str:
    assert how.schema_file is not None
    return json_text(how.schema_file, "JSON Schema")


def decoder(schemas: Schemas, columns: RegisteredSchema) -> Callable[[pa.Array], pa.Array]:
    column = row_type(*_documents(columns))

    def read(value: bytes) -> Any:
        content = after_prefix(value)
        problem_of = _validator(schemas.schema(schema_id_in(value), SchemaKind.JSON))
        row = _loaded(content)
        problem = problem_of(row)
        if problem is not None:
            raise NotTheSchema(f"the value does not match its schema: {problem}")
        if not isinstance(row, dict):
            raise NotTheSchema("the value is JSON, but not a single object")
        assert column.convert is not None
        return column.convert(row)

    return rows_decoder(read, column.arrow, "JSON")


def _loaded(content: bytes) -> Any:
    try:
        return json.loads(content, parse_constant=_no_number)
    except ValueError as error:
        raise NotTheSchema("the value is not JSON") from error


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _documents(schema: RegisteredSchema) -> tuple[Any, dict[str, Any]]:
    return json.loads(schema.text), {name: json.loads(text) for name, text in schema.references}


@lru_cache(maxsize=256)
def _validator(schema: RegisteredSchema) -> Callable[[Any], str | None]:
    """Gives the first difference between a value and the schema."""
    try:
        from jsonschema import Draft7Validator, validators
        from jsonschema.exceptions import best_match
        from referencing import Registry as Resources
        from referencing import Resource
        from referencing.jsonschema import DRAFT7
    except ImportError as error:
        raise FormatError(NEEDS_JSON_SCHEMA) from error
    document, others = _documents(schema)
    resources = [(name, Resource.from_contents(other, DRAFT7)) for name, other in others.items()]
    validator = validators.validator_for(document, Draft7Validator)(
        document, registry=Resources().with_resources(resources)
    )

    def problem_of(value: Any) -> str | None:
        found = best_match(validator.iter_errors(value))
        return None if found is None else f"{found.json_path}: {found.message}"

    return problem_of
