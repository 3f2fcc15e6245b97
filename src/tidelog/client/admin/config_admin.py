"""Admin client for configs: describe, set and unset those of topics, brokers, groups and loggers."""

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from tidelog.client.admin.admin import DEFAULT_TIMEOUT_S
from tidelog.client.network.retries import retried
from tidelog.client.routing.cluster import Cluster
from tidelog.errors import InvalidRequest, KafkaError, UnknownTopicOrPartition, raise_error
from tidelog.numerals import natural_number
from tidelog.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from tidelog.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

ALL_BROKERS = ""
"""Name of the broker resource whose configs hold for all brokers."""
SET = 0
DELETE = 1


class ResourceKind(IntEnum):
    """Numbers as requests carry them."""

    TOPIC = 2
    BROKER = 4
    LOGGER = 8
    """Log levels of one broker (BROKER_LOGGER)."""
    GROUP = 32


class Resource(NamedTuple):
    kind: ResourceKind
    name: str


class NoSuchTopic(KafkaError):
    """Not retriable here: the topic was there a moment ago, or never."""

    code = UnknownTopicOrPartition.code


class ConfigAdmin:
    """Retriable errors are retried until `timeout_s`; others are raised."""

    def __init__(self, cluster: Cluster, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        self._cluster = cluster
        self._timeout_s = timeout_s

    async def describe(self, resource: Resource, names: Sequence[str] = ()) -> list[DescribeConfigsResourceResult]:
        """All configs, or those with these names; with the values they would have without each source."""
        described = DescribeConfigsResource(
            resource_type=resource.kind, resource_name=resource.name, configuration_keys=list(names) or None
        )
        request = DescribeConfigsRequest(resources=[described], include_synonyms=True)

        async def attempt() -> list[DescribeConfigsResourceResult]:
            response = await self._ask(resource, request)
            (result,) = response.results
            _raise(result.error_code, result.error_message)
            return result.configs

        what = f"describing the settings of {resource.name or 'all brokers'}"
        return sorted(await retried(self._cluster.attempts(what, self._timeout_s), attempt), key=lambda each: each.name)

    async def _ask(self, resource: Resource, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
        if (broker_id := _broker_of(resource)) is None:
            return await self._cluster.ask_any(request, DescribeConfigsResponse)
        await self._cluster.refresh()
        return await self._cluster.ask_broker(broker_id, request, DescribeConfigsResponse)

    async def alter(
        self,
        resource: Resource,
        values: Mapping[str, str] = {},
        unset: Iterable[str] = (),
        *,
        validate_only: bool = False,
    ) -> None:
        """Set some configs and unset others, all or none."""
        configs = [AlterableConfig(name=name, config_operation=SET, value=value) for name, value in values.items()]
        configs += [AlterableConfig(name=name, config_operation=DELETE, value=None) for name in unset]
        altered = AlterConfigsResource(resource_type=resource.kind, resource_name=resource.name, configs=configs)
        request = IncrementalAlterConfigsRequest(resources=[altered], validate_only=validate_only)

        async def attempt() -> None:
            if (broker_id := _broker_of(resource)) is None:
                response = await self._cluster.ask_any(request, IncrementalAlterConfigsResponse)
            else:
                await self._cluster.refresh()
                response = await self._cluster.ask_broker(broker_id, request, IncrementalAlterConfigsResponse)
            for result in response.responses:
                _raise(result.error_code, result.error_message)

        what = f"changing the settings of {resource.name or 'all brokers'}"
        await retried(self._cluster.attempts(what, self._timeout_s), attempt)

    async def alter_or_unset(self, resource: Resource, settings: Mapping[str, str | None]) -> None:
        """Set some configs and unset those whose value is None, all or none."""
        values = {name: value for name, value in settings.items() if value is not None}
        await self.alter(resource, values, [name for name in settings if name not in values])


def _raise(code: int, message: str | None) -> None:
    if code == UnknownTopicOrPartition.code:
        raise NoSuchTopic(message or "the topic does not exist")
    raise_error(code, message=message)


def _broker_of(resource: Resource) -> int | None:
    """Only the broker itself answers for its configs; None if any broker does."""
    if resource.kind not in (ResourceKind.BROKER, ResourceKind.LOGGER) or resource.name == ALL_BROKERS:
        return None
    broker_id = natural_number(resource.name)
    if broker_id is None:
        raise InvalidRequest(f"a broker has a number, not the name {resource.name!r}")
    return broker_id
