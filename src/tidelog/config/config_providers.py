"""Secrets in settings: `${env:NAME}` and `${file:PATH:KEY}`, as Kafka's config providers resolve them."""

import os
import re

from tidelog.config.properties import parse_properties

PLACEHOLDER = re.compile(r"\$\{(?P<provider>[A-Za-z]+):(?:(?P<path>[^}]*):)?(?P<key>[^:}]*)\}")
SUPPORTED = "${env:NAME} and ${file:PATH:KEY}"


class UnresolvedSecret(ValueError):
    """The message names the place, never a value."""


def has_placeholder(text: str) -> bool:
    return PLACEHOLDER.search(text) is not None


def resolve(text: str) -> str:
    """Replace placeholders by what the environment or a properties file says. Raises UnresolvedSecret."""
    return PLACEHOLDER.sub(_value, text)


def _value(match: re.Match[str]) -> str:
    provider, path, key = match["provider"].lower(), match["path"], match["key"]
    if provider == "env" and not path:
        if key not in os.environ:
            raise UnresolvedSecret(f"the environment has no variable {key}")
        return os.environ[key]
    if provider == "file" and path:
        return _of_file(path, key)
    raise UnresolvedSecret(f"{match[0]} cannot be resolved; supported: {SUPPORTED}")


def _of_file(path: str, key: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            found = {each.key: each.value for each in parse_properties(file.read())}
    except (OSError, UnicodeDecodeError) as error:
        raise UnresolvedSecret(f"cannot read {path}: {getattr(error, 'strerror', None) or 'not UTF-8'}") from error
    if key not in found:
        raise UnresolvedSecret(f"{path} has no key {key}")
    return found[key]
