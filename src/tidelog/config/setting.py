"""Declaration of settings on frozen dataclasses; parser, reference page and DescribeConfigs are derived from it."""

import dataclasses
import re
import types
import typing
from collections.abc import Mapping
from enum import Enum, IntEnum
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")


class ConfigType(IntEnum):
    """Numbers as DescribeConfigs carries them."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class UpdateMode(Enum):
    """Whether a broker setting can change while brokers run (KIP-226)."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


INTEGER_BITS = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}
LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1

_LIST_SEPARATOR = re.compile(r"\s*,\s*")
_INTEGER = re.compile(r"[+-]?[0-9]+")


class BadValue(ValueError):
    """The text is not a value of the setting; the message says why, in Kafka's words."""


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """Definition of one setting (Kafka: ConfigDef.ConfigKey)."""

    attribute: str
    type: ConfigType
    default: Any
    at_least: float | None
    at_most: float | None
    also_allowed: int | None
    one_of: tuple[str, ...]
    update: UpdateMode
    broker_names: tuple[str, ...]
    documentation: str

    @property
    def name(self) -> str:
        return self.attribute.replace("_", ".")

    @property
    def is_sensitive(self) -> bool:
        return self.type is ConfigType.PASSWORD

    def parse(self, text: str) -> Any:
        """Parse and validate a value. Raises BadValue."""
        value = _PARSERS[self.type](text.strip(), self.type)
        self._check_bounds(value)
        self._check_choice(value)
        return value

    def text(self, value: Any) -> str | None:
        """The value as Kafka writes it."""
        match value:
            case None:
                return None
            case bool():
                return "true" if value else "false"
            case tuple():
                return ",".join(value)
            case float():
                return _java_double(value)
            case _:
                return str(value)

    def _check_bounds(self, value: Any) -> None:
        if not isinstance(value, int | float) or value == self.also_allowed:
            return
        too_small = self.at_least is not None and value < self.at_least
        too_large = self.at_most is not None and value > self.at_most
        if not (too_small or too_large):
            return
        if self.also_allowed is not None:
            raise BadValue(f"Value must be between {self.at_least} and {self.at_most} or equal to {self.also_allowed}")
        raise BadValue(
            f"Value must be at least {self.at_least}" if too_small else f"Value must be no more than {self.at_most}"
        )

    def _check_choice(self, value: Any) -> None:
        chosen = value if isinstance(value, tuple) else (value,)
        if self.one_of and any(item not in self.one_of for item in chosen):
            raise BadValue(f"String must be one of: {', '.join(self.one_of)}")


class SettingsBase:
    """What classes with settings have in common: equal and shown by their settings.

    Python writes these methods anew for each dataclass; for a hundred fields that would take longer than all else that
    is done with settings.
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self._values() == other._values()

    def __hash__(self) -> int:
        return hash(tuple(self._values().values()))

    def __repr__(self) -> str:
        values = (f"{attribute}={value!r}" for attribute, value in self._values().items())
        return f"{type(self).__name__}({', '.join(values)})"

    def _values(self) -> dict[str, Any]:
        declaring: type = type(self)
        attributes = (declared.attribute for declared in settings_of(declaring).values())
        return {attribute: getattr(self, attribute) for attribute in attributes}


def setting(
    *,
    default: T,
    doc: str,
    kind: ConfigType | None = None,
    at_least: float | None = None,
    at_most: float | None = None,
    also_allowed: int | None = None,
    one_of: tuple[str, ...] = (),
    update: UpdateMode = UpdateMode.READ_ONLY,
    broker_names: tuple[str, ...] = (),
) -> T:
    """Declare a setting. Its name is the attribute's with dots instead of underscores, its type follows the annotation.

    `broker_names`: for a topic-level setting, the broker settings that give its default, the first one that is set.
    """
    declared = {
        "type": kind,
        "at_least": at_least,
        "at_most": at_most,
        "also_allowed": also_allowed,
        "one_of": one_of,
        "update": update,
        "broker_names": broker_names,
        "documentation": doc,
    }
    return dataclasses.field(default=default, metadata={"setting": declared})


@cache
def settings_of(declaring: type) -> Mapping[str, Setting]:
    """All settings that a class declares, by Kafka's name, in the order of declaration."""
    found = {}
    for field in dataclasses.fields(declaring):
        if "setting" in field.metadata:
            declared = dict(field.metadata["setting"])
            declared["type"] = declared["type"] or _type_of(field.type)
            known = Setting(attribute=field.name, default=field.default, **declared)
            found[known.name] = known
    return types.MappingProxyType(found)


def default_text(declared: Setting) -> str | None:
    return declared.text(declared.default)


_TYPES_BY_ANNOTATION = {bool: ConfigType.BOOLEAN, str: ConfigType.STRING, int: ConfigType.INT, float: ConfigType.DOUBLE}


def _type_of(annotation: Any) -> ConfigType:
    if isinstance(annotation, types.UnionType):
        annotation = next(part for part in typing.get_args(annotation) if part is not types.NoneType)
    if typing.get_origin(annotation) is tuple:
        return ConfigType.LIST
    return _TYPES_BY_ANNOTATION[annotation]


def _parse_boolean(text: str, _: ConfigType) -> bool:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise BadValue("Expected value to be either true or false")
    return lowered == "true"


def _parse_string(text: str, _: ConfigType) -> str:
    return text


def _parse_integer(text: str, kind: ConfigType) -> int:
    limit = 1 << (INTEGER_BITS[kind] - 1)
    if not _INTEGER.fullmatch(text) or len(text) > 20 or not -limit <= int(text) < limit:
        raise BadValue(f"Not a number of type {kind.name}")
    return int(text)


def _parse_double(text: str, kind: ConfigType) -> float:
    try:
        value = float(text)
    except ValueError:
        raise BadValue(f"Not a number of type {kind.name}") from None
    if value != value:
        raise BadValue(f"Not a number of type {kind.name}")
    return value


def _parse_list(text: str, _: ConfigType) -> tuple[str, ...]:
    return tuple(dict.fromkeys(item for item in _LIST_SEPARATOR.split(text) if item))


_PARSERS = {
    ConfigType.BOOLEAN: _parse_boolean,
    ConfigType.STRING: _parse_string,
    ConfigType.PASSWORD: _parse_string,
    ConfigType.SHORT: _parse_integer,
    ConfigType.INT: _parse_integer,
    ConfigType.LONG: _parse_integer,
    ConfigType.DOUBLE: _parse_double,
    ConfigType.LIST: _parse_list,
}


def _java_double(value: float) -> str:
    mantissa, _, exponent = repr(value).partition("e")
    if not exponent:
        return mantissa
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}E{int(exponent)}"
