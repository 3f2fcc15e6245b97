"""Mapping of distinguished names to principal names: ssl.principal.mapping.rules (SslPrincipalMapper, KIP-371)."""

import re
from typing import NamedTuple

from tidelog.config.setting import BadValue

_RULE = re.compile(
    r"(?P<default>DEFAULT)|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?)"
)
_SEPARATOR = re.compile(r"\s*(?:,|\n|$)\s*")


class _Rule(NamedTuple):
    pattern: re.Pattern[str] | None
    """None for DEFAULT, which keeps the whole name."""
    replacement: str
    case: str
    """`L` for lower case, `U` for upper case, or empty."""


MAX_NAME_CHARACTERS = 1000
"""Of names that rules with a pattern are tried on: patterns may take time that grows by powers of the length."""


class NoMatchingRule(Exception):
    """No rule applies to a distinguished name: authentication fails."""


class PrincipalMapper:
    """Mapper by rules: the first rule whose pattern matches the whole name applies."""

    def __init__(self, rules: str) -> None:
        """Raises BadValue."""
        self._rules = _parse(rules.strip() or "DEFAULT")

    @property
    def names_everybody(self) -> bool:
        return self._rules[0].pattern is None

    def name_of(self, distinguished_name: str) -> str:
        """Raises NoMatchingRule."""
        for rule in self._rules:
            if rule.pattern is None:
                return distinguished_name
            if len(distinguished_name) > MAX_NAME_CHARACTERS:
                raise NoMatchingRule(f"the name in the certificate has more than {MAX_NAME_CHARACTERS} characters")
            match = rule.pattern.fullmatch(distinguished_name)
            if match is not None:
                found = _replaced(rule.replacement, match)
                return {"L": found.lower(), "U": found.upper()}.get(rule.case, found)
        raise NoMatchingRule("no rule in ssl.principal.mapping.rules applies to the name in the certificate")


def _parse(text: str) -> list[_Rule]:
    rules, position = [], 0
    while position < len(text):
        match = _RULE.match(text, position)
        separator = None if match is None else _SEPARATOR.match(text, match.end())
        if match is None or separator is None:
            raise BadValue(f"expected DEFAULT or RULE:pattern/replacement/[LU], found {text[position:]!r}")
        rules.append(_rule(match))
        position = separator.end()
    return rules


def _rule(match: re.Match[str]) -> _Rule:
    if match["default"]:
        return _Rule(None, "", "")
    try:
        return _Rule(re.compile(match["pattern"]), match["replacement"], match["case"])
    except re.error as error:
        raise BadValue(f"{match['pattern']!r} is not a regular expression: {error}") from error


def _replaced(replacement: str, match: re.Match[str]) -> str:
    """The replacement, with the groups of the match for `$1`, `$2` and so on."""

    def group(found: re.Match[str]) -> str:
        index = int(found[1])
        return (match[index] or "") if index <= match.re.groups else ""

    return re.sub(r"\$(\d)", group, replacement)
