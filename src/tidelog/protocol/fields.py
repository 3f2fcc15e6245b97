"""The vocabulary in which messages are declared: what a field holds, and in which versions it is on the wire.

The specifiers return a `Field`, which the metaclass of the messages collects; to a type checker they
return a value of the field's type, so that a declaration reads as an attribute with a default.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias, TypeVar

from tidelog.types import ZERO_UUID

T = TypeVar("T")

LAST_VERSION = 32767


class Versions(NamedTuple):
    first: int
    last: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"

    @classmethod
    def parse(cls, text: str) -> "Versions":
        """`3+`, `0-12`, `4`, or `none`."""
        if text == "none":
            return NO_VERSIONS
        if text.endswith("+"):
            return cls(int(text[:-1]), LAST_VERSION)
        first, _, last = text.partition("-")
        return cls(int(first), int(last or first))


NO_VERSIONS = Versions(0, -1)


class Fixed(NamedTuple):
    """A value of always the same size; `code` is its letter in `struct`."""

    code: str
    size_bytes: int


class Text(NamedTuple):
    """UTF-8 behind its length."""


class Records(NamedTuple):
    """Record batches behind their length, never looked into and never copied."""


class Array(NamedTuple):
    element: "FieldType"


class Nested(NamedTuple):
    struct: type[Any]


FieldType: TypeAlias = Fixed | Text | Records | Array | Nested


class Field(NamedTuple):
    type: FieldType
    default: Any
    versions: Versions
    nullable: Versions = NO_VERSIONS
    tag: int | None = None
    name: str = ""


EMPTY_ARRAY = object()
"""The default of an array field: a new list for every message."""

_FIELD_DEFAULT: Any = object()
"""Stands for "not given": null where the field may be null, else the zero of its type."""


def _field(type_: FieldType, zero: object, default: object, versions: str, nullable: str, tag: int | None) -> Any:
    nullable_in = Versions.parse(nullable)
    if default is _FIELD_DEFAULT:
        default = zero if nullable_in == NO_VERSIONS else None
    return Field(type_, default, Versions.parse(versions), nullable_in, tag)


def boolean(*, versions: str = "0+", default: bool = False, tag: int | None = None) -> bool:
    return _field(Fixed("?", 1), False, default, versions, "none", tag)  # type: ignore[no-any-return]


def int8(*, versions: str = "0+", default: int = 0, tag: int | None = None) -> int:
    return _field(Fixed("b", 1), 0, default, versions, "none", tag)  # type: ignore[no-any-return]


def int16(*, versions: str = "0+", default: int = 0, tag: int | None = None) -> int:
    return _field(Fixed("h", 2), 0, default, versions, "none", tag)  # type: ignore[no-any-return]


def int32(*, versions: str = "0+", default: int = 0, tag: int | None = None) -> int:
    return _field(Fixed("i", 4), 0, default, versions, "none", tag)  # type: ignore[no-any-return]


def int64(*, versions: str = "0+", default: int = 0, tag: int | None = None) -> int:
    return _field(Fixed("q", 8), 0, default, versions, "none", tag)  # type: ignore[no-any-return]


def uuid(*, versions: str = "0+", tag: int | None = None) -> bytes:
    return _field(Fixed("16s", 16), ZERO_UUID, ZERO_UUID, versions, "none", tag)  # type: ignore[no-any-return]


def string(
    *, versions: str = "0+", nullable: str = "none", default: str | None = _FIELD_DEFAULT, tag: int | None = None
) -> Any:
    return _field(Text(), "", default, versions, nullable, tag)


def record_batches(*, versions: str = "0+", nullable: str = "none") -> Any:
    return _field(Records(), b"", _FIELD_DEFAULT, versions, nullable, None)


def array(
    element: Callable[..., T],
    *,
    versions: str = "0+",
    nullable: str = "none",
    default: list[T] | None = _FIELD_DEFAULT,
    tag: int | None = None,
) -> list[T]:
    """`element` is a struct, or the specifier of a plain type: `array(int32)`."""
    if default == []:
        default = EMPTY_ARRAY  # type: ignore[assignment]
    element_type = Nested(element) if isinstance(element, type) else _type_of(element)
    return _field(Array(element_type), EMPTY_ARRAY, default, versions, nullable, tag)  # type: ignore[no-any-return]


def nested(struct: type[T], *, versions: str = "0+", nullable: str = "none", tag: int | None = None) -> T | None:
    """One struct, or None. A tagged one is sent only if something in it differs from its default."""
    return _field(Nested(struct), None, None, versions, nullable, tag)  # type: ignore[no-any-return]


def _type_of(specifier: Callable[..., Any]) -> FieldType:
    field = specifier()
    assert isinstance(field, Field)
    return field.type
