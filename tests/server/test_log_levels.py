"""Log levels of a running broker, described and changed as Kafka's tools do."""

import logging
from collections.abc import Iterator

import pytest

from tests.server.harness import Client, Harness, with_broker
from tests.server.test_configs import BROKER_LOGGER, change, describe, replace
from tidelog.controller.configs import AlterOperation, ConfigChange
from tidelog.errors import InvalidConfig, InvalidRequest
from tidelog.server.log_levels import ROOT, alter_log_levels, describe_log_levels

NAME = "tidelog.test_log_levels"


@pytest.fixture(autouse=True)
def _one_logger() -> Iterator[None]:
    found, root = logging.getLogger(NAME), logging.getLogger()
    before = root.level
    yield
    found.setLevel(logging.NOTSET)
    root.setLevel(before)


def altered(*entries: tuple[str, str | None, int], validate_only: bool = False, name: str = "1") -> object:
    return alter_log_levels(ConfigChange(BROKER_LOGGER, name, entries), 1, validate_only=validate_only).error


def level() -> str | None:
    return next(each.value for each in describe_log_levels("1", 1) if each.name == NAME)


def test_level_is_set_and_unset() -> None:
    assert altered((ROOT, "WARN", AlterOperation.SET)) is None
    assert level() == "WARN"
    assert altered((NAME, "debug", AlterOperation.SET)) is None
    assert logging.getLogger(NAME).isEnabledFor(logging.DEBUG)
    assert altered((NAME, "ERROR", AlterOperation.SET), validate_only=True) is None
    assert level() == "DEBUG"
    assert altered((NAME, None, AlterOperation.DELETE)) is None
    assert level() == "WARN"


@pytest.mark.parametrize(
    ("entry", "error", "said"),
    [
        ((NAME, "LOUD", AlterOperation.SET), InvalidConfig, "Valid log levels are TRACE, DEBUG"),
        (("nobody", "INFO", AlterOperation.SET), InvalidConfig, "Logger nobody does not exist"),
        ((ROOT, None, AlterOperation.DELETE), InvalidRequest, "is not allowed"),
        ((NAME, "INFO", AlterOperation.APPEND), InvalidRequest, "Operations other than SET and DELETE"),
    ],
)
def test_what_makes_no_sense_is_refused_as_a_whole(
    entry: tuple[str, str | None, int], error: type[Exception], said: str
) -> None:
    found = altered((NAME, "TRACE", AlterOperation.SET), entry) if entry[0] != NAME else altered(entry)
    assert isinstance(found, error)
    assert said in str(found)
    assert not logging.getLogger(NAME).isEnabledFor(5)


def test_only_the_broker_itself_is_answered_for() -> None:
    assert isinstance(altered((NAME, "INFO", AlterOperation.SET), name="2"), InvalidRequest)


def test_levels_go_over_the_wire() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        this = (BROKER_LOGGER, "0")
        assert await change(client, this, (NAME, AlterOperation.SET, "ERROR")) == 0
        result = await describe(client, this, ROOT, NAME)
        assert [each.name for each in result.configs] == [ROOT, NAME]
        assert (result.configs[1].value, result.configs[1].config_source) == ("ERROR", 6)
        assert await replace(client, this, tidelog="INFO") == InvalidRequest.code

    with_broker(scenario)
