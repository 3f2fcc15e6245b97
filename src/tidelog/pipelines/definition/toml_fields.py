"""Typed access to the fields of a TOML table. Wrong, missing and unknown fields are reported, and reading goes on."""

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import TypeVar

from tidelog.pipelines.definition.durations import BadQuantity
from tidelog.pipelines.definition.mistakes import Mistake, listed, nearest
from tidelog.pipelines.definition.toml_lines import KeyPath, Lines

T = TypeVar("T")
EnumT = TypeVar("EnumT", bound=StrEnum)


class Diagnostics:
    """Mistakes and warnings found so far in one file."""

    def __init__(self, lines: Lines) -> None:
        self.lines = lines
        self.mistakes: list[Mistake] = []

    def report(self, path: KeyPath, sentence: str, *, line: int | None = None, is_warning: bool = False) -> None:
        self.mistakes.append(Mistake(line or self.lines.of(path), shown(path), sentence, is_warning))

    def has_mistakes(self) -> bool:
        return not all(found.is_warning for found in self.mistakes)

    def in_order(self) -> list[Mistake]:
        """By line, without repetitions."""
        return sorted(dict.fromkeys(self.mistakes), key=lambda mistake: mistake.line or 0)


def shown(path: KeyPath) -> str:
    """With positions counted from 1: steps.2.sql is the second step."""
    return ".".join(str(part + 1) if isinstance(part, int) else part for part in path)


class Fields:
    """One table. A key is known once it was read; `finish` reports the others."""

    def __init__(self, table: Mapping[str, object], path: KeyPath, diagnostics: Diagnostics, kind: str) -> None:
        self._table = table
        self.path = path
        self._diagnostics = diagnostics
        self.kind = kind
        """The kind of thing in an error message: `a topic source`."""
        self._known: dict[str, None] = {}
        self._lacking: list[tuple[list[str], str]] = []

    def report(self, key: str | None, sentence: str, *, newlines: int | None = None) -> None:
        """`newlines`: line breaks before the mistake, if it is inside a string."""
        path = self.path if key is None else (*self.path, key)
        self._diagnostics.report(
            path, sentence, line=None if newlines is None else self._diagnostics.lines.within(path, newlines)
        )

    def has(self, key: str) -> bool:
        return key in self._table

    def given(self, keys: Iterable[str]) -> list[str]:
        return [key for key in keys if key in self._table]

    def finish(self, keys_of_others: Iterable[str] = ()) -> None:
        """Reports keys that were never read. `keys_of_others` belong to other kinds of this table."""
        unknown = [key for key in self._table if key not in self._known]
        for keys, sentence in self._lacking:
            if not any(nearest(key, keys) for key in unknown):
                self.report(None, sentence)
        for key in unknown:
            if key in keys_of_others:
                self.report(key, f"{self.kind} has no '{key}'")
            else:
                known = f"; keys are {listed(self._known, 'and')}"
                self.report(key, f"unknown key{nearest(key, self._known) or known}")

    def choose(self, keys: tuple[str, ...]) -> str | None:
        """The one that is present, of several that exclude each other."""
        given = self.given(keys)
        if not given:
            self._missing(keys, f"{self.kind} needs one of {listed(keys)}")
        elif len(given) > 1:
            self.report(given[1], f"{listed(given, 'and')} exclude each other; keep only one of them")
        self._known |= dict.fromkeys(keys)
        return given[0] if given else None

    def _missing(self, keys: Iterable[str], sentence: str) -> None:
        """Reported by `finish`, unless the key is there with a typo."""
        self._lacking.append((list(keys), sentence))

    def _get(self, key: str) -> object | None:
        self._known[key] = None
        return self._table.get(key)

    def _wrong(self, key: str, expected: str, value: object) -> None:
        self.report(key, f"expected {expected}, found {_described(value)}")

    def text(self, key: str) -> str | None:
        value = self._get(key)
        if value is None or (isinstance(value, str) and value.strip()):
            return value if value is None else str(value)
        self._wrong(key, "a string", value)
        return None

    def required(self, key: str, example: str) -> str:
        """Empty if missing, which is reported."""
        if key not in self._table:
            self._missing([key], f"{self.kind} needs '{key}', as in {key} = {example}")
        return self.text(key) or ""

    def flag(self, key: str) -> bool | None:
        value = self._get(key)
        if value is None or isinstance(value, bool):
            return value
        self._wrong(key, "true or false", value)
        return None

    def number(self, key: str) -> int | None:
        value = self._get(key)
        if value is None or (isinstance(value, int) and not isinstance(value, bool) and value > 0):
            return value
        self._wrong(key, "a number of at least 1", value)
        return None

    def texts(self, key: str) -> tuple[str, ...]:
        """A list, or a single string."""
        value = self._get(key)
        found = [value] if isinstance(value, str) else value
        if found is None:
            return ()
        if isinstance(found, list) and found and all(isinstance(part, str) and part.strip() for part in found):
            return tuple(found)
        self._wrong(key, 'a list of strings such as ["a", "b"]', value)
        return ()

    def choice(self, key: str, kind: type[EnumT], default: EnumT, among: Iterable[EnumT] | None = None) -> EnumT:
        value = self._get(key)
        if value is None:
            return default
        valid = [member.value for member in among or kind]
        if value in valid:
            return kind(value)
        found = f"'{value}'" if isinstance(value, str) else _described(value)
        hint = nearest(value, valid) if isinstance(value, str) else ""
        self.report(key, f"expected {listed(valid)}, found {found}{hint}")
        return default

    def quantity(self, key: str, parse: Callable[[str], T]) -> T | None:
        """A duration or a size."""
        text = self.text(key)
        if text is None:
            return None
        try:
            return parse(text)
        except BadQuantity as error:
            self.report(key, str(error))
            return None

    def table(self, key: str, kind: str) -> "Fields | None":
        value = self._get(key)
        if value is None:
            return None
        if isinstance(value, dict):
            return Fields(value, (*self.path, key), self._diagnostics, kind)
        self._wrong(key, "a table { ... }", value)
        return None

    def tables(self, key: str, kind: str) -> "list[Fields]":
        """An array of tables, [[key]]."""
        value = self._get(key)
        if value is None:
            return []
        if isinstance(value, list) and all(isinstance(part, dict) for part in value):
            return [Fields(part, (*self.path, key, index), self._diagnostics, kind) for index, part in enumerate(value)]
        self._wrong(key, f"tables with the heading [[{key}]]", value)
        return []

    def names(self) -> list[str]:
        return list(self._table)

    def settings(self, key: str) -> dict[str, str]:
        """Names with dots may be quoted or not; values are strings, numbers or booleans."""
        value = self._get(key)
        if value is None:
            return {}
        if not isinstance(value, dict):
            self._wrong(key, "a table { name = value }", value)
            return {}
        return self._flat(value, (*self.path, key), "")

    def _flat(self, table: Mapping[str, object], path: KeyPath, prefix: str) -> dict[str, str]:
        flat: dict[str, str] = {}
        for name, value in table.items():
            if isinstance(value, dict):
                flat |= self._flat(value, (*path, name), f"{prefix}{name}.")
            elif isinstance(value, bool):
                flat[prefix + name] = str(value).lower()
            elif isinstance(value, str | int | float):
                flat[prefix + name] = str(value)
            else:
                self._diagnostics.report(
                    (*path, name), f"expected a string, a number, true or false, found {_described(value)}"
                )
        return flat

    def anything(self, key: str) -> object | None:
        return self._get(key)


def _described(value: object) -> str:
    match value:
        case str():
            return f"the string '{value}'" if value.strip() else "an empty string"
        case bool():
            return str(value).lower()
        case int() | float():
            return f"the number {value}"
        case list():
            return "a list" if value else "an empty list"
        case dict():
            return "a table"
        case _:
            return f"{value}"
