"""Parser of regular expressions for topic names; `regular_expressions` describes the syntax."""

import string
from enum import Enum, auto
from typing import NamedTuple, TypeAlias

MAX_REPETITIONS = 1_000
"""Maximum count of a repetition, as in RE2."""
MAX_DEPTH = 100
MAX_OCTAL_DIGITS = 3
MAX_PARTS = 10_000
"""Maximum number of characters, operators and groups. Classes count more, by the characters that they have."""
CHARACTERS_PER_PART = 8
"""Characters of a class that count as one part."""


class InvalidExpression(ValueError):
    """The expression is malformed, or uses unsupported syntax."""


class Characters(NamedTuple):
    characters: frozenset[str]
    is_negated: bool = False


class Anchor(Enum):
    START = auto()
    END = auto()
    WORD_EDGE = auto()
    NO_WORD_EDGE = auto()


class Sequence(NamedTuple):
    parts: "list[Node]"


class Alternatives(NamedTuple):
    choices: "list[Node]"


class Repetition(NamedTuple):
    node: "Node"
    minimum: int
    maximum: int | None


Node: TypeAlias = Characters | Anchor | Sequence | Alternatives | Repetition

DIGITS = frozenset(string.digits)
WORD = frozenset(string.ascii_letters + string.digits + "_")
SPACE = frozenset("\t\n\f\r ")
PERL_CLASSES = {"d": DIGITS, "w": WORD, "s": SPACE}
POSIX_CLASSES = {
    "alnum": frozenset(string.ascii_letters + string.digits),
    "alpha": frozenset(string.ascii_letters),
    "ascii": frozenset(map(chr, range(128))),
    "blank": frozenset(" \t"),
    "cntrl": frozenset(map(chr, [*range(32), 127])),
    "digit": DIGITS,
    "graph": frozenset(map(chr, range(33, 127))),
    "lower": frozenset(string.ascii_lowercase),
    "print": frozenset(map(chr, range(32, 127))),
    "punct": frozenset(string.punctuation),
    "space": SPACE | {"\v"},
    "upper": frozenset(string.ascii_uppercase),
    "word": WORD,
    "xdigit": frozenset(string.hexdigits),
}
ASCII_BY_CATEGORY = {
    "Cc": "".join(map(chr, [*range(32), 127])),
    "Ll": string.ascii_lowercase,
    "Lu": string.ascii_uppercase,
    "Nd": string.digits,
    "Pc": "_",
    "Pd": "-",
    "Pe": ")]}",
    "Po": "!\"#%&'*,./:;?@\\",
    "Ps": "([{",
    "Sc": "$",
    "Sk": "^`",
    "Sm": "+<=>|~",
    "Zs": " ",
}
OTHER_CATEGORIES = ("Cf", "Co", "Cs", "Lm", "Lo", "Lt", "Mc", "Me", "Mn", "Nl", "No", "Pf", "Pi", "So", "Zl", "Zp")
UNICODE_CLASSES = {
    **{
        name: frozenset("".join(found for category, found in ASCII_BY_CATEGORY.items() if category.startswith(name)))
        for name in (*ASCII_BY_CATEGORY, *OTHER_CATEGORIES, *"CLMNPSZ")
    },
    "Any": POSIX_CLASSES["ascii"],
    "Latin": POSIX_CLASSES["alpha"],
    "Common": POSIX_CLASSES["ascii"] - POSIX_CLASSES["alpha"],
}
"""ASCII part of Unicode classes; other scripts are refused."""
OCTAL_DIGITS = frozenset(string.octdigits)
LITERALS = {character: Characters(frozenset(character)) for character in string.ascii_letters + string.digits + "_-"}
"""What most expressions consist of."""
CONTROLS = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
REPETITIONS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
ANCHOR_ESCAPES = {"A": Anchor.START, "z": Anchor.END, "b": Anchor.WORD_EDGE, "B": Anchor.NO_WORD_EDGE}


def parse(expression: str) -> Node:
    """Raises InvalidExpression."""
    return _Parser(expression).whole()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._parts = 0
        self._ignores_case = False
        self._dot_is_all = False
        self._names: set[str] = set()
        """Names of named groups."""

    # ---- characters of the text

    def _peek(self) -> str:
        return self._text[self._at] if self._at < len(self._text) else ""

    def _next(self, what: str = "expression ends too early") -> str:
        character = self._peek()
        if not character:
            raise InvalidExpression(what)
        self._at += 1
        return character

    def _takes(self, text: str) -> bool:
        if not self._text.startswith(text, self._at):
            return False
        self._at += len(text)
        return True

    def _count_parts(self, number: int = 1) -> None:
        """An expression is parsed in one step of the event loop."""
        self._parts += number
        if self._parts > MAX_PARTS:
            raise InvalidExpression("expression too large")

    # ---- structure

    def whole(self) -> Node:
        node = self._alternatives()
        if self._at < len(self._text):
            raise InvalidExpression("unexpected )")
        return node

    def _alternatives(self) -> Node:
        choices = [self._sequence()]
        while self._takes("|"):
            self._count_parts()
            choices.append(self._sequence())
        return choices[0] if len(choices) == 1 else Alternatives(choices)

    def _sequence(self) -> Node:
        parts: list[Node] = []
        is_repeated = False
        while (character := self._peek()) not in ("", "|", ")"):
            self._count_parts()
            if character in LITERALS and not self._ignores_case:
                self._at += 1
                parts.append(LITERALS[character])
            elif self._takes("\\Q"):
                parts.extend(self._quoted())
            elif (bounds := self._bounds()) is not None:
                if is_repeated:
                    raise InvalidExpression("invalid nested repetition operator")
                self._repeat_last(parts, bounds)
                is_repeated = True
                continue
            elif (atom := self._atom()) is not None:
                parts.append(atom)
            is_repeated = False
        return Sequence(parts)

    def _quoted(self) -> list[Node]:
        end = self._text.find("\\E", self._at)
        literal = self._text[self._at :] if end < 0 else self._text[self._at : end]
        self._at = len(self._text) if end < 0 else end + 2
        self._count_parts(len(literal))
        return [self._literal(character) for character in literal]

    def _atom(self) -> Node | None:
        """None for a group that only sets flags."""
        character = self._next()
        match character:
            case "(":
                return self._group()
            case "[":
                return self._class()
            case ".":
                return Characters(frozenset() if self._dot_is_all else frozenset("\n"), is_negated=True)
            case "^":
                return Anchor.START
            case "$":
                return Anchor.END
            case "\\":
                return self._escape()
        return self._literal(character)

    def _literal(self, character: str) -> Characters:
        return Characters(self._folded(frozenset(character)))

    def _folded(self, characters: frozenset[str]) -> frozenset[str]:
        if not self._ignores_case:
            return characters
        return characters | {c.lower() for c in characters} | {c.upper() for c in characters}

    # ---- repetition

    def _repeat_last(self, parts: list[Node], bounds: tuple[int, int | None]) -> None:
        """Apply a repetition to the last part, also after `\\E` and after flags."""
        self._takes("?")
        if not parts:
            raise InvalidExpression("missing argument to repetition operator")
        parts[-1] = Repetition(parts[-1], *bounds)

    def _bounds(self) -> tuple[int, int | None] | None:
        bounds = REPETITIONS.get(self._peek())
        if bounds is None:
            return self._counted_bounds()
        self._at += 1
        return bounds

    def _counted_bounds(self) -> tuple[int, int | None] | None:
        """A `{` that starts no count is a literal, as in RE2."""
        if self._peek() != "{":
            return None
        content, closing, _ = self._text[self._at + 1 :].partition("}")
        low, comma, high = content.partition(",")
        if not closing or not _is_number(low) or (high and not _is_number(high)):
            return None
        self._at += len(content) + 2
        minimum = int(low)
        maximum = minimum if not comma else int(high) if high else None
        if max(minimum, maximum or 0) > MAX_REPETITIONS or (maximum is not None and maximum < minimum):
            raise InvalidExpression(f"invalid repetition count: `{{{content}}}`")
        return minimum, maximum

    # ---- groups

    def _group(self) -> Node | None:
        self._count_parts()
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise InvalidExpression("expression nests too deeply")
        outer = self._ignores_case, self._dot_is_all
        if self._takes("?") and not self._opening():
            self._depth -= 1
            return None
        node = self._alternatives()
        if not self._takes(")"):
            raise InvalidExpression("missing closing )")
        self._ignores_case, self._dot_is_all = outer
        self._depth -= 1
        return node

    def _opening(self) -> bool:
        """Parse the text after `(?`; False if it only sets flags for the rest."""
        if self._takes("P<") or (self._text[self._at : self._at + 2] not in ("<=", "<!") and self._takes("<")):
            name = ""
            while (character := self._next("invalid named capture")) != ">":
                self._count_parts()
                name += character
            if not name or not set(name) <= WORD:
                raise InvalidExpression("invalid named capture")
            if name in self._names:
                raise InvalidExpression(f"duplicate capture group name: `{name}`")
            self._names.add(name)
            return True
        return self._flags()

    def _flags(self) -> bool:
        value = True
        while True:
            match self._next("missing closing )"):
                case "i":
                    self._ignores_case = value
                case "s":
                    self._dot_is_all = value
                case "m" | "U":
                    pass
                case "-" if value:
                    value = False
                case ":":
                    return True
                case ")":
                    return False
                case _:
                    raise InvalidExpression("invalid or unsupported Perl syntax: `(?`")

    # ---- escapes and classes

    def _escape(self) -> Node:
        character = self._next("trailing \\ at end of expression")
        if character in ANCHOR_ESCAPES:
            return ANCHOR_ESCAPES[character]
        if character.lower() in PERL_CLASSES:
            return Characters(PERL_CLASSES[character.lower()], is_negated=character.isupper())
        if character in "pP":
            return self._unicode_class(character)
        return self._literal(self._escaped(character))

    def _unicode_class(self, letter: str) -> Characters:
        name, closing = self._next("invalid character class range: `\\p`"), "}"
        if name == "{":
            name, closing, _ = self._text[self._at :].partition("}")
            self._at += len(name) + len(closing)
        found = UNICODE_CLASSES.get(name.removeprefix("^"))
        if found is None or not closing:
            raise InvalidExpression(f"invalid character class range: `\\{letter}{{{name}}}`")
        return Characters(self._folded(found), is_negated=(letter == "P") != name.startswith("^"))

    def _escaped(self, character: str) -> str:
        if character == "x":
            return self._hexadecimal()
        if character in CONTROLS:
            return CONTROLS[character]
        if character == "0" or (character in OCTAL_DIGITS and self._peek() in OCTAL_DIGITS):
            return self._octal(character)
        if character.isascii() and character.isalnum():
            raise InvalidExpression(f"invalid escape sequence: `\\{character}`")
        return character

    def _octal(self, digits: str) -> str:
        while len(digits) < MAX_OCTAL_DIGITS and self._peek() in OCTAL_DIGITS:
            digits += self._next()
        return chr(int(digits, 8))

    def _hexadecimal(self) -> str:
        if self._takes("{"):
            digits, closing, _ = self._text[self._at :].partition("}")
            self._at += len(digits) + len(closing)
        else:
            digits = self._text[self._at : self._at + 2]
            self._at += 2
        if not digits or not set(digits) <= POSIX_CLASSES["xdigit"] or int(digits, 16) > 0x10FFFF:
            raise InvalidExpression("invalid escape sequence: `\\x`")
        return chr(int(digits, 16))

    def _class(self) -> Node:
        is_negated = self._takes("^")
        characters: set[str] = set()
        is_first = True
        while is_first or self._peek() != "]":
            is_first = False
            item = self._class_item()
            self._count_parts(1 + len(item) // CHARACTERS_PER_PART)
            characters |= item
        self._next()
        return Characters(self._folded(frozenset(characters)), is_negated)

    def _class_item(self) -> frozenset[str]:
        if self._text.startswith("[:", self._at):
            return self._posix_class()
        first = self._next("missing closing ]")
        if first == "\\":
            first = self._next("missing closing ]")
            if first.lower() in PERL_CLASSES:
                found = PERL_CLASSES[first.lower()]
                return found if first.islower() else POSIX_CLASSES["ascii"] - found
            if first in "pP":
                found, is_negated = self._unicode_class(first)
                return POSIX_CLASSES["ascii"] - found if is_negated else found
            first = self._escaped(first)
        if self._peek() != "-" or self._text[self._at + 1 : self._at + 2] in ("]", ""):
            return frozenset(first)
        self._next()
        last = self._next("missing closing ]")
        if last == "\\":
            last = self._escaped(self._next("missing closing ]"))
        if last < first:
            raise InvalidExpression(f"invalid character class range: `{first}-{last}`")
        return frozenset(map(chr, range(ord(first), min(ord(last), 0x7F) + 1))) | {first, last}

    def _posix_class(self) -> frozenset[str]:
        name, closing, _ = self._text[self._at + 2 :].partition(":]")
        found = POSIX_CLASSES.get(name.removeprefix("^"))
        if not closing or found is None:
            raise InvalidExpression("invalid character class range: `[:`")
        self._at += len(name) + 4
        return POSIX_CLASSES["ascii"] - found if name.startswith("^") else found


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 9
