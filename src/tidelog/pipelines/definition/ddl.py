"""Parser for schemas in Spark's DDL: `id bigint, at timestamp, tags array<string>`."""

import re
from typing import NamedTuple

from tidelog.pipelines.definition.mistakes import nearest

SIMPLE_TYPES = frozenset(
    [
        "boolean",
        "tinyint",
        "byte",
        "smallint",
        "short",
        "int",
        "integer",
        "bigint",
        "long",
        "float",
        "real",
        "double",
        "date",
        "timestamp",
        "timestamp_ntz",
        "timestamp_ltz",
        "string",
        "binary",
        "void",
        "variant",
    ]
)
SIZED_TYPES = {"decimal": 2, "dec": 2, "numeric": 2, "char": 1, "character": 1, "varchar": 1, "time": 1}
"""Types with numbers in brackets, and the largest count of numbers."""
NEED_SIZE = ("char", "character", "varchar")
NESTED_TYPES = ("array", "map", "struct")
INTERVAL_UNITS = frozenset({"year", "month", "day", "hour", "minute", "second"})
MAX_PRECISION = 38
_TOKEN = re.compile(
    r"\s*(?:(?P<name>[0-9]*[A-Za-z_][A-Za-z0-9_]*|`(?:[^`]|``)+`)|(?P<number>\d+)|(?P<text>'[^']*'|\"[^\"]*\")|(?P<mark>\S))"
)
_END = "the end"


class BadSchema(ValueError):
    """The message says what was found and what was expected."""

    newlines = 0
    """Number of line breaks before the mistake."""


class Column(NamedTuple):
    name: str
    type: str


def read_schema(text: str) -> list[Column]:
    """Columns of the outermost level; raises BadSchema."""
    reader = _Reader(text)
    try:
        return reader.columns()
    except BadSchema as error:
        error.newlines = text.count("\n", 0, reader.last_start())
        raise


class _Reader:
    def __init__(self, text: str) -> None:
        found = list(_TOKEN.finditer(text.rstrip()))
        self._tokens = [(match.lastgroup, match[match.lastgroup or 0]) for match in found]
        self._starts = [match.start(match.lastgroup or 0) for match in found]
        self._position = 0

    def last_start(self) -> int:
        """Position of the token that was read last."""
        read = self._starts[: max(1, self._position)]
        return read[-1] if read else 0

    def columns(self) -> list[Column]:
        columns: list[Column] = []
        while True:
            name = self._name()
            if name.lower() in (column.name.lower() for column in columns):
                raise BadSchema(f"the schema has column '{name}' twice")
            self._accept(":")
            columns.append(Column(name, self._column_type(name)))
            if self._peek() == _END:
                return columns
            self._expect(",", name)

    def _column_type(self, name: str) -> str:
        found = self._type(name)
        if self._accept("not"):
            self._expect("null", name)
        if self._accept("comment"):
            self._next()
        return found

    def _type(self, column: str) -> str:
        word = self._next()
        lower = word.lower()
        if lower == "timestamp" and self._accept("without"):
            self._expect("time", column)
            self._expect("zone", column)
            return "timestamp_ntz"
        if lower in SIMPLE_TYPES:
            return lower + (f" collate {self._next()}" if self._accept("collate") else "")
        if lower in SIZED_TYPES:
            return lower + self._sizes(lower, column)
        if lower in NESTED_TYPES:
            return self._nested(lower, column)
        if lower == "interval":
            return self._interval(column)
        if word in (_END, ",", ">", ")"):
            raise BadSchema(f"column '{column}' of the schema has no type; add one, as in '{column} string'")
        known = (*sorted(SIMPLE_TYPES), *SIZED_TYPES, *NESTED_TYPES, "interval")
        raise BadSchema(f"column '{column}' of the schema has unknown type '{word}'{nearest(word, known)}")

    def _interval(self, column: str) -> str:
        if self._peek().lower() not in INTERVAL_UNITS:
            return "interval"
        units = [self._next().lower()]
        if self._accept("to"):
            units.append(self._next().lower())
        if not INTERVAL_UNITS.issuperset(units):
            raise BadSchema(f"column '{column}' of the schema: expected an interval such as 'interval day to second'")
        return f"interval {' to '.join(units)}"

    def _sizes(self, type_name: str, column: str) -> str:
        if not self._accept("("):
            if type_name in NEED_SIZE:
                raise BadSchema(f"column '{column}' of the schema: {type_name} needs a length; or use string")
            return ""
        sizes = [self._number(column)]
        while self._accept(",") and len(sizes) < SIZED_TYPES[type_name]:
            sizes.append(self._number(column))
        self._expect(")", column)
        if SIZED_TYPES[type_name] == 2 and not sizes[-1] <= sizes[0] <= MAX_PRECISION:
            raise BadSchema(
                f"column '{column}' of the schema: a decimal has at most {MAX_PRECISION} digits,"
                " and the scale must not exceed the precision"
            )
        return f"({','.join(map(str, sizes))})"

    def _nested(self, kind: str, column: str) -> str:
        self._expect("<", column)
        if kind == "array":
            inner = self._type(column)
        elif kind == "map":
            key = self._type(column)
            self._expect(",", column)
            inner = f"{key},{self._type(column)}"
        else:
            inner = self._fields(column)
        self._expect(">", column)
        return f"{kind}<{inner}>"

    def _fields(self, column: str) -> str:
        fields = []
        while self._peek() not in (">", _END):
            name = self._name()
            self._accept(":")
            fields.append(f"{name}:{self._column_type(f'{column}.{name}')}")
            if not self._accept(","):
                break
        return ",".join(fields)

    def _peek(self) -> str:
        return self._tokens[self._position][1] if self._position < len(self._tokens) else _END

    def _next(self) -> str:
        token = self._peek()
        self._position += 1
        return token

    def _accept(self, token: str) -> bool:
        if self._peek().lower() != token:
            return False
        self._position += 1
        return True

    def _expect(self, token: str, column: str) -> None:
        found = self._next()
        if found.lower() != token:
            shown = found if found == _END else f"'{found}'"
            raise BadSchema(f"column '{column}' of the schema: expected '{token}', found {shown}")

    def _name(self) -> str:
        kind = self._tokens[self._position][0] if self._position < len(self._tokens) else None
        token = self._next()
        if kind != "name":
            shown = token if token == _END else f"'{token}'"
            raise BadSchema(
                f"the schema: expected a column name, found {shown}; an example is 'id bigint, name string'"
            )
        return token.strip("`").replace("``", "`")

    def _number(self, column: str) -> int:
        token = self._next()
        if not token.isdecimal():
            raise BadSchema(f"column '{column}' of the schema: expected a number in the brackets, found '{token}'")
        return int(token)
