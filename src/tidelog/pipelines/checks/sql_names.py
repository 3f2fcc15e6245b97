"""View names in SQL, found without Spark: the names after FROM and JOIN."""

import re
from typing import NamedTuple

_TOKEN = re.compile(
    r"""(?P<skipped>\s+|--[^\n]*|/\*.*?\*/|'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
      | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<quoted>`(?:[^`]|``)+`)
      | (?P<mark>.)""",
    re.VERBOSE | re.DOTALL,
)
_RELATION_FOLLOWS = frozenset({"from", "join"})
_FROM_INSIDE = frozenset({"extract", "trim", "substring", "substr", "overlay", "position"})
"""Functions with a FROM among their arguments: extract(year FROM at)."""
_NOT_A_NAME = frozenset({"lateral", "values", "select", "table", "stream", "with"})
_END_OF_FROM = frozenset(
    [
        "where",
        "group",
        "order",
        "having",
        "limit",
        "offset",
        "union",
        "except",
        "intersect",
        "minus",
        "window",
        "select",
        "sort",
        "cluster",
        "distribute",
        "view",
        "qualify",
        "pivot",
        "unpivot",
    ]
)


class ViewName(NamedTuple):
    name: str
    newlines: int
    """Number of line breaks before the name."""


class _Token(NamedTuple):
    kind: str
    text: str
    start: int

    @property
    def lower(self) -> str:
        return self.text.lower() if self.kind == "word" else self.text


def views_read_by(sql: str) -> list[ViewName]:
    """Each name once, in order of appearance. Names with dots are catalog tables and left out."""
    tokens = [_Token(match.lastgroup or "", match[0], match.start()) for match in _TOKEN.finditer(sql)]
    tokens = [token for token in tokens if token.kind != "skipped"]
    made = _common_table_names(tokens)
    found: dict[str, ViewName] = {}
    for token in _relations(tokens):
        name = token.text.strip("`").replace("``", "`")
        if name.lower() not in made:
            found.setdefault(name.lower(), ViewName(name, sql.count("\n", 0, token.start)))
    return list(found.values())


def _common_table_names(tokens: list[_Token]) -> set[str]:
    """Names of common table expressions: `WITH recent AS (`, `, other(a, b) AS (`."""
    made = set()
    for index, token in enumerate(tokens):
        if token.lower == "as" and _text(tokens, index + 1) == "(" and index > 0:
            before = index - 1
            if tokens[before].text == ")":
                before = _opening(tokens, before) - 1
            if before >= 0 and tokens[before].kind in ("word", "quoted"):
                made.add(tokens[before].text.strip("`").lower())
    return made


def _opening(tokens: list[_Token], closing: int) -> int:
    depth = 0
    for index in range(closing, -1, -1):
        depth += (tokens[index].text == ")") - (tokens[index].text == "(")
        if depth == 0:
            return index
    return 0


def _relations(tokens: list[_Token]) -> list[_Token]:
    """Tokens that name relations. Each level of brackets may have its own FROM list."""
    found = []
    is_in_from = [False]
    has_own_from = [False]
    for index, token in enumerate(tokens):
        before = tokens[index - 1].lower if index else ""
        if token.text == "(":
            is_in_from.append(False)
            has_own_from.append(before in _FROM_INSIDE)
        elif token.text == ")" and len(is_in_from) > 1:
            is_in_from.pop()
            has_own_from.pop()
        elif (
            token.lower in _RELATION_FOLLOWS
            and not has_own_from[-1]
            and not (token.lower == "from" and before == "distinct")
        ):
            is_in_from[-1] = True
            if _is_name(tokens, index + 1):
                found.append(tokens[index + 1])
        elif token.lower in _END_OF_FROM:
            is_in_from[-1] = False
        elif token.text == "," and is_in_from[-1] and _is_name(tokens, index + 1):
            found.append(tokens[index + 1])
    return found


def _is_name(tokens: list[_Token], index: int) -> bool:
    """A plain name, not a function call."""
    if index >= len(tokens) or tokens[index].kind not in ("word", "quoted"):
        return False
    return tokens[index].lower not in _NOT_A_NAME and _text(tokens, index + 1) not in (".", "(")


def _text(tokens: list[_Token], index: int) -> str:
    return tokens[index].text if index < len(tokens) else ""
