"""Line numbers of the keys of a TOML file, which tomllib does not provide."""

import bisect
from collections.abc import Sequence
from typing import TypeAlias

KeyPath: TypeAlias = tuple[str | int, ...]
"""Keys and, in arrays, positions counted from 0: ("steps", 1, "window", "size")."""

_SPACE = " \t\r"
_BARE_END = ",]}#\n"
_QUOTES = ('"""', "'''", '"', "'")


class Lines:
    """Line numbers of a text that tomllib has accepted."""

    def __init__(self, text: str) -> None:
        scanner = _Scanner(text)
        scanner.scan()
        self._keys = scanner.keys
        self._texts = scanner.texts

    def of(self, path: KeyPath) -> int:
        """Counted from 1. For a missing key: the line of the nearest enclosing table."""
        for length in range(len(path), 0, -1):
            if path[:length] in self._keys:
                return self._keys[path[:length]]
        return 1

    def has(self, path: KeyPath) -> bool:
        return path in self._keys

    def of_setting(self, table: KeyPath, name: str) -> KeyPath:
        """Path of a name with dots, quoted or not; the path of the table if the name is missing."""
        if (*table, name) in self._keys:
            return (*table, name)
        for dot in (index for index, character in enumerate(name) if character == "."):
            outer = (*table, name[:dot])
            if outer in self._keys:
                inner = self.of_setting(outer, name[dot + 1 :])
                if inner != outer:
                    return inner
        return table

    def within(self, path: KeyPath, newlines: int) -> int:
        """The line inside a string value, after this many line breaks."""
        return self._texts[path] + newlines if path in self._texts else self.of(path)


class _Scanner:
    """Finds keys and strings; does not interpret values."""

    def __init__(self, text: str) -> None:
        self._text = text.replace("\r\n", "\n") + "\n"
        self._position = 0
        self._line_ends = [index for index, character in enumerate(self._text) if character == "\n"]
        self._table: KeyPath = ()
        self._array_lengths: dict[KeyPath, int] = {}
        self.keys: dict[KeyPath, int] = {}
        self.texts: dict[KeyPath, int] = {}

    def scan(self) -> None:
        while self._skip_blank():
            if self._text[self._position] == "[":
                self._header()
            else:
                self._pair(self._table)

    def _header(self) -> None:
        is_array = self._text.startswith("[[", self._position)
        line = self._line()
        self._position += 2 if is_array else 1
        keys = self._dotted_key()
        self._position += 2 if is_array else 1
        path: KeyPath = ()
        for key in keys[:-1]:
            path = self._last_element((*path, key))
        path = (*path, keys[-1])
        if is_array:
            self.keys.setdefault(path, line)
            length = self._array_lengths.get(path, 0)
            self._array_lengths[path] = length + 1
            path = (*path, length)
        self._note(path, line)
        self._table = path

    def _last_element(self, path: KeyPath) -> KeyPath:
        """A header below an array of tables refers to its last element."""
        length = self._array_lengths.get(path)
        return path if length is None else (*path, length - 1)

    def _note(self, path: KeyPath, line: int) -> None:
        for length in range(1, len(path)):
            self.keys.setdefault(path[:length], line)
        self.keys[path] = line

    def _pair(self, table: KeyPath) -> None:
        line = self._line()
        path = (*table, *self._dotted_key())
        self._note(path, line)
        self._position += 1  # the equals sign
        self._value(path)

    def _dotted_key(self) -> Sequence[str]:
        """Up to the next character, which is = or ]."""
        parts = []
        while True:
            self._skip(_SPACE)
            parts.append(self._key())
            self._skip(_SPACE)
            if self._text[self._position] != ".":
                return parts
            self._position += 1

    def _key(self) -> str:
        if self._text[self._position] in "\"'":
            quoted = self._string()
            return _unescaped(quoted) if quoted[0] == '"' else quoted[1:-1]
        start = self._position
        while self._text[self._position] not in " \t.=]":
            self._position += 1
        return self._text[start : self._position]

    def _value(self, path: KeyPath) -> None:
        self._skip(_SPACE)
        first = self._text[self._position]
        if first == "{":
            self._inline_table(path)
        elif first == "[":
            self._array(path)
        elif first in "\"'":
            self._text_value(path)
        else:
            while self._text[self._position] not in _BARE_END:
                self._position += 1

    def _text_value(self, path: KeyPath) -> None:
        line = self._line()
        quote = self._string_quote()
        is_on_next_line = len(quote) == 3 and self._text[self._position + 3] == "\n"
        self._string()
        self.texts[path] = line + is_on_next_line

    def _inline_table(self, path: KeyPath) -> None:
        self._position += 1
        while self._skip_blank(",") and self._text[self._position] != "}":
            self._pair(path)
        self._position += 1

    def _array(self, path: KeyPath) -> None:
        self._position += 1
        index = 0
        while self._skip_blank(",") and self._text[self._position] != "]":
            self._note((*path, index), self._line())
            self._value((*path, index))
            index += 1
        self._position += 1

    def _string_quote(self) -> str:
        return next(quote for quote in _QUOTES if self._text.startswith(quote, self._position))

    def _string(self) -> str:
        """Including the quotes."""
        start, quote = self._position, self._string_quote()
        self._position += len(quote)
        while not self._text.startswith(quote, self._position):
            is_escape = quote[0] == '"' and self._text[self._position] == "\\"
            self._position += 2 if is_escape else 1
        self._position += len(quote)
        while len(quote) == 3 and self._text[self._position] == quote[0]:
            self._position += 1  # a quote that belongs to the content, before the closing quotes
        return self._text[start : self._position]

    def _line(self) -> int:
        return bisect.bisect_left(self._line_ends, self._position) + 1

    def _skip(self, characters: str) -> None:
        while self._position < len(self._text) and self._text[self._position] in characters:
            self._position += 1

    def _skip_blank(self, more: str = "") -> bool:
        """Skips spaces, line breaks and comments; True if anything is left."""
        while True:
            self._skip(_SPACE + "\n" + more)
            if self._position >= len(self._text):
                return False
            if self._text[self._position] != "#":
                return True
            self._position = self._text.index("\n", self._position)


def _unescaped(quoted: str) -> str:
    import tomllib

    return str(tomllib.loads(f"value = {quoted}")["value"])
