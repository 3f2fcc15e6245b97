"""Admin client: topics, configs, brokers and log directories."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, TypeVar

from tidelog.client.network.bootstrap import Address
from tidelog.client.network.in_flight import ConnectionLost
from tidelog.client.network.retries import retried
from tidelog.client.routing.cluster import Cluster
from tidelog.client.routing.metadata import BrokerMetadata, ClusterMetadata, TopicMetadata
from tidelog.errors import KafkaError, RequestTimedOut, TopicAlreadyExists, UnknownTopicOrPartition, raise_error
from tidelog.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from tidelog.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from tidelog.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from tidelog.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tidelog.types import BrokerId

T = TypeVar("T")

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
TOPIC_SOURCE = 1
"""DYNAMIC_TOPIC_CONFIG in Kafka."""
DEFAULT_TIMEOUT_S = 30.0
CHOSEN_BY_BROKER = -1
"""`num.partitions` and `default.replication.factor` of the broker apply."""
POLL_S = 0.02


class ClusterDescription(NamedTuple):
    cluster_id: str
    controller_id: BrokerId
    brokers: Mapping[BrokerId, BrokerMetadata]


class Admin:
    """Admin client. Retriable errors are retried for `timeout_s`; others are raised."""

    def __init__(self, cluster: Cluster, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        self._cluster = cluster
        self._timeout_s = timeout_s

    # ---- topics

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = CHOSEN_BY_BROKER,
        replication_factor: int = CHOSEN_BY_BROKER,
        settings: Mapping[str, str] | None = None,
    ) -> TopicMetadata:
        """Returns when every broker knows the topic and its leaders."""
        configs = [CreatableTopicConfig(name=key, value=value) for key, value in (settings or {}).items()]
        topic = CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=replication_factor, configs=configs
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=int(self._timeout_s * 1000))

        async def attempt() -> None:
            response = await self._cluster.ask_controller(request, CreateTopicsResponse)
            for result in response.topics:
                raise_error(result.error_code, message=result.error_message)

        await self._change(f"creating topic {name}", attempt, TopicAlreadyExists)
        await self._wait_until_everywhere(lambda metadata: _has_leaders(metadata, name), name)
        return (await self._cluster.ask_topics([name])).topic(name)

    async def delete_topic(self, name: str) -> None:
        """Returns when no broker knows the topic any more."""

        async def attempt() -> None:
            request = DeleteTopicsRequest(
                topics=[DeleteTopicState(name=name)], topic_names=[name], timeout_ms=int(self._timeout_s * 1000)
            )
            response = await self._cluster.ask_controller(request, DeleteTopicsResponse)
            for result in response.responses:
                if result.error_code == UnknownTopicOrPartition.code:
                    raise _NoSuchTopic(f"topic {name} does not exist")
                raise_error(result.error_code, message=result.error_message)

        await self._change(f"deleting topic {name}", attempt, _NoSuchTopic)
        await self._wait_until_everywhere(lambda metadata: name not in metadata.topics, name)

    async def list_topics(self) -> list[TopicMetadata]:
        metadata = await self._retrying("listing topics", lambda: self._cluster.ask_topics(None))
        return [metadata.topics[name] for name in sorted(metadata.topics)]

    async def describe_topic(self, name: str) -> TopicMetadata:
        metadata = await self._retrying(f"describing topic {name}", lambda: self._cluster.ask_topics([name]))
        if name not in metadata.topics and isinstance(metadata.errors.get(name), UnknownTopicOrPartition):
            raise UnknownTopicOrPartition(f"topic {name} does not exist")
        return metadata.topic(name)

    # ---- configs

    async def topic_settings(self, *names: str, is_explained: bool = False) -> dict[str, DescribeConfigsResult]:
        """`is_explained`: with the documentation of each setting."""
        resources = [DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=name) for name in names]
        request = DescribeConfigsRequest(resources=resources, include_documentation=is_explained)
        response = await self._retrying(
            "describing settings", lambda: self._cluster.ask_any(request, DescribeConfigsResponse)
        )
        return {result.resource_name: _checked(result) for result in response.results}

    async def broker_settings(self, broker_id: BrokerId, *, is_explained: bool = False) -> DescribeConfigsResult:
        resource = DescribeConfigsResource(resource_type=BROKER_RESOURCE, resource_name=str(broker_id))
        request = DescribeConfigsRequest(resources=[resource], include_documentation=is_explained)

        async def attempt() -> DescribeConfigsResponse:
            await self._cluster.refresh()
            return await self._cluster.ask_broker(broker_id, request, DescribeConfigsResponse)

        response = await self._retrying(f"describing the settings of broker {broker_id}", attempt)
        return _checked(response.results[0])

    # ---- the cluster

    async def describe_cluster(self) -> ClusterDescription:
        async def attempt() -> DescribeClusterResponse:
            response = await self._cluster.ask_any(DescribeClusterRequest(), DescribeClusterResponse)
            raise_error(response.error_code, message=response.error_message)
            return response

        response = await self._retrying("describing the cluster", attempt)
        brokers = {
            broker.broker_id: BrokerMetadata(broker.broker_id, Address(broker.host, broker.port), broker.rack)
            for broker in response.brokers
        }
        return ClusterDescription(response.cluster_id, response.controller_id, brokers)

    async def describe_log_dirs(self) -> dict[BrokerId, DescribeLogDirsResponse | KafkaError | ConnectionLost]:
        """The response of every live broker, or the error of one that does not respond."""
        metadata = await self._retrying("asking for the brokers", self._cluster.refresh)
        responses = await asyncio.gather(*(self._log_dirs_of(broker_id) for broker_id in metadata.brokers))
        return dict(zip(metadata.brokers, responses, strict=True))

    async def _log_dirs_of(self, broker_id: BrokerId) -> DescribeLogDirsResponse | KafkaError | ConnectionLost:
        try:
            request = DescribeLogDirsRequest(topics=None)
            response = await self._cluster.ask_broker(broker_id, request, DescribeLogDirsResponse)
            raise_error(response.error_code)
        except (KafkaError, ConnectionLost) as error:
            return error
        return response

    # ---- retries

    async def _retrying(self, what: str, attempt: Callable[[], Awaitable[T]]) -> T:
        return await retried(self._cluster.attempts(what, self._timeout_s), attempt)

    async def _change(self, what: str, attempt: Callable[[], Awaitable[None]], already_done: type[KafkaError]) -> None:
        """`already_done`: error if the change was made before, which is success if our first response was lost."""
        may_be_ours = False
        attempts = self._cluster.attempts(what, self._timeout_s)
        while True:
            try:
                return await attempt()
            except (KafkaError, ConnectionLost) as error:
                if isinstance(error, already_done) and may_be_ours:
                    return None
                may_be_ours |= isinstance(error, ConnectionLost | RequestTimedOut)
                await attempts.after(error)

    async def _wait_until_everywhere(self, condition: Callable[[ClusterMetadata], bool], topic: str) -> None:
        """Wait until the metadata of every broker has the change. Skips unreachable brokers; ends after `timeout_s`."""
        deadline = asyncio.get_running_loop().time() + self._timeout_s
        for broker in list(self._cluster.metadata.brokers.values()):
            while asyncio.get_running_loop().time() < deadline:
                if await self._sees(broker, condition, topic):
                    break
                await asyncio.sleep(POLL_S)

    async def _sees(self, broker: BrokerMetadata, condition: Callable[[ClusterMetadata], bool], topic: str) -> bool:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        try:
            response = await self._cluster.ask_address(broker.address, request, MetadataResponse)
        except ConnectionLost:
            return True  # gets the metadata when it comes back
        return condition(ClusterMetadata().updated(response))


class _NoSuchTopic(KafkaError):
    """Not retriable here: the controller's answer is authoritative."""

    code = UnknownTopicOrPartition.code


def _has_leaders(metadata: ClusterMetadata, topic: str) -> bool:
    found = metadata.topics.get(topic)
    return found is not None and all(partition.leader in metadata.brokers for partition in found.partitions.values())


def _checked(result: DescribeConfigsResult) -> DescribeConfigsResult:
    """The result, if it is not an error; raises the error otherwise."""
    raise_error(result.error_code, message=result.error_message)
    return result


def own_settings(result: DescribeConfigsResult) -> dict[str, str]:
    """Configs that were set on the topic itself."""
    return {entry.name: entry.value or "" for entry in result.configs if entry.config_source == TOPIC_SOURCE}
