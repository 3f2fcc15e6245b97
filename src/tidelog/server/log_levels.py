"""Log levels of a running broker (config resource BROKER_LOGGER): described and changed with Kafka's names.

They hold until the broker restarts, as in Kafka.
"""

import logging
from collections.abc import Mapping
from typing import Final

from tidelog.config.resolution import ConfigSource, DescribedSetting
from tidelog.config.setting import ConfigType
from tidelog.controller.configs import AlterOperation, ConfigChange, ConfigOutcome, check_broker_name, check_entries
from tidelog.errors import InvalidConfig, InvalidRequest, KafkaError
from tidelog.types import BrokerId

logger = logging.getLogger(__name__)

BROKER_LOGGER: Final = 8
ROOT: Final = "root"
LEVELS: Final[Mapping[str, int]] = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
"""Kafka's names."""


def describe_log_levels(name: str, broker_id: BrokerId) -> list[DescribedSetting]:
    check_broker_name(name, broker_id)
    return [
        DescribedSetting(
            name=each,
            value=_level_name(_logger(each).getEffectiveLevel()),
            source=ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG,
            synonyms=(),
            is_sensitive=False,
            is_read_only=False,
            type=ConfigType.STRING,
            documentation="",
        )
        for each in [ROOT, *sorted(logging.root.manager.loggerDict)]
    ]


def alter_log_levels(change: ConfigChange, broker_id: BrokerId, *, validate_only: bool) -> ConfigOutcome:
    """All changes of the resource, or none."""
    try:
        levels = _checked(change, broker_id)
    except KafkaError as error:
        return ConfigOutcome(change.resource_type, change.resource_name, {}, error.as_value())
    if not validate_only:
        for name, level in levels.items():
            _logger(name).setLevel(level)
        logger.warning(
            "log levels changed levels=%s", ",".join(f"{name}={_level_name(levels[name])}" for name in levels)
        )
    return ConfigOutcome(change.resource_type, change.resource_name, {})


def _checked(change: ConfigChange, broker_id: BrokerId) -> dict[str, int]:
    if change.replacing:
        raise InvalidRequest(
            "AlterConfigs is deprecated and does not support the resource type BROKER_LOGGER; use"
            " IncrementalAlterConfigs"
        )
    check_entries(change)
    check_broker_name(change.resource_name, broker_id)
    return {name: _checked_level(name, value, operation) for name, value, operation in change.entries}


def _checked_level(name: str, value: str | None, operation: int) -> int:
    if name != ROOT and name not in logging.root.manager.loggerDict:
        raise InvalidConfig(f"Logger {name} does not exist!")
    if operation == AlterOperation.SET:
        level = LEVELS.get((value or "").upper())
        if level is None:
            raise InvalidConfig(
                f"Cannot set the log level of {name} to {value} as it is not a supported log level. Valid log levels"
                f" are {', '.join(LEVELS)}"
            )
        return level
    if operation == AlterOperation.DELETE:
        if name == ROOT:
            raise InvalidRequest(f"Removing the log level of the {ROOT} logger is not allowed")
        return logging.NOTSET
    raise InvalidRequest("Operations other than SET and DELETE are not allowed for BROKER_LOGGER")


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT else name)


def _level_name(level: int) -> str:
    if level == logging.NOTSET:
        return "inherited"
    return next((name for name, each in reversed([*LEVELS.items()]) if each <= level), "TRACE")
