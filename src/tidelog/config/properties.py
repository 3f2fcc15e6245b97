"""Parser for Java's .properties format, with line numbers."""

import re
from collections.abc import Iterator
from typing import NamedTuple

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_WHITE = " \t\f"
_SEPARATORS = "=:"
_KEY = re.compile(r"(?:\\.?|[^\\ \t\f=:])*", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.?))", re.DOTALL)


class Property(NamedTuple):
    key: str
    value: str
    line: int


def parse_properties(text: str) -> list[Property]:
    """Properties in order; a key may occur several times, and the last value counts in Java."""
    return [_property(line, number) for number, line in _logical_lines(text)]


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments and blanks, continuation lines joined, with the number of their first line."""
    lines = iter(enumerate(re.split(r"\r\n|\n|\r", text), start=1))
    for number, raw in lines:
        line = raw.lstrip(_WHITE)
        if not line or line[0] in "#!":
            continue
        while _is_continued(line):
            _, following = next(lines, (0, ""))
            line = line[:-1] + following.lstrip(_WHITE)
        yield number, line


def _is_continued(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _property(line: str, number: int) -> Property:
    key = _KEY.match(line)
    assert key is not None  # it may be empty
    rest = line[key.end() :].lstrip(_WHITE)
    if rest and rest[0] in _SEPARATORS:
        rest = rest[1:].lstrip(_WHITE)
    return Property(_unescape(key[0]), _unescape(rest), number)


def _unescape(text: str) -> str:
    return _ESCAPE.sub(_unescaped, text) if "\\" in text else text


def _unescaped(match: re.Match[str]) -> str:
    if match[1]:
        return chr(int(match[1], 16))
    return _ESCAPES.get(match[2], match[2])
