"""Environment variables in the strings of a file: `${NAME}`, or `${NAME:-default}`; `$${` is a plain `${`."""

import re
from collections.abc import Callable, Mapping

from tidelog.pipelines.definition.toml_lines import KeyPath

_REFERENCE = re.compile(
    r"\$(?P<escaped>\$\{)|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}|(?P<bad>\$\{)"
)

Complain = Callable[[KeyPath, str], None]


def with_environment(value: object, environment: Mapping[str, str], complain: Complain, path: KeyPath = ()) -> object:
    """The value, however deep, with every reference replaced."""
    if isinstance(value, str):
        return _REFERENCE.sub(lambda match: _replacement(match, environment, complain, path), value)
    if isinstance(value, dict):
        return {key: with_environment(inner, environment, complain, (*path, key)) for key, inner in value.items()}
    if isinstance(value, list):
        return [with_environment(inner, environment, complain, (*path, index)) for index, inner in enumerate(value)]
    return value


def _replacement(match: re.Match[str], environment: Mapping[str, str], complain: Complain, path: KeyPath) -> str:
    if match["escaped"]:
        return "${"
    if match["bad"]:
        complain(
            path, "'${' begins a variable, as in ${NAME} or ${NAME:-default}; write $${ for the characters themselves"
        )
        return match[0]
    found = environment.get(match["name"]) or match["default"]
    if found is None:
        complain(
            path,
            f"the variable {match['name']} is not set; set it, or give it a default: ${{{match['name']}:-...}}",
        )
        return match[0]
    return found
