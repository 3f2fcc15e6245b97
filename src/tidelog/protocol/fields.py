"""Declaration of message fields: type, and versions in which the field is on the wire.

The specifiers return a `Field`, which the metaclass of the messages collects; to a type checker they
return a value of the field's type, so that a declaration reads as an attribute with a default.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeAlias, TypeVar

from tidelog.types import ZERO_UUID, Uuid

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
    """A value of fixed size; `code` is its letter in `struct`."""

    code: str
    size_bytes: int


class Text(NamedTuple):
    """Length-prefixed UTF-8 string."""


class Records(NamedTuple):
    """Length-prefixed record batches, neither parsed nor copied."""


class Binary(NamedTuple):
    """Length-prefixed bytes, copied because they outlive the frame."""


class SharedList(list[T]):
    """Elements that several messages have in common, not changed any more.

    In an array declared with `may_be_shared` they are encoded once. A controller sends the same metadata to every
    broker, which may be thousands of partitions.
    """

    __slots__ = ("encoded",)

    def __init__(self, elements: Iterable[T]) -> None:
        super().__init__(elements)
        self.encoded: dict[str, bytes] = {}
        """By message and version."""


class Array(NamedTuple):
    element: "FieldType"
    may_be_shared: bool = False
    """Whether a SharedList in this field is encoded once for all messages."""


class Nested(NamedTuple):
    struct: type[Any]


FieldType: TypeAlias = Fixed | Text | Records | Binary | Array | Nested


class Field(NamedTuple):
    type: FieldType
    default: Any
    versions: Versions
    nullable: Versions = NO_VERSIONS
    tag: int | None = None
    name: str = ""


EMPTY_ARRAY: list[Any] = []
"""Default of an array field, recognised by identity: every message gets a new list."""

_NOT_GIVEN: Any = object()
"""The default is null if the field is nullable in all its versions, else the zero value of its type."""


def _field(
    zero: T, type_: FieldType, default: T | None, versions: str, nullable: str = "none", tag: int | None = None
) -> T:
    present_in, nullable_in = Versions.parse(versions), Versions.parse(nullable)
    if default is _NOT_GIVEN:
        default = None if nullable_in.first <= present_in.first and nullable_in.last >= present_in.last else zero
    return Field(type_, default, present_in, nullable_in, tag)  # type: ignore[return-value]


def boolean(*, versions: str = "0+", default: bool = False, tag: int | None = None) -> bool:
    return _field(False, Fixed("?", 1), default, versions, tag=tag)


def int8(*, versions: str = "0+", default: int = 0, tag: int | None = None) -> int:
    return _field(0, Fixed("b", 1), default, versions, tag=tag)


def int16(*, versions: str = "0+", default: int = 0, tag: int | None = None) -> int:
    return _field(0, Fixed("h", 2), default, versions, tag=tag)


def int32(*, versions: str = "0+", default: int = 0, tag: int | None = None) -> int:
    return _field(0, Fixed("i", 4), default, versions, tag=tag)


def int64(*, versions: str = "0+", default: int = 0, tag: int | None = None) -> int:
    return _field(0, Fixed("q", 8), default, versions, tag=tag)


def float64(*, versions: str = "0+", default: float = 0.0) -> float:
    return _field(0.0, Fixed("d", 8), default, versions)


def uuid(*, versions: str = "0+", tag: int | None = None) -> Uuid:
    return _field(ZERO_UUID, Fixed("16s", 16), ZERO_UUID, versions, tag=tag)


def string(
    *, versions: str = "0+", nullable: str = "none", default: str | None = _NOT_GIVEN, tag: int | None = None
) -> str:
    return _field("", Text(), default, versions, nullable, tag)


def record_batches(*, versions: str = "0+", nullable: str = "none") -> Any:
    zero: Any = b""
    return _field(zero, Records(), _NOT_GIVEN, versions, nullable)


def binary(
    *, versions: str = "0+", nullable: str = "none", default: bytes | None = _NOT_GIVEN, tag: int | None = None
) -> bytes:
    return _field(b"", Binary(), default, versions, nullable, tag)


def array(
    element: Callable[..., T],
    *,
    versions: str = "0+",
    nullable: str = "none",
    default: list[T] | None = _NOT_GIVEN,
    tag: int | None = None,
    may_be_shared: bool = False,
) -> list[T]:
    """`element` is a struct, or the specifier of a plain type: `array(int32)`."""
    if default == []:
        default = EMPTY_ARRAY
    element_type = Nested(element) if isinstance(element, type) else _type_of(element)
    return _field(EMPTY_ARRAY, Array(element_type, may_be_shared), default, versions, nullable, tag)


def nested(struct: type[T], *, versions: str = "0+", nullable: str = "none", tag: int | None = None) -> T | None:
    """One struct, or None. A tagged one is sent only if something in it differs from its default; if it may be null,
    its default is still the empty struct, and None is sent. One that is neither tagged nor nullable must be given."""
    return _field(None, Nested(struct), None, versions, nullable, tag)


def _type_of(specifier: Callable[..., Any]) -> FieldType:
    field = specifier()
    assert isinstance(field, Field)
    return field.type
