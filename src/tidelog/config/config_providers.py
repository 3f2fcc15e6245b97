"""Secrets in settings: `${env:NAME}` and `${file:PATH:KEY}`, as Kafka's config providers resolve them.

Clients have these two; a broker has those that its settings name (`config.providers`, KIP-421).
"""

import os
import re
from collections.abc import Mapping

from tidelog.config.properties import parse_properties

PLACEHOLDER = re.compile(r"\$\{(?P<provider>[A-Za-z][\w-]*):(?:(?P<path>[^}]*):)?(?P<key>[^:}]*)\}")
SUPPORTED = "${env:NAME} and ${file:PATH:KEY}"
CONFIG_PROVIDERS = "config.providers"
_PACKAGE = "org.apache.kafka.common.config.provider."
_KINDS = {"FileConfigProvider": "file", "DirectoryConfigProvider": "directory", "EnvVarConfigProvider": "env"}
_KINDS_OF_CLIENTS = {"env": "env", "file": "file"}


class UnresolvedSecret(ValueError):
    """The message names the place, never a value."""


def has_placeholder(text: str) -> bool:
    return PLACEHOLDER.search(text) is not None


def resolve(text: str) -> str:
    """Replace placeholders by what the environment or a properties file says. Raises UnresolvedSecret."""
    return PLACEHOLDER.sub(lambda match: _value(match, _KINDS_OF_CLIENTS.get(match["provider"].lower())), text)


def named_providers(settings: Mapping[str, str]) -> dict[str, str]:
    """Kinds of the config providers that a broker's settings name, by name. Raises UnresolvedSecret."""
    found = {}
    for name in filter(None, map(str.strip, settings.get(CONFIG_PROVIDERS, "").split(","))):
        setting = f"{CONFIG_PROVIDERS}.{name}.class"
        kind = _KINDS.get(settings.get(setting, "").removeprefix(_PACKAGE))
        if kind is None:
            raise UnresolvedSecret(f"{setting}: must be {', '.join(_KINDS)} of {_PACKAGE}")
        found[name] = kind
    return found


def resolve_named(text: str, providers: Mapping[str, str]) -> str:
    """Replace placeholders of these providers, and leave others as they are. Raises UnresolvedSecret."""

    def value(match: re.Match[str]) -> str:
        kind = providers.get(match["provider"])
        return match[0] if kind is None else _value(match, kind)

    return PLACEHOLDER.sub(value, text)


def _value(match: re.Match[str], kind: str | None) -> str:
    path, key = match["path"], match["key"]
    if kind == "env" and not path:
        if key not in os.environ:
            raise UnresolvedSecret(f"the environment has no variable {key}")
        return os.environ[key]
    if kind == "file" and path:
        return _of_file(path, key)
    if kind == "directory" and path:
        return _read(os.path.join(path, key))
    raise UnresolvedSecret(f"{match[0]} cannot be resolved; supported: {SUPPORTED}")


def _of_file(path: str, key: str) -> str:
    found = {each.key: each.value for each in parse_properties(_read(path))}
    if key not in found:
        raise UnresolvedSecret(f"{path} has no key {key}")
    return found[key]


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise UnresolvedSecret(f"cannot read {path}: {getattr(error, 'strerror', None) or 'not UTF-8'}") from error
