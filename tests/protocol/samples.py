"""Random messages of any declared class and version, from a seed."""

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from tidelog.protocol.apis import APIS
from tidelog.protocol.fields import Array, Binary, Field, FieldType, Fixed, Nested, Records, Text
from tidelog.protocol.structs import Message, Struct

LETTERS = "abcdefghij-._0123456789éß漢𝄞"
TEXT_LENGTHS = (0, 1, 3, 10, 40, 126, 127, 128, 300)
RECORDS_SIZES = (0, 1, 61, 126, 127, 128, 200, 20_000)
ARRAY_LENGTHS = (0, 1, 1, 2, 3)
LONG_ARRAY = 130
FIRST_OWN_TAG = 10000
"""Tagged fields from here on are Tidelog's own: others skip them."""
BITS = {"b": 8, "h": 16, "i": 32, "q": 64}


def _all_messages() -> Iterator[tuple[type[Message], int]]:
    for api in APIS:
        for message in (api.request, api.response):
            for version in range(message.__versions__.first, message.__versions__.last + 1):
                yield message, version


ALL_MESSAGES = list(_all_messages())
"""Every declared class in every one of its versions."""


def for_messages(chosen: list[tuple[type[Message], int]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("message", "version"), chosen, ids=lambda value: getattr(value, "__name__", value))


for_all_messages = for_messages(ALL_MESSAGES)


def any_integer(random: Random, field: Field, code: str) -> int:
    high = 2 ** (BITS[code] - 1)
    return random.choice((0, -1, 1, high - 1, -high, random.randrange(-high, high)))


class Samples:
    def __init__(
        self, seed: int, integer: Callable[[Random, Field, str], int] = any_integer, *, last_tag: int | None = None
    ) -> None:
        self.random = Random(seed)
        self._integer = integer
        self._last_tag = last_tag

    def message(self, message: type[Message], version: int) -> Any:
        return self._struct(message, version)

    def _struct(self, struct: type[Struct], version: int) -> Any:
        values = {
            field.name: self._value(field, field.type, version)
            for field in struct.__fields__
            if version in field.versions and not self._is_left_out(field)
        }
        return struct(**values)

    def _is_left_out(self, field: Field) -> bool:
        return field.tag is not None and self._last_tag is not None and field.tag > self._last_tag

    def _value(self, field: Field, type_: FieldType, version: int) -> Any:
        if (
            version in field.nullable or (isinstance(type_, Nested) and field.tag is not None)
        ) and self.random.random() < 0.3:
            return None
        if field.tag is not None and self.random.random() < 0.5:
            return [] if isinstance(type_, Array) else field.default
        value = self._present(field, type_, version)
        # A tagged struct of defaults is not sent, and comes back as None.
        return None if field.tag is not None and isinstance(type_, Nested) and value == type_.struct() else value

    def _present(self, field: Field, type_: FieldType, version: int) -> Any:
        random = self.random
        match type_:
            case Fixed("d", _):
                return random.choice((0.0, 1.5, -(2.0**40), random.random()))
            case Fixed(code, _):
                return self._fixed(field, code)
            case Text():
                return self.text(random.choice(TEXT_LENGTHS))
            case Records() | Binary():
                return random.randbytes(random.choice(RECORDS_SIZES))
            case Nested(struct):
                return self._struct(struct, version)
            case Array(element):
                is_long = not isinstance(element, Nested) and random.random() < 0.05
                count = LONG_ARRAY if is_long else random.choice(ARRAY_LENGTHS)
                return [self._present(field, element, version) for _ in range(count)]

    def _fixed(self, field: Field, code: str) -> Any:
        if code == "?":
            return self.random.random() < 0.5
        if code == "16s":
            return self.random.randbytes(16)
        return self._integer(self.random, field, code)

    def text(self, length_bytes: int) -> str:
        """Random letters of one to four bytes each, `length_bytes` together."""
        text = ""
        left = length_bytes
        while left:
            letter = self.random.choice(LETTERS)
            if len(letter.encode()) <= left:
                text += letter
                left -= len(letter.encode())
        return text
