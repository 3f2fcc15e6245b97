import asyncio
import dataclasses

import pytest

from tests.controller.cluster_under_test import Cluster
from tidelog.controller.configs import (
    KEPT_CHANGE_NOTIFICATIONS,
    AlterOperation,
    ConfigChange,
    ResourceType,
)
from tidelog.controller.context_loading import load_image
from tidelog.controller.topic_validation import NewTopic
from tidelog.errors import InvalidConfig, InvalidRequest, KafkaError, UnknownTopicOrPartition

SET, DELETE, APPEND, SUBTRACT = AlterOperation


def topic_change(*entries: tuple[str, str | None, int], name: str = "orders", replacing: bool = False) -> ConfigChange:
    return ConfigChange(ResourceType.TOPIC, name, entries, replacing)


def broker_change(*entries: tuple[str, str | None, int], name: str = "1") -> ConfigChange:
    return ConfigChange(ResourceType.BROKER, name, entries)


async def cluster_with_topic() -> Cluster:
    cluster = await Cluster.start()
    request = NewTopic("orders", configs={"retention.ms": "5", "cleanup.policy": "compact"})
    cluster.apply(await cluster.topics.create_topics([request]))
    return cluster


def test_a_replacement_drops_what_it_does_not_name() -> None:
    async def scenario() -> None:
        cluster = await cluster_with_topic()
        outcomes = await cluster.configs.alter([topic_change(("segment.ms", "7", SET), replacing=True)])
        assert outcomes[0].error is None
        cluster.apply_configs(outcomes)
        assert cluster.topic("orders").configs == {"segment.ms": "7"}
        assert await load_image(cluster.store) == cluster.image

    asyncio.run(scenario())


def test_operations_change_what_they_name() -> None:
    async def scenario() -> None:
        cluster = await cluster_with_topic()
        change = topic_change(
            ("retention.ms", None, DELETE), ("segment.ms", "7", SET), ("cleanup.policy", "delete,compact", APPEND)
        )
        cluster.apply_configs(await cluster.configs.alter([change]))
        assert cluster.topic("orders").configs == {"segment.ms": "7", "cleanup.policy": "compact,delete"}
        cluster.apply_configs(await cluster.configs.alter([topic_change(("cleanup.policy", "compact", SUBTRACT))]))
        assert cluster.topic("orders").configs == {"segment.ms": "7", "cleanup.policy": "delete"}
        assert await load_image(cluster.store) == cluster.image

    asyncio.run(scenario())


def test_an_append_to_what_is_not_set_starts_from_the_default() -> None:
    async def scenario() -> None:
        cluster = await Cluster.start()
        cluster.apply(await cluster.topics.create_topics([NewTopic("orders")]))
        cluster.apply_configs(await cluster.configs.alter([topic_change(("cleanup.policy", "compact", APPEND))]))
        assert cluster.topic("orders").configs == {"cleanup.policy": "delete,compact"}

    asyncio.run(scenario())


def test_settings_of_one_broker_and_of_all_are_stored_apart() -> None:
    async def scenario() -> None:
        cluster = await Cluster.start()
        outcomes = await cluster.configs.alter(
            [
                broker_change(("log.retention.ms", "5", SET)),
                broker_change(("log.retention.ms", "6", SET), name=""),
            ]
        )
        cluster.apply_configs(outcomes)
        assert cluster.image.broker_configs == {"1": {"log.retention.ms": "5"}, "<default>": {"log.retention.ms": "6"}}
        assert await load_image(cluster.store) == cluster.image

    asyncio.run(scenario())


REJECTED: list[tuple[ConfigChange, type[KafkaError], str]] = [
    (topic_change(("a", "1", SET), name="none"), UnknownTopicOrPartition, "does not exist"),
    (topic_change(("a", "1", SET), name=""), InvalidRequest, "Default topic resources are not allowed"),
    (topic_change(("a", "1", SET)), InvalidConfig, "Unknown topic config name: a"),
    (topic_change(("a", "1", APPEND)), InvalidConfig, "Unknown config name: a"),
    (topic_change(("segment.ms", "1", APPEND)), InvalidConfig, "Config value append is not allowed"),
    (topic_change(("segment.ms", "1", SUBTRACT)), InvalidConfig, "Config value subtract is not allowed"),
    (topic_change(("segment.ms", "0", SET)), InvalidConfig, "Value must be at least 1"),
    (topic_change(("segment.ms", None, SET)), InvalidRequest, "Null value not supported for : segment.ms"),
    (topic_change(("segment.ms", "1", SET), ("segment.ms", "2", SET)), InvalidRequest, "duplicate config keys"),
    (topic_change(("segment.ms", "1", 9)), InvalidRequest, "Unknown operations type 9"),
    (broker_change(("log.dirs", "/x", SET)), InvalidRequest, "Cannot update these configs dynamically: log.dirs"),
    (broker_change(("log.retention.ms", "x", SET)), InvalidRequest, "Not a number of type LONG"),
    (broker_change(name="2"), InvalidRequest, "Unexpected broker id, expected 1, but received 2"),
    (broker_change(name="one"), InvalidRequest, "Node id must be an integer, but it is: one"),
    (ConfigChange(8, "1", []), InvalidRequest, "Unknown resource type 8"),
]


@pytest.mark.parametrize(("change", "error", "message"), REJECTED, ids=lambda found: str(found)[:70])
def test_a_refused_change_changes_nothing(change: ConfigChange, error: type[KafkaError], message: str) -> None:
    async def scenario() -> None:
        cluster = await cluster_with_topic()
        before = cluster.nodes()
        (outcome,) = await cluster.configs.alter([change])
        assert type(outcome.error) is error
        assert message in str(outcome.error)
        assert cluster.nodes() == before

    asyncio.run(scenario())


def test_a_refusal_does_not_keep_the_frames_it_came_through() -> None:
    """Thousands of them in one answer, in cycles with it, took hundreds of megabytes."""

    async def scenario() -> None:
        cluster = await cluster_with_topic()
        outcomes = await cluster.configs.alter([topic_change(("retention.ms", "7", SET), name="none")])
        assert outcomes[0].error is not None
        assert outcomes[0].error.__traceback__ is None

    asyncio.run(scenario())


def test_a_resource_that_is_named_twice_is_refused_and_others_are_changed() -> None:
    async def scenario() -> None:
        cluster = await cluster_with_topic()
        change = topic_change(("segment.ms", "7", SET))
        outcomes = await cluster.configs.alter([change, broker_change(("log.retention.ms", "5", SET)), change])
        assert [type(outcome.error) for outcome in outcomes] == [InvalidRequest, type(None), InvalidRequest]

    asyncio.run(scenario())


def test_validate_only_changes_nothing() -> None:
    async def scenario() -> None:
        cluster = await cluster_with_topic()
        before = cluster.nodes()
        (outcome,) = await cluster.configs.alter([topic_change(("segment.ms", "7", SET))], validate_only=True)
        assert outcome.error is None
        assert cluster.nodes() == before

    asyncio.run(scenario())


def test_a_topic_that_is_gone_from_the_store_gets_no_settings() -> None:
    async def scenario() -> None:
        cluster = await cluster_with_topic()
        stale = cluster.image
        await cluster.remove_topic("orders")
        before = cluster.nodes()
        cluster.image = dataclasses.replace(stale)
        (outcome,) = await cluster.configs.alter([topic_change(("segment.ms", "7", SET))])
        assert isinstance(outcome.error, UnknownTopicOrPartition)
        assert cluster.nodes() == before

    asyncio.run(scenario())


def test_other_brokers_are_notified_and_old_notifications_do_not_pile_up() -> None:
    async def scenario() -> None:
        cluster = await cluster_with_topic()
        for number in range(KEPT_CHANGE_NOTIFICATIONS + 20):
            await cluster.configs.alter([topic_change(("segment.ms", str(number + 1), SET))])
        names = await cluster.store.children("/config/changes")
        assert len(names) == KEPT_CHANGE_NOTIFICATIONS + 1
        newest = await cluster.store.get(f"/config/changes/{names[-1]}")
        assert newest.data == b'{"version":2,"entity_path":"topics/orders"}'

    asyncio.run(scenario())


def group_change(*entries: tuple[str, str | None, int], name: str = "readers") -> ConfigChange:
    return ConfigChange(ResourceType.GROUP, name, entries)


@pytest.mark.parametrize("name", ["readers", "odd/na me", ".", "..", "größe%2F"])
def test_settings_of_a_group_are_stored_whatever_its_name(name: str) -> None:
    async def scenario() -> None:
        cluster = await Cluster.start()
        change = group_change(("consumer.session.timeout.ms", "50000", SET), name=name)
        (outcome,) = await cluster.configs.alter([change])
        assert outcome.error is None
        assert outcome.configs == {"consumer.session.timeout.ms": "50000"}
        assert (await load_image(cluster.store)).group_configs == {name: outcome.configs}

    asyncio.run(scenario())


def test_a_group_without_settings_of_its_own_leaves_no_node() -> None:
    async def scenario() -> None:
        cluster = await Cluster.start()
        unset = group_change(("consumer.session.timeout.ms", None, DELETE))
        await cluster.configs.alter([unset])
        await cluster.configs.alter([group_change(("consumer.session.timeout.ms", "50000", SET))])
        assert "/config/groups/readers" in cluster.nodes()
        (outcome,) = await cluster.configs.alter([unset])
        assert outcome.error is None
        assert "/config/groups/readers" not in cluster.nodes()
        assert (await load_image(cluster.store)).group_configs == {}

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (group_change(("consumer.session.timeout.ms", "50000", SET), name=""), InvalidRequest),
        (group_change(("consumer.session.timeout.ms", "1000", SET)), InvalidConfig),
        (group_change(("consumer.session.timeout.ms", "50000", APPEND)), InvalidConfig),
        (group_change(("retention.ms", "1", SET)), InvalidConfig),
    ],
)
def test_a_group_is_not_given_what_makes_no_sense(change: ConfigChange, error: type[KafkaError]) -> None:
    async def scenario() -> None:
        cluster = await Cluster.start()
        before = cluster.nodes()
        (outcome,) = await cluster.configs.alter([change])
        assert type(outcome.error) is error
        assert cluster.nodes() == before

    asyncio.run(scenario())
