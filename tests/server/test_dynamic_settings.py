"""Broker settings that change while it runs: all that Kafka 4.3 can change, with their sources and their refusals."""

import asyncio
import logging
from pathlib import Path

import pytest

from tests.server.harness import Client, Harness, with_broker
from tests.server.test_configs import (
    ALL_BROKERS,
    APPEND,
    DELETE,
    SET,
    SUBTRACT,
    THIS_BROKER,
    Resource,
    T,
    change,
    describe,
    entry,
    value,
)
from tidelog.cluster import znodes
from tidelog.config.broker import BrokerSettings
from tidelog.config.kafka_names import DYNAMIC_UNSUPPORTED_NAMES
from tidelog.config.quotas import DESCRIBED_WHERE_SET
from tidelog.config.resolution import ConfigSource
from tidelog.config.setting import UpdateMode, settings_of
from tidelog.config.thread_pools import NO_EFFECT
from tidelog.errors import InvalidConfig, InvalidRequest
from tidelog.runtime.virtual_time import run_virtually
from tidelog.server.broker import Broker

OWN = {"message.max.decompressed.bytes"}


async def described(client: Client, name: str) -> tuple[str | None, int] | None:
    """Value and source at the broker, of settings that need not be described."""
    found = (await describe(client, THIS_BROKER, name)).configs
    return (found[0].value, found[0].config_source) if found else None


async def same_value(client: Client, name: str) -> str:
    """A value that is allowed: the one in force, except where the default is no value."""
    found, _ = await described(client, name) or (None, None)
    return found or ("10.0.0.1:5" if name == "max.connections.per.ip.overrides" else "100000")


@pytest.mark.parametrize(
    ("resource", "source"),
    [
        (THIS_BROKER, ConfigSource.DYNAMIC_BROKER_CONFIG),
        (ALL_BROKERS, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
    ],
)
def test_every_dynamic_setting_is_accepted_kept_shown_and_removed(resource: Resource, source: ConfigSource) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        for name, declared in settings_of(BrokerSettings).items():
            if declared.update is not UpdateMode.CLUSTER_WIDE or (
                resource == THIS_BROKER and name == "min.insync.replicas"
            ):
                continue
            before, text = await described(client, name), await same_value(client, name)
            assert await change(client, resource, (name, SET, text)) == 0, name
            found = await entry(client, THIS_BROKER, name)
            assert (found.value, found.config_source, found.read_only) == (text, source, False), name
            assert await value(client, resource, name) == (text, source)
            assert await change(client, resource, (name, DELETE, None)) == 0
            assert await described(client, name) == before, name
        assert (await describe(client, ALL_BROKERS)).configs == []

    with_broker(scenario)


def test_a_removed_value_returns_to_the_next_source() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        name = "num.io.threads"
        assert await value(client, THIS_BROKER, name) == ("6", ConfigSource.STATIC_BROKER_CONFIG)
        assert await change(client, ALL_BROKERS, (name, SET, "7")) == 0
        assert await change(client, THIS_BROKER, (name, SET, "10")) == 0
        found = await entry(client, THIS_BROKER, name)
        assert [(each.value, each.source) for each in found.synonyms] == [
            ("10", ConfigSource.DYNAMIC_BROKER_CONFIG),
            ("7", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
            ("6", ConfigSource.STATIC_BROKER_CONFIG),
            ("8", ConfigSource.DEFAULT_CONFIG),
        ]
        assert await change(client, THIS_BROKER, (name, DELETE, None)) == 0
        assert await value(client, THIS_BROKER, name) == ("7", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
        assert await change(client, ALL_BROKERS, (name, DELETE, None)) == 0
        assert await value(client, THIS_BROKER, name) == ("6", ConfigSource.STATIC_BROKER_CONFIG)

    with_broker(scenario, num_io_threads=6)


def test_a_setting_without_effect_says_so_once_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        with caplog.at_level(logging.INFO, "tidelog.server.unused_settings_log"):
            assert await change(client, THIS_BROKER, ("num.io.threads", SET, "16")) == 0
            assert await change(client, THIS_BROKER, ("message.max.bytes", SET, "5000")) == 0
        assert [record.getMessage() for record in caplog.records if record.name.endswith("unused_settings_log")] == [
            "setting accepted without effect name=num.io.threads value=16"
            " reason=one event loop per broker serves all connections and requests"
        ]

    with_broker(scenario)


@pytest.mark.parametrize(
    ("resource", "name", "text"),
    [
        (THIS_BROKER, "num.io.threads", "0"),
        (THIS_BROKER, "num.io.threads", "17"),
        (ALL_BROKERS, "num.network.threads", "1000"),
        (ALL_BROKERS, "log.cleaner.threads", "0"),
        (THIS_BROKER, "leader.replication.throttled.rate", "-1"),
        (THIS_BROKER, "leader.replication.throttled.rate", "10MB"),
        (THIS_BROKER, "replication.quota.window.num", "5"),
        (THIS_BROKER, "queued.max.requests", "5"),
        (THIS_BROKER, "listeners", "PLAINTEXT://:1"),
        (ALL_BROKERS, "broker.id", "5"),
    ],
)
def test_a_change_that_kafka_refuses_is_refused(resource: Resource, name: str, text: str) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        assert await change(client, resource, (name, SET, text)) == InvalidRequest.code

    with_broker(scenario)


def test_each_dynamic_setting_of_kafka_is_known_here() -> None:
    """Accepted, or refused because it promises something that is not there. The others are read-only in Kafka, too."""
    definitions = Path(__file__).parents[1] / "config" / "kafka_settings.txt"
    kafkas = {line.split(" ")[1] for line in definitions.read_text().splitlines() if line.endswith("cluster-wide")}
    accepted = {
        name for name, each in settings_of(BrokerSettings).items() if each.update is UpdateMode.CLUSTER_WIDE
    } - OWN
    assert accepted == kafkas
    assert not accepted & DYNAMIC_UNSUPPORTED_NAMES
    assert NO_EFFECT.keys() <= accepted


# ---- throttles


def test_throttled_rates_apply_at_once_by_broker_before_those_of_all() -> None:
    async def main() -> None:
        harness = Harness()
        async with harness.broker() as broker:
            client = await harness.connect()
            quota = broker._services.quotas.leader
            name = "leader.replication.throttled.rate"
            assert not quota.is_limited
            assert await change(client, ALL_BROKERS, (name, SET, "1000")) == 0
            assert quota.bytes_per_second == 1000
            assert await change(client, THIS_BROKER, (name, SET, "2000")) == 0
            assert quota.bytes_per_second == 2000
            assert await change(client, THIS_BROKER, (name, DELETE, None)) == 0
            assert quota.bytes_per_second == 1000
            assert await change(client, ALL_BROKERS, (name, DELETE, None)) == 0
            assert not quota.is_limited

    run_virtually(main())


@pytest.mark.parametrize("name", sorted(DESCRIBED_WHERE_SET))
def test_a_rate_that_nobody_has_set_is_not_described(name: str) -> None:
    """As in Kafka: Cruise Control gives up if a rate that it has removed is still described."""

    async def scenario(harness: Harness, client: Client) -> None:
        assert await described(client, name) is None
        assert await change(client, THIS_BROKER, (name, SET, "1000")) == 0
        (found,) = (await describe(client, THIS_BROKER, name)).configs
        (synonym,) = found.synonyms
        assert (found.value, synonym.value) == ("1000", "1000")
        assert found.config_source == synonym.source == ConfigSource.DYNAMIC_BROKER_CONFIG
        assert await change(client, THIS_BROKER, (name, DELETE, None)) == 0
        assert await described(client, name) is None

    with_broker(scenario)


def test_a_rate_in_the_file_is_described() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        found = await described(client, "leader.replication.throttled.rate")
        assert found == ("5", ConfigSource.STATIC_BROKER_CONFIG)

    with_broker(scenario, leader_replication_throttled_rate=5)


def test_the_rate_of_the_cleaner_applies_at_once() -> None:
    async def main() -> None:
        harness = Harness()
        async with harness.broker(log_cleaner_io_max_bytes_per_second=5.0) as broker:
            client, name = await harness.connect(), "log.cleaner.io.max.bytes.per.second"
            cleaner = broker._services.logs.cleaner
            assert cleaner.throttle.bytes_per_second == 5.0
            assert await change(client, THIS_BROKER, (name, SET, "1000000")) == 0
            assert cleaner.throttle.bytes_per_second == 1_000_000
            assert await change(client, THIS_BROKER, (name, SET, "0")) == InvalidRequest.code
            assert await change(client, THIS_BROKER, (name, DELETE, None)) == 0
            assert await value(client, THIS_BROKER, name) == ("5.0", ConfigSource.STATIC_BROKER_CONFIG)

    run_virtually(main())


def test_throttles_written_to_the_store_by_another_tool_apply() -> None:
    async def main() -> None:
        harness = Harness()
        async with harness.broker() as broker:
            client = await harness.connect()
            await client.create_topic("t")
            store, quotas = broker._services.membership.store, broker._services.quotas
            await _write(broker, "brokers/0", {"follower.replication.throttled.rate": "77"})
            await _write(broker, "topics/t", {"leader.replication.throttled.replicas": "0:0"})
            await asyncio.sleep(1)
            assert quotas.follower.bytes_per_second == 77
            partition = broker._services.replicas.get("t", 0)
            assert partition.throttled == (True, False)
            await store.set("/config/brokers/0", znodes.encode_config({}))
            await _notify(broker, "brokers/0")
            await asyncio.sleep(1)
            assert not quotas.follower.is_limited

    run_virtually(main())


async def _write(broker: Broker, entity: str, configs: dict[str, str]) -> None:
    store, path, data = broker._services.membership.store, f"/config/{entity}", znodes.encode_config(configs)
    if await store.exists(path) is None:
        await store.create(path, data)
    else:
        await store.set(path, data)
    await _notify(broker, entity)


async def _notify(broker: Broker, entity: str) -> None:
    store = broker._services.membership.store
    await store.create(znodes.CONFIG_CHANGE_PREFIX, znodes.encode_config_change(entity), sequential=True)


def test_lists_of_throttled_replicas_are_set_appended_to_and_emptied() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        name = "leader.replication.throttled.replicas"
        await client.create_topic("t")
        assert await value(client, T, name) == ("", ConfigSource.DEFAULT_CONFIG)
        for operation, text, expected in (
            (SET, "0:1,0:2", "0:1,0:2"),
            (APPEND, "1:2", "0:1,0:2,1:2"),
            (SUBTRACT, "0:1,0:2", "1:2"),
            (SET, "*", "*"),
            (SET, "", ""),
        ):
            assert await change(client, T, (name, operation, text)) == 0
            assert await value(client, T, name) == (expected, ConfigSource.DYNAMIC_TOPIC_CONFIG)
        assert await change(client, T, (name, SET, "0:1,x")) == InvalidConfig.code
        assert await change(client, T, (name, DELETE, None)) == 0
        assert await value(client, T, name) == ("", ConfigSource.DEFAULT_CONFIG)

    with_broker(scenario)
