"""Environment variables in a pipeline file: `${NAME}` or `${NAME:-default}`; `$${` is a literal `${`."""

import re
from collections.abc import Callable, Mapping

from tidelog.pipelines.definition.toml_lines import KeyPath

_REFERENCE = re.compile(
    r"\$(?P<escaped>\$\{)|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}|(?P<bad>\$\{)"
)

Report = Callable[[KeyPath, str], None]


def with_environment(value: object, environment: Mapping[str, str], report: Report, path: KeyPath = ()) -> object:
    """The value with every reference replaced, at any depth."""
    if isinstance(value, str):
        return _REFERENCE.sub(lambda match: _replacement(match, environment, report, path), value)
    if isinstance(value, dict):
        return {key: with_environment(inner, environment, report, (*path, key)) for key, inner in value.items()}
    if isinstance(value, list):
        return [with_environment(inner, environment, report, (*path, index)) for index, inner in enumerate(value)]
    return value


def _replacement(match: re.Match[str], environment: Mapping[str, str], report: Report, path: KeyPath) -> str:
    if match["escaped"]:
        return "${"
    if match["bad"]:
        report(path, "'${' starts a variable, as in ${NAME} or ${NAME:-default}; write $${ for a literal '${'")
        return match[0]
    found = environment.get(match["name"]) or match["default"]
    if found is None:
        report(
            path,
            f"variable {match['name']} is not set; set it, or add a default: ${{{match['name']}:-...}}",
        )
        return match[0]
    return found
