"""Conversion of Protobuf message types to column types, and of messages to rows and back."""

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from google.protobuf import (
    any_pb2,
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    json_format,
    message_factory,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)

from tidelog.pipelines.formats import FormatError
from tidelog.pipelines.formats.arrow_types import ColumnType, list_of

WELL_KNOWN_FILES = (any_pb2, duration_pb2, empty_pb2, field_mask_pb2, struct_pb2, timestamp_pb2, wrappers_pb2)
Field = descriptor_pb2.FieldDescriptorProto

SCALARS: Mapping[int, pa.DataType] = {
    Field.TYPE_DOUBLE: pa.float64(),
    Field.TYPE_FLOAT: pa.float32(),
    Field.TYPE_INT32: pa.int32(),
    Field.TYPE_SINT32: pa.int32(),
    Field.TYPE_SFIXED32: pa.int32(),
    Field.TYPE_UINT32: pa.int64(),
    Field.TYPE_FIXED32: pa.int64(),
    Field.TYPE_INT64: pa.int64(),
    Field.TYPE_SINT64: pa.int64(),
    Field.TYPE_SFIXED64: pa.int64(),
    Field.TYPE_UINT64: pa.decimal128(20, 0),
    Field.TYPE_FIXED64: pa.decimal128(20, 0),
    Field.TYPE_BOOL: pa.bool_(),
    Field.TYPE_STRING: pa.string(),
    Field.TYPE_BYTES: pa.binary(),
}

UNSIGNED_64 = frozenset({Field.TYPE_UINT64, Field.TYPE_FIXED64})
MICROSECONDS = 1_000_000


def files_of(descriptor_set: bytes) -> Any:
    """Raises FormatError."""
    try:
        return descriptor_pb2.FileDescriptorSet.FromString(descriptor_set).file
    except Exception as error:
        raise FormatError(
            "The schema file is not a descriptor set; make it with protoc --include_imports --descriptor_set_out=FILE"
        ) from error


def message_class(descriptor_set: bytes, name: str | None) -> Any:
    """The class of a message type in a file made by `protoc --descriptor_set_out`; raises FormatError."""
    files = files_of(descriptor_set)
    pool = descriptor_pool.DescriptorPool()
    pending = {file.name: file for file in [*_well_known(), *files]}
    while pending:
        ready = [file for file in pending.values() if not any(name in pending for name in file.dependency)]
        for file in ready:
            _add(pool, file)
            del pending[file.name]
        if not ready:
            raise FormatError(f"The descriptor set's files import each other in a cycle: {', '.join(pending)}")
    return message_factory.GetMessageClass(_find(pool, files, name))


def _well_known() -> list[Any]:
    found = []
    for module in WELL_KNOWN_FILES:
        file = descriptor_pb2.FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(file)
        found.append(file)
    return found


def _add(pool: Any, file: Any) -> None:
    try:
        pool.Add(file)
        pool.FindFileByName(file.name)
    except (TypeError, KeyError) as error:
        raise FormatError(
            f"The descriptor set is not complete ({file.name}); make it with protoc --include_imports"
        ) from error


def _find(pool: Any, files: Any, name: str | None) -> Any:
    names = [f"{file.package}.{message.name}".lstrip(".") for file in files for message in file.message_type]
    if name is None:
        if len(names) != 1:
            raise FormatError(f"Choose a message type: message = one of {', '.join(names)}")
        name = names[0]
    try:
        return pool.FindMessageTypeByName(name)
    except KeyError:
        raise FormatError(f"The descriptor set has no message '{name}'; it has {', '.join(names)}") from None


def indexes_of(descriptor: Any) -> tuple[int, ...]:
    """Place of a message type in its file: the index of the outermost type, then of each nested one."""
    outer = descriptor.containing_type
    if outer is None:
        return (list(descriptor.file.message_types_by_name).index(descriptor.name),)
    return (*indexes_of(outer), [nested.name for nested in outer.nested_types].index(descriptor.name))


def name_at(file: Any, indexes: tuple[int, ...]) -> str | None:
    """Full name of the message type at a place in a file; None if there is none."""
    names, types = [file.package] if file.package else [], file.message_type
    for index in indexes:
        if not 0 <= index < len(types):
            return None
        names.append(types[index].name)
        types = types[index].nested_type
    return ".".join(names)


def row_type(descriptor: Any) -> ColumnType:
    return _of_message(descriptor, ())


def _of_message(descriptor: Any, within: tuple[str, ...]) -> ColumnType:
    if descriptor.full_name in within:
        raise FormatError(f"Message {descriptor.full_name} is recursive; Spark has no recursive types")
    within = (*within, descriptor.full_name)
    fields = [(field, _of_field(field, within)) for field in descriptor.fields]
    kind = pa.struct([pa.field(field.name, column.arrow) for field, column in fields])
    getters = [(field.name, _getter(field, column.convert)) for field, column in fields]
    return ColumnType(kind, lambda message: {name: get(message) for name, get in getters})


def _of_field(field: Any, within: tuple[str, ...]) -> ColumnType:
    if is_map(field):
        entry = field.message_type.fields_by_name
        key, value = _of_value(entry["key"], within), _of_value(entry["value"], within)
        return ColumnType(pa.map_(key.arrow, value.arrow), _map_converter(key.convert, value.convert))
    column = _of_value(field, within)
    if not is_repeated(field):
        return column
    convert = column.convert
    return ColumnType(
        list_of(column.arrow), list if convert is None else lambda values: [convert(value) for value in values]
    )


def _of_value(field: Any, within: tuple[str, ...]) -> ColumnType:
    if field.type in SCALARS:
        return ColumnType(SCALARS[field.type], Decimal if field.type in UNSIGNED_64 else None)
    if field.type == Field.TYPE_ENUM:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        return ColumnType(pa.string(), lambda number: names.get(number, str(number)))
    return _well_known_type(field.message_type) or _of_message(field.message_type, within)


def _well_known_type(descriptor: Any) -> ColumnType | None:
    name = descriptor.full_name
    if name == "google.protobuf.Timestamp":
        return ColumnType(pa.timestamp("us", tz="UTC"), _microseconds)
    if name == "google.protobuf.Duration":
        return ColumnType(pa.int64(), _microseconds)
    if descriptor.file.name == "google/protobuf/wrappers.proto":
        kind = descriptor.fields_by_name["value"].type
        number = Decimal if kind in UNSIGNED_64 else None
        return ColumnType(SCALARS[kind], lambda wrapper: number(wrapper.value) if number else wrapper.value)
    if descriptor.file.package == "google.protobuf" or not descriptor.fields:
        return ColumnType(pa.string(), _json_text)
    return None


def _microseconds(message: Any) -> int:
    return int(message.seconds) * MICROSECONDS + int(message.nanos) // 1000


def _json_text(message: Any) -> str:
    return str(json_format.MessageToJson(message, indent=None, descriptor_pool=message.DESCRIPTOR.file.pool))


def _map_converter(
    key: Callable[[Any], Any] | None, value: Callable[[Any], Any] | None
) -> Callable[[Any], list[tuple[Any, Any]]]:
    return lambda entries: [
        (name if key is None else key(name), item if value is None else value(item)) for name, item in entries.items()
    ]


def _getter(field: Any, convert: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    name = field.name

    def get(message: Any) -> Any:
        value = getattr(message, name)
        return value if convert is None else convert(value)

    if not field.has_presence or is_repeated(field):
        return get
    return lambda message: get(message) if message.HasField(name) else None


def is_repeated(field: Any) -> bool:
    known = getattr(field, "is_repeated", None)
    return bool(field.label == Field.LABEL_REPEATED if known is None else known)


def is_map(field: Any) -> bool:
    return bool(field.type == Field.TYPE_MESSAGE and is_repeated(field) and field.message_type.GetOptions().map_entry)


def fill(message: Any, row: Mapping[str, Any]) -> None:
    """Columns go to the fields with their names; a null leaves the field unset. Raises ValueError with the field."""
    fields = message.DESCRIPTOR.fields_by_name
    for name, value in row.items():
        if name not in fields:
            raise ValueError(f"message {message.DESCRIPTOR.full_name} has no field '{name}'")
        if value is not None:
            try:
                _set(message, fields[name], value)
            except (TypeError, AttributeError, KeyError) as error:
                raise ValueError(f"field '{name}' of {message.DESCRIPTOR.full_name} cannot hold {value!r}") from error


def _set(message: Any, field: Any, value: Any) -> None:
    if is_map(field):
        _set_map(getattr(message, field.name), field.message_type.fields_by_name["value"], value)
    elif is_repeated(field):
        target = getattr(message, field.name)
        for item in value:
            if field.type == Field.TYPE_MESSAGE:
                _set_message(target.add(), item)
            else:
                target.append(_scalar(field, item))
    elif field.type == Field.TYPE_MESSAGE:
        target = getattr(message, field.name)
        target.SetInParent()
        _set_message(target, value)
    else:
        setattr(message, field.name, _scalar(field, value))


def _set_map(target: Any, field: Any, entries: Mapping[Any, Any]) -> None:
    for key, value in entries.items():
        if field.type == Field.TYPE_MESSAGE:
            _set_message(target[key], value)
        else:
            target[key] = _scalar(field, value)


def _set_message(target: Any, value: Any) -> None:
    name = target.DESCRIPTOR.full_name
    if name in ("google.protobuf.Timestamp", "google.protobuf.Duration"):
        target.seconds, microseconds = divmod(_as_microseconds(value), MICROSECONDS)
        target.nanos = microseconds * 1000
    elif target.DESCRIPTOR.file.name == "google/protobuf/wrappers.proto":
        target.value = _scalar(target.DESCRIPTOR.fields_by_name["value"], value)
    elif isinstance(value, str):
        json_format.Parse(value, target)
    else:
        fill(target, value)


def _as_microseconds(value: Any) -> int:
    if isinstance(value, datetime):
        moment = value if value.tzinfo else value.replace(tzinfo=UTC)
        since = moment - datetime(1970, 1, 1, tzinfo=UTC)
        return (since.days * 86_400 + since.seconds) * MICROSECONDS + since.microseconds
    return int(value)


def _scalar(field: Any, value: Any) -> Any:
    if field.type == Field.TYPE_ENUM:
        return field.enum_type.values_by_name[value].number if isinstance(value, str) else value
    if isinstance(value, Decimal):
        return float(value) if field.type in (Field.TYPE_DOUBLE, Field.TYPE_FLOAT) else int(value)
    return value.isoformat() if isinstance(value, (date, datetime)) else value
