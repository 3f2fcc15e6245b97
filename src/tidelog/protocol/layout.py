"""Wire layout of one version of a struct: fields, their order, and the minimum size."""

from collections.abc import Iterator

from tidelog.protocol.fields import Array, Binary, Field, FieldType, Fixed, Nested, Records, Text
from tidelog.protocol.structs import Struct


def plain_fields(struct: type[Struct], version: int) -> list[Field]:
    return [field for field in struct.__fields__ if field.tag is None and version in field.versions]


def tagged_fields(struct: type[Struct], version: int) -> list[Field]:
    found = [field for field in struct.__fields__ if field.tag is not None and version in field.versions]
    return sorted(found, key=lambda field: field.tag or 0)


def absent_fields(struct: type[Struct], version: int) -> Iterator[Field]:
    return (field for field in struct.__fields__ if version not in field.versions)


def minimum_bytes(type_: FieldType, version: int, flexible: bool) -> int:
    """The smallest encoding of a value that is not null."""
    match type_:
        case Fixed(_, size_bytes):
            return size_bytes
        case Text():
            return 1 if flexible else 2
        case Records() | Binary() | Array():
            return 1 if flexible else 4
        case Nested(struct):
            return struct_minimum_bytes(struct, version, flexible)


def struct_minimum_bytes(struct: type[Struct], version: int, flexible: bool) -> int:
    total = 1 if flexible else 0
    for field in plain_fields(struct, version):
        # A nullable struct can be a single byte, which marks it as null.
        total += 1 if isinstance(field.type, Nested) else minimum_bytes(field.type, version, flexible)
    return total
