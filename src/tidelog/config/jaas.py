"""JAAS configuration in settings and files: login modules and their options (JaasConfig).

`org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="...";` in a setting;
in a file such lines stand in sections, `Client { ... };`.
"""

# Core: no clock, no I/O, no await.

import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from tidelog.config.setting import BadValue

PLAIN_MODULE = "PlainLoginModule"
SCRAM_MODULE = "ScramLoginModule"
OAUTHBEARER_MODULE = "OAuthBearerLoginModule"
DIGEST_MODULE = "DigestLoginModule"
"""Of ZooKeeper."""
CONTROL_FLAGS = ("required", "requisite", "sufficient", "optional")
USER_OPTION_PREFIX = "user_"


def _token(signs: str) -> re.Pattern[str]:
    return re.compile(
        r"""\s*(?:(?P<comment>//[^\n]*|/\*.*?\*/)|"(?P<quoted>(?:[^"\\]|\\.)*)"|'(?P<single>(?:[^'\\]|\\.)*)'"""
        rf"""|(?P<sign>[{signs}])|(?P<word>[^\s"'{signs}]+))""",
        re.DOTALL,
    )


_TOKEN = _token("=;")
_TOKEN_OF_FILE = _token("=;{}")
"""Braces are signs only in files: in a setting they may be a part of a value without quotation marks."""
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


class JaasEntry(NamedTuple):
    """One login module with its options."""

    module: str
    options: Mapping[str, str]

    @property
    def module_name(self) -> str:
        """The class name without its package, which clients of other vendors shade."""
        return self.module.rpartition(".")[2]

    def __repr__(self) -> str:
        return f"JaasEntry({self.module_name}, options: {', '.join(self.options)})"  # values are secrets

    @property
    def users(self) -> dict[str, str]:
        """Passwords by name, from the options `user_NAME`."""
        return {
            name.removeprefix(USER_OPTION_PREFIX): value
            for name, value in self.options.items()
            if name.startswith(USER_OPTION_PREFIX)
        }


def parse_jaas(text: str) -> JaasEntry:
    """The one login module of a setting. Raises BadValue, which never has a value of an option in it."""
    tokens = list(_tokens(text))
    if not tokens:
        raise BadValue("the JAAS configuration is empty")
    return _only_entry(tokens)


def parse_jaas_file(text: str, section: str) -> JaasEntry | None:
    """The one login module of a section; None if there is no such section. Raises BadValue, without values."""
    found = _sections(text).get(section)
    return None if found is None else _only_entry(found)


def parse_jaas_sections(text: str, is_wanted: Callable[[str], bool]) -> dict[str, tuple[JaasEntry, ...]]:
    """Login modules by section, of those sections that are wanted. Raises BadValue, without values."""
    return {name: tuple(_entries(tokens)) for name, tokens in _sections(text).items() if is_wanted(name)}


def _sections(text: str) -> dict[str, list["_Token"]]:
    """Content by name; of two sections with the same name the first one."""
    tokens, found = list(_tokens(text, _TOKEN_OF_FILE)), dict[str, list[_Token]]()
    while tokens:
        name, content, tokens = _next_section(tokens)
        found.setdefault(name, content)
    return found


def _next_section(tokens: list["_Token"]) -> tuple[str, list["_Token"], list["_Token"]]:
    """Name and content of the first section, and what follows it."""
    opening, closing = _Token("{", is_sign=True), _Token("}", is_sign=True)
    if tokens[0].is_sign or opening not in tokens[1:2] or closing not in tokens:
        raise BadValue("expected sections NAME { ... };")
    end = tokens.index(closing)
    if tokens[end + 1 : end + 2] != [_Token(";", is_sign=True)]:
        raise BadValue("a section does not end with };")
    return tokens[0].text, tokens[2:end], tokens[end + 2 :]


def _only_entry(tokens: list["_Token"]) -> JaasEntry:
    entries = list(_entries(tokens))
    if len(entries) != 1:
        raise BadValue(f"expected one login module, found {len(entries)}")
    return entries[0]


class _Token(NamedTuple):
    text: str
    is_sign: bool = False
    is_quoted: bool = False


def _tokens(text: str, pattern: re.Pattern[str] = _TOKEN) -> Iterator[_Token]:
    position = 0
    text = text.strip()
    while position < len(text):
        match = pattern.match(text, position)
        if match is None:
            raise BadValue("a quotation mark is not closed")
        position = match.end()
        if match["sign"]:
            yield _Token(match["sign"], is_sign=True)
        elif match["word"]:
            yield _Token(match["word"])
        elif match["comment"] is None:
            quoted = match["quoted"] if match["quoted"] is not None else match["single"]
            yield _Token(_ESCAPE.sub(_unescaped, quoted), is_quoted=True)


def _unescaped(match: re.Match[str]) -> str:
    return _ESCAPED.get(match[1], match[1])


def _entries(tokens: list[_Token]) -> Iterator[JaasEntry]:
    entry: list[_Token] = []
    for token in tokens:
        if token.is_sign and token.text == ";":
            yield _entry(entry)
            entry = []
        else:
            entry.append(token)
    if entry:
        raise BadValue("the login module does not end with a semicolon")


def _entry(tokens: list[_Token]) -> JaasEntry:
    if not tokens or tokens[0].is_sign:
        raise BadValue("expected the class name of a login module")
    module = tokens[0].text
    if len(tokens) < 2 or tokens[1].text.lower() not in CONTROL_FLAGS:
        raise BadValue(f"expected one of {', '.join(CONTROL_FLAGS)} after the login module")
    return JaasEntry(module, _options(tokens[2:]))


def _options(tokens: list[_Token]) -> dict[str, str]:
    options = {}
    for index in range(0, len(tokens), 3):
        option = tokens[index : index + 3]
        is_whole = len(option) == 3 and option[1] == _Token("=", is_sign=True) and not option[2].is_sign
        if not is_whole or option[0].is_sign or option[0].is_quoted:
            # The text at this place may be a part of a password with an unquoted sign in it.
            raise BadValue(f'expected NAME="VALUE" as option {index // 3 + 1} of the login module')
        options[option[0].text] = option[2].text
    return options
