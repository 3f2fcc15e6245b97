"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources, through the wire protocol."""

import asyncio
from typing import TypeAlias

import pytest

from tests.server.harness import Client, Harness, batch_of, produce_request, with_broker
from tests.server.test_create_topics import directories
from tests.server.test_delete_topics import delete as delete_topics
from tidelog.config.resolution import ConfigSource
from tidelog.config.setting import ConfigType, settings_of
from tidelog.config.topic import TopicSettings
from tidelog.controller.configs import AlterOperation
from tidelog.errors import (
    InvalidConfig,
    InvalidRequest,
    InvalidTopic,
    KafkaError,
    MessageTooLarge,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from tidelog.protocol.compression import Codec
from tidelog.protocol.messages import alter_configs, incremental_alter_configs
from tidelog.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from tidelog.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from tidelog.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tidelog.protocol.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from tidelog.protocol.messages.produce import ProduceResponse
from tidelog.protocol.record_batch import COMPRESSION_MASK, read_header
from tidelog.runtime.virtual_time import EPOCH_MS, run_virtually

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = AlterOperation
Resource: TypeAlias = tuple[int, str]
T: Resource = (TOPIC, "t")
THIS_BROKER: Resource = (BROKER, "0")
ALL_BROKERS: Resource = (BROKER, "")
READERS: Resource = (GROUP, "readers")


async def describe(
    client: Client, resource: Resource, *keys: str, version: int = 4, synonyms: bool = True, documentation: bool = False
) -> DescribeConfigsResult:
    kind, name = resource
    wanted = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=list(keys) or None)
    request = DescribeConfigsRequest(resources=[wanted], include_synonyms=synonyms, include_documentation=documentation)
    (result,) = (await client.ask(request, version, DescribeConfigsResponse)).results
    assert (result.resource_type, result.resource_name) == resource
    return result


async def entry(client: Client, resource: Resource, key: str, version: int = 4) -> DescribeConfigsResourceResult:
    (found,) = (await describe(client, resource, key, version=version)).configs
    return found


async def value(client: Client, resource: Resource, key: str) -> tuple[str | None, int]:
    found = await entry(client, resource, key)
    return found.value, found.config_source


async def change(
    client: Client,
    resource: Resource,
    *operations: tuple[str, int, str | None],
    version: int = 1,
    validate_only: bool = False,
) -> int:
    """The error code of an IncrementalAlterConfigs."""
    configs = [
        incremental_alter_configs.AlterableConfig(name=name, config_operation=operation, value=text)
        for name, operation, text in operations
    ]
    wanted = incremental_alter_configs.AlterConfigsResource(
        resource_type=resource[0], resource_name=resource[1], configs=configs
    )
    request = IncrementalAlterConfigsRequest(resources=[wanted], validate_only=validate_only)
    (result,) = (await client.ask(request, version, IncrementalAlterConfigsResponse)).responses
    assert (result.resource_type, result.resource_name) == resource
    assert bool(result.error_message) == bool(result.error_code)
    return result.error_code


async def replace(
    client: Client, resource: Resource, version: int = 2, *, validate_only: bool = False, **configs: str | None
) -> int:
    """The error code of an AlterConfigs."""
    wanted = alter_configs.AlterConfigsResource(
        resource_type=resource[0],
        resource_name=resource[1],
        configs=[
            alter_configs.AlterableConfig(name=name.replace("_", "."), value=text) for name, text in configs.items()
        ],
    )
    request = AlterConfigsRequest(resources=[wanted], validate_only=validate_only)
    (result,) = (await client.ask(request, version, AlterConfigsResponse)).responses
    return result.error_code


# ---- describing


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_a_topic_reports_all_its_settings(version: int) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t", retention_ms="1000")
        result = await describe(client, T, version=version)
        assert (result.error_code, result.error_message) == (0, "")
        assert {config.name for config in result.configs} == set(settings_of(TopicSettings))
        found = await entry(client, T, "retention.ms", version)
        assert (found.value, found.config_source) == ("1000", ConfigSource.DYNAMIC_TOPIC_CONFIG)
        assert (found.read_only, found.is_sensitive) == (False, False)
        assert found.config_type == (ConfigType.LONG if version >= 3 else 0)
        assert [(each.name, each.value, each.source) for each in found.synonyms] == [
            ("retention.ms", "1000", ConfigSource.DYNAMIC_TOPIC_CONFIG),
        ]

    with_broker(scenario)


def test_synonyms_and_documentation_only_when_asked_for() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t")
        plain = await describe(client, T, "segment.bytes", synonyms=False)
        assert (plain.configs[0].synonyms, plain.configs[0].documentation) == ([], None)
        full = await describe(client, T, "segment.bytes", documentation=True)
        assert [each.name for each in full.configs[0].synonyms] == ["log.segment.bytes"]
        assert full.configs[0].documentation == settings_of(TopicSettings)["segment.bytes"].documentation

    with_broker(scenario)


def test_no_keys_and_an_empty_list_ask_for_all_and_unknown_keys_are_left_out() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t")
        wanted = DescribeConfigsResource(resource_type=TOPIC, resource_name="t", configuration_keys=[])
        response = await client.ask(DescribeConfigsRequest(resources=[wanted]), 4, DescribeConfigsResponse)
        assert len(response.results[0].configs) == len(settings_of(TopicSettings))
        some = await describe(client, T, "retention.ms", "nope", "segment.ms", "retention.ms")
        assert {config.name for config in some.configs} == {"retention.ms", "segment.ms"}
        assert len(some.configs) == 2

    with_broker(scenario)


def test_what_is_asked_for_a_thousand_times_is_answered_once() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t")
        wanted = [DescribeConfigsResource(2, "t", None)] * 1000 + [DescribeConfigsResource(2, "t", ["retention.ms"])]
        response = await client.ask(DescribeConfigsRequest(resources=wanted), 4, DescribeConfigsResponse)
        assert [len(result.configs) > 1 for result in response.results] == [True, False]

    with_broker(scenario)


def test_a_broker_reports_what_is_set_and_what_can_be_changed() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        partitions = await entry(client, THIS_BROKER, "num.partitions")
        assert (partitions.value, partitions.config_source) == ("3", ConfigSource.STATIC_BROKER_CONFIG)
        assert partitions.read_only
        size = await entry(client, THIS_BROKER, "message.max.bytes")
        assert (size.value, size.config_source, size.read_only) == ("1048588", ConfigSource.DEFAULT_CONFIG, False)
        assert (await describe(client, ALL_BROKERS)).configs == []

    with_broker(scenario, num_partitions=3)


@pytest.mark.parametrize(
    ("resource", "error"),
    [
        ((TOPIC, "missing"), UnknownTopicOrPartition),
        ((TOPIC, "a b"), InvalidTopic),
        ((TOPIC, ""), InvalidTopic),
        ((BROKER, "1"), InvalidRequest),
        ((BROKER, "zero"), InvalidRequest),
        ((GROUP, ""), InvalidRequest),
        ((0, "t"), InvalidRequest),
        ((99, "t"), InvalidRequest),
    ],
)
def test_what_cannot_be_described(resource: Resource, error: type[KafkaError]) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        result = await describe(client, resource)
        assert (result.error_code, result.configs) == (error.code, [])
        assert result.error_message

    with_broker(scenario)


# ---- changing single settings


@pytest.mark.parametrize("version", [0, 1])
def test_settings_are_set_and_unset(version: int) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t", segment_ms="5000")
        assert await change(client, T, ("retention.ms", SET, "1000"), version=version) == 0
        assert await value(client, T, "retention.ms") == ("1000", ConfigSource.DYNAMIC_TOPIC_CONFIG)
        assert await value(client, T, "segment.ms") == ("5000", ConfigSource.DYNAMIC_TOPIC_CONFIG)
        unset = [("retention.ms", DELETE, None), ("flush.ms", DELETE, None)]
        assert await change(client, T, *unset, version=version) == 0
        assert await value(client, T, "retention.ms") == ("604800000", ConfigSource.DEFAULT_CONFIG)

    with_broker(scenario)


def test_lists_are_appended_to_and_subtracted_from() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t")
        for operation, text, expected in (
            (APPEND, "compact", "delete,compact"),
            (APPEND, "compact", "delete,compact"),
            (SUBTRACT, "delete", "compact"),
            (SUBTRACT, "delete", "compact"),
        ):
            assert await change(client, T, ("cleanup.policy", operation, text)) == 0
            assert (await value(client, T, "cleanup.policy"))[0] == expected

    with_broker(scenario)


REJECTED: list[tuple[Resource, list[tuple[str, int, str | None]], type[KafkaError]]] = [
    (T, [("nope", SET, "1")], InvalidConfig),
    (T, [("retention.ms", SET, "soon")], InvalidConfig),
    (T, [("retention.ms", SET, "-2")], InvalidConfig),
    (T, [("retention.ms", SET, None)], InvalidRequest),
    (T, [("retention.ms", APPEND, "1")], InvalidConfig),
    (T, [("retention.ms", SUBTRACT, "1")], InvalidConfig),
    (T, [("cleanup.policy", APPEND, "burn")], InvalidConfig),
    (T, [("cleanup.policy", APPEND, None)], InvalidRequest),
    (T, [("retention.ms", SET, "1"), ("retention.ms", SET, "2")], InvalidRequest),
    (T, [("retention.ms", SET, "1"), ("segment.ms", SET, "x")], InvalidConfig),
    (T, [("retention.ms", 7, "1")], InvalidRequest),
    ((TOPIC, "missing"), [("retention.ms", SET, "1")], UnknownTopicOrPartition),
    ((TOPIC, "a b"), [("retention.ms", SET, "1")], InvalidTopic),
    ((TOPIC, ""), [("retention.ms", SET, "1")], InvalidRequest),
    ((99, "t"), [("retention.ms", SET, "1")], InvalidRequest),
    ((BROKER, "1"), [("log.retention.ms", SET, "1")], InvalidRequest),
    ((BROKER, "zero"), [("log.retention.ms", SET, "1")], InvalidRequest),
    (THIS_BROKER, [("broker.rack", SET, "east")], InvalidRequest),
    (THIS_BROKER, [("log.retention.ms", SET, "soon")], InvalidRequest),
    (ALL_BROKERS, [("message.max.bytes", SET, "-1")], InvalidRequest),
]


@pytest.mark.parametrize(("resource", "operations", "error"), REJECTED)
@pytest.mark.parametrize("validate_only", [True, False])
def test_a_refused_change_changes_nothing(
    resource: Resource,
    operations: list[tuple[str, int, str | None]],
    error: type[KafkaError],
    validate_only: bool,
) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t")
        nodes = dict(harness.store_state.nodes)
        assert await change(client, resource, *operations, validate_only=validate_only) == error.code
        assert harness.store_state.nodes == nodes
        assert (await value(client, T, "retention.ms"))[0] == "604800000"

    with_broker(scenario)


def test_validating_changes_nothing() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t")
        assert await change(client, T, ("retention.ms", SET, "1"), validate_only=True) == 0
        assert await replace(client, T, validate_only=True, retention_ms="1") == 0
        assert (await value(client, T, "retention.ms"))[0] == "604800000"

    with_broker(scenario)


# ---- replacing all settings


@pytest.mark.parametrize("version", [0, 1, 2])
def test_replacing_unsets_what_is_not_named(version: int) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t", retention_ms="1000")
        assert await replace(client, T, version, segment_ms="5000") == 0
        assert await value(client, T, "retention.ms") == ("604800000", ConfigSource.DEFAULT_CONFIG)
        assert (await value(client, T, "segment.ms"))[0] == "5000"
        assert await replace(client, T, version) == 0
        assert (await value(client, T, "segment.ms"))[1] == ConfigSource.DEFAULT_CONFIG
        for bad, error in (({"nope": "1"}, InvalidConfig), ({"segment_ms": None}, InvalidRequest)):
            assert await replace(client, T, version, **bad) == error.code

    with_broker(scenario)


def test_each_resource_of_a_request_has_its_own_answer() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t")
        await client.create_topic("u")
        resources = [
            alter_configs.AlterConfigsResource(
                resource_type=TOPIC,
                resource_name=name,
                configs=[alter_configs.AlterableConfig(name="retention.ms", value=text)],
            )
            for name, text in (("t", "1000"), ("missing", "1"), ("u", "1"), ("u", "2"))
        ]
        response = await client.ask(AlterConfigsRequest(resources=resources), 2, AlterConfigsResponse)
        assert [result.error_code for result in response.responses] == [
            0,
            UnknownTopicOrPartition.code,
            InvalidRequest.code,
            InvalidRequest.code,
        ]
        assert (await value(client, T, "retention.ms"))[0] == "1000"

    with_broker(scenario)


# ---- which value counts


def test_topic_over_broker_over_all_brokers_over_default() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t")
        expected = [("604800000", ConfigSource.DEFAULT_CONFIG)]
        for resource, name, source in (
            (ALL_BROKERS, "log.retention.ms", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
            (THIS_BROKER, "log.retention.ms", ConfigSource.DYNAMIC_BROKER_CONFIG),
            (T, "retention.ms", ConfigSource.DYNAMIC_TOPIC_CONFIG),
        ):
            text = str(1000 * source)
            assert await change(client, resource, (name, SET, text)) == 0
            expected.append((text, source))
            assert await value(client, T, "retention.ms") == expected[-1]
        found = await entry(client, T, "retention.ms")
        assert [(each.value, each.source) for each in found.synonyms[:3]] == expected[:0:-1]
        assert await value(client, ALL_BROKERS, "log.retention.ms") == expected[1]
        assert await value(client, THIS_BROKER, "log.retention.ms") == expected[2]
        for resource, name in (
            (T, "retention.ms"),
            (THIS_BROKER, "log.retention.ms"),
            (ALL_BROKERS, "log.retention.ms"),
        ):
            assert await value(client, T, "retention.ms") == expected.pop()
            assert await change(client, resource, (name, DELETE, None)) == 0
        assert await value(client, T, "retention.ms") == expected.pop()

    with_broker(scenario)


def test_changes_survive_a_restart() -> None:
    async def main() -> None:
        harness = Harness()
        async with harness.broker():
            client = await harness.connect()
            await client.create_topic("t")
            await change(client, T, ("retention.ms", SET, "1000"))
            await change(client, ALL_BROKERS, ("message.max.bytes", SET, "200"))
            await change(client, THIS_BROKER, ("compression.type", SET, "gzip"))
        async with harness.broker():
            client = await harness.connect()
            assert (await value(client, T, "retention.ms"))[0] == "1000"
            assert (await value(client, THIS_BROKER, "compression.type"))[0] == "gzip"
            assert (await client.produce("t", b"x" * 300)).error_code == MessageTooLarge.code

    run_virtually(main())


# ---- acting at once


@pytest.mark.parametrize(
    ("resource", "name"),
    [(T, "max.message.bytes"), (THIS_BROKER, "message.max.bytes"), (ALL_BROKERS, "message.max.bytes")],
)
def test_the_largest_batch_changes_at_once(resource: Resource, name: str) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t")
        assert (await client.produce("t", b"x" * 300)).error_code == 0
        await change(client, resource, (name, SET, "200"))
        assert (await client.produce("t", b"x" * 300)).error_code == MessageTooLarge.code
        await change(client, resource, (name, DELETE, None))
        assert (await client.produce("t", b"x" * 300)).error_code == 0

    with_broker(scenario)


def test_compression_changes_at_once() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t")
        for name, codec in (("gzip", Codec.GZIP), ("zstd", Codec.ZSTD), ("producer", Codec.NONE)):
            await change(client, T, ("compression.type", SET, name))
            offset = (await client.produce("t", b"x" * 100)).base_offset
            records = (await client.fetch("t", offset)).records
            assert read_header(bytes(records or b"")).attributes & COMPRESSION_MASK == codec  # type: ignore[arg-type]
        assert await client.values("t") == [b"x" * 100] * 3

    with_broker(scenario)


def test_timestamps_change_their_kind_at_once() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t")
        await change(client, T, ("message.timestamp.type", SET, "LogAppendTime"))
        await asyncio.sleep(5)
        request = produce_request("t", batch_of(b"x", timestamp=EPOCH_MS))
        response = await client.ask(request, 9, ProduceResponse)
        assert response.responses[0].partition_responses[0].log_append_time_ms == harness.clock.now_ms()

    with_broker(scenario)


def test_a_shorter_retention_deletes_at_the_next_look() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t")
        await client.produce("t", b"old")
        await asyncio.sleep(500)
        assert len(await client.values("t")) == 1
        await change(client, T, ("retention.ms", SET, "60000"))
        await asyncio.sleep(500)
        assert (await client.fetch("t", 1)).log_start_offset == 1

    with_broker(scenario)


def test_the_limits_of_connections_change_at_once() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        for name in ("max.connections", "max.connections.per.ip"):
            assert await change(client, ALL_BROKERS, (name, SET, "1")) == 0
            rejected = await harness.connect()
            await asyncio.sleep(0.1)
            assert rejected.closed_because is not None
            assert await change(client, ALL_BROKERS, (name, DELETE, None)) == 0
            accepted = await harness.connect()
            await asyncio.sleep(0.1)
            assert accepted.closed_because is None
            accepted.channel.close("done")
            await asyncio.sleep(0.1)

    with_broker(scenario)


def test_nobody_is_locked_out_by_a_changed_setting() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        for resource in (ALL_BROKERS, THIS_BROKER):
            assert await change(client, resource, ("max.connections", SET, "0")) == InvalidRequest.code
            assert await change(client, resource, ("max.connections.per.ip", SET, "0")) == InvalidRequest.code
            assert await change(client, resource, ("num.replica.fetchers", SET, "100000")) == InvalidRequest.code
            assert await change(client, resource, ("num.replica.fetchers", SET, "2")) == 0
            assert await change(client, resource, ("num.replica.fetchers", DELETE, None)) == 0

    with_broker(scenario)


def test_limits_of_connections_that_were_changed_hold_after_a_restart() -> None:
    async def main() -> None:
        harness = Harness()
        async with harness.broker():
            await change(await harness.connect(), ALL_BROKERS, ("max.connections", SET, "2"))
        async with harness.broker():
            first, second = await harness.connect(), await harness.connect()
            await asyncio.sleep(0.1)
            assert (first.closed_because is None, second.closed_because is None) == (True, False)

    run_virtually(main())


def test_the_delay_before_deleted_files_go_changes_at_once() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t")
        await change(client, ALL_BROKERS, ("log.segment.delete.delay.ms", SET, "3600000"))
        await delete_topics(client, "t")
        await asyncio.sleep(1800)
        assert len(directories(harness)) == 1
        await asyncio.sleep(3600)
        assert directories(harness) == set()

    with_broker(scenario)


# ---- groups


def test_a_group_has_settings_before_it_exists() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        name = "consumer.session.timeout.ms"
        assert [found.name for found in (await describe(client, READERS)).configs] == [
            "consumer.heartbeat.interval.ms",
            name,
        ]
        assert await value(client, READERS, name) == ("45000", ConfigSource.DEFAULT_CONFIG)
        assert await change(client, READERS, (name, SET, "50000")) == 0
        found = await entry(client, READERS, name)
        assert (found.value, found.config_source) == ("50000", ConfigSource.DYNAMIC_GROUP_CONFIG)
        assert [(synonym.name, synonym.value, synonym.source) for synonym in found.synonyms] == [
            (name, "50000", ConfigSource.DYNAMIC_GROUP_CONFIG),
            ("group.consumer.session.timeout.ms", "45000", ConfigSource.DEFAULT_CONFIG),
        ]
        assert await change(client, READERS, (name, SET, "1")) == InvalidConfig.code
        assert await change(client, READERS, (name, DELETE, None)) == 0
        assert await value(client, READERS, name) == ("45000", ConfigSource.DEFAULT_CONFIG)

    with_broker(scenario)


def test_settings_of_groups_survive_a_restart() -> None:
    async def main() -> None:
        harness = Harness()
        async with harness.broker():
            client = await harness.connect()
            assert await change(client, (GROUP, "odd/name"), ("consumer.session.timeout.ms", SET, "50000")) == 0
        async with harness.broker():
            client = await harness.connect()
            expected = ("50000", ConfigSource.DYNAMIC_GROUP_CONFIG)
            assert await value(client, (GROUP, "odd/name"), "consumer.session.timeout.ms") == expected

    run_virtually(main())


# ---- what has settings


async def listed(client: Client, *types: int, version: int = 1) -> list[Resource] | int:
    """The error code where there is one."""
    request = ListConfigResourcesRequest(resource_types=list(types)) if version else ListConfigResourcesRequest()
    response = await client.ask(request, version, ListConfigResourcesResponse)
    return response.error_code or [(found.resource_type, found.resource_name) for found in response.config_resources]


def test_topics_brokers_and_groups_with_settings_are_listed() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t")
        assert await change(client, READERS, ("consumer.session.timeout.ms", SET, "50000")) == 0
        assert await listed(client) == [READERS, THIS_BROKER, T]
        assert await listed(client, GROUP, CLIENT_METRICS, BROKER_LOGGER) == [READERS]
        assert await listed(client, TOPIC, TOPIC) == [T]
        assert await change(client, READERS, ("consumer.session.timeout.ms", DELETE, None)) == 0
        assert await listed(client, GROUP) == []

    with_broker(scenario)


def test_version_0_lists_client_metrics_of_which_there_are_none() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        assert await listed(client, version=0) == []

    with_broker(scenario)


def test_a_type_that_cannot_be_listed_is_refused() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        assert await listed(client, TOPIC, 64) == UnsupportedVersion.code

    with_broker(scenario)
