import asyncio
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.controller.cluster_under_test import Cluster
from tests.store.stores import SqliteStores
from tidelog.config.broker import BrokerSettings
from tidelog.controller.context_loading import load_image
from tidelog.controller.topic_validation import MorePartitions, NewTopic, decide_more_partitions
from tidelog.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopic,
    KafkaError,
    NotController,
    PolicyViolation,
    TopicAlreadyExists,
    TopicDeletionDisabled,
    UnknownTopicId,
    UnknownTopicOrPartition,
)


def test_a_new_topic_is_in_the_store_and_loads_again_as_it_was_sent() -> None:
    async def scenario() -> None:
        cluster = await Cluster.start(brokers=3)
        outcomes = await cluster.topics.create_topics(
            [NewTopic("orders", 4, 2, configs={"retention.ms": "5"}), NewTopic("others", 1, 3)]
        )
        assert [outcome.error for outcome in outcomes] == [None, None]
        cluster.apply(outcomes)
        assert await load_image(cluster.store) == cluster.image
        orders = cluster.topic("orders")
        assert [partition.index for partition in orders.partitions] == [0, 1, 2, 3]
        assert all(len(partition.replicas) == 2 for partition in orders.partitions)
        assert all(partition.leader == -1 for partition in orders.partitions), "electing is the controller's next event"
        assert [path for path in cluster.nodes() if path.endswith("/state")] == []
        assert orders.configs == {"retention.ms": "5"}
        assert cluster.image.topic_by_id(outcomes[0].topic_id) == orders

    asyncio.run(scenario())


def test_minus_one_means_the_brokers_defaults() -> None:
    async def scenario() -> None:
        settings = BrokerSettings(num_partitions=5, default_replication_factor=2)
        cluster = await Cluster.start(brokers=2, settings=settings)
        cluster.apply(await cluster.topics.create_topics([NewTopic("orders")]))
        assert len(cluster.topic("orders").partitions) == 5
        assert len(cluster.topic("orders").partitions[0].replicas) == 2

    asyncio.run(scenario())


def test_the_client_may_choose_the_brokers() -> None:
    async def scenario() -> None:
        cluster = await Cluster.start(brokers=3)
        request = NewTopic("orders", assignments=[(1, (3, 1)), (0, (2, 3))])
        cluster.apply(await cluster.topics.create_topics([request]))
        assert [partition.replicas for partition in cluster.topic("orders").partitions] == [(2, 3), (3, 1)]

    asyncio.run(scenario())


def test_validate_only_answers_and_creates_nothing() -> None:
    async def scenario() -> None:
        cluster = await Cluster.start()
        before = cluster.nodes()
        outcome = await cluster.topics.create_topic(NewTopic("orders", 2, 1), validate_only=True)
        assert outcome.error is None
        assert outcome.topic is not None
        assert len(outcome.topic.partitions) == 2
        rejected = await cluster.topics.create_topic(NewTopic("orders", 2, 2), validate_only=True)
        assert isinstance(rejected.error, InvalidReplicationFactor)
        assert cluster.nodes() == before

    asyncio.run(scenario())


REJECTED: list[tuple[NewTopic, type[KafkaError], str]] = [
    (NewTopic("a b"), InvalidTopic, "Topic name is invalid"),
    (NewTopic(""), InvalidTopic, "the empty string is not allowed"),
    (NewTopic("existing.topic"), TopicAlreadyExists, "Topic 'existing.topic' already exists."),
    (NewTopic("existing_topic"), InvalidTopic, "collides with existing topic: existing.topic"),
    (NewTopic("a", 0), InvalidPartitions, "invalid non-positive value"),
    (NewTopic("a", -2), InvalidPartitions, "invalid non-positive value"),
    (NewTopic("a", 1_000_000), PolicyViolation, "Excessively large number of partitions"),
    (NewTopic("a", 1, 0), InvalidReplicationFactor, "must be larger than 0"),
    (NewTopic("a", 1, -2), InvalidReplicationFactor, "must be larger than 0"),
    (NewTopic("a", 1, 3), InvalidReplicationFactor, "only 2 broker(s) are registered"),
    (NewTopic("a", configs={"nope": "1"}), InvalidConfig, "Unknown topic config name: nope"),
    (NewTopic("a", configs={"retention.ms": None}), InvalidConfig, "Null value not supported"),
    (NewTopic("a", configs={"segment.bytes": "1"}), InvalidConfig, "Value must be at least 1048576"),
    (NewTopic("a", 1, assignments=[(0, (1,))]), InvalidRequest, "numPartitions was not set to -1"),
    (NewTopic("a", -1, 1, assignments=[(0, (1,))]), InvalidRequest, "replication factor was not set to -1"),
    (NewTopic("a", assignments=[(0, (1,)), (0, (2,))]), InvalidReplicaAssignment, "multiple manual partition"),
    (NewTopic("a", assignments=[(1, (1,))]), InvalidReplicaAssignment, "consecutive 0-based"),
    (NewTopic("a", assignments=[(0, ())]), InvalidReplicaAssignment, "empty replica list"),
    (NewTopic("a", assignments=[(0, (1, 1))]), InvalidReplicaAssignment, "broker 1 more than once"),
    (NewTopic("a", assignments=[(0, (9,))]), InvalidReplicaAssignment, "no such broker is registered"),
    (NewTopic("a", assignments=[(0, (1,)), (1, (1, 2))]), InvalidReplicaAssignment, "not consistent"),
]


@pytest.mark.parametrize(("request_", "error", "message"), REJECTED, ids=lambda found: str(found)[:60])
def test_a_refused_topic_creates_nothing(request_: NewTopic, error: type[KafkaError], message: str) -> None:
    async def scenario() -> None:
        cluster = await Cluster.start(brokers=2)
        cluster.apply(await cluster.topics.create_topics([NewTopic("existing.topic")]))
        before = cluster.nodes()
        (outcome,) = await cluster.topics.create_topics([request_])
        assert type(outcome.error) is error
        assert message in str(outcome.error)
        assert outcome.topic is None
        assert cluster.nodes() == before

    asyncio.run(scenario())


def test_a_refused_topic_does_not_stop_the_others_of_the_request() -> None:
    async def scenario() -> None:
        cluster = await Cluster.start()
        requests = [NewTopic("good"), NewTopic("bad", 0), NewTopic("twice"), NewTopic("twice", 2), NewTopic("go.od")]
        outcomes = await cluster.topics.create_topics([*requests, NewTopic("go_od")])
        assert [(outcome.name, type(outcome.error)) for outcome in outcomes] == [
            ("good", type(None)),
            ("bad", InvalidPartitions),
            ("twice", InvalidRequest),
            ("go.od", type(None)),
            ("go_od", InvalidTopic),
        ]
        assert sorted((await load_image(cluster.store)).topics) == ["go.od", "good"]

    asyncio.run(scenario())


def test_of_two_requests_at_the_same_time_one_creates_the_topic() -> None:
    async def scenario() -> None:
        cluster = await Cluster.start()
        mine, (theirs, other) = await asyncio.gather(
            cluster.topics.create_topic(NewTopic("orders", 1)),
            cluster.topics.create_topics([NewTopic("orders", 2), NewTopic("other")]),
        )
        assert mine.error is None
        assert isinstance(theirs.error, TopicAlreadyExists)
        assert other.error is None
        assert len((await load_image(cluster.store)).topics["orders"].partitions) == 1

    asyncio.run(scenario())


def test_settings_left_behind_by_another_topic_of_the_name_do_not_count() -> None:
    async def scenario() -> None:
        cluster = await Cluster.start()
        await cluster.store.create("/config/topics/orders", b'{"version":1,"config":{"retention.ms":"1"}}')
        cluster.apply(await cluster.topics.create_topics([NewTopic("orders")]))
        assert (await load_image(cluster.store)).topics["orders"].configs == {}

    asyncio.run(scenario())


def test_a_deletion_is_asked_for_by_a_node_and_asking_twice_is_asking_once() -> None:
    async def scenario() -> None:
        cluster = await Cluster.start()
        created = await cluster.topics.create_topics([NewTopic("by-name", 3), NewTopic("by-id")])
        cluster.apply(created)
        before = cluster.nodes()
        for _ in range(2):
            outcomes = await cluster.topics.delete_topics(["by-name", created[1].topic_id])
            assert [(outcome.name, outcome.error) for outcome in outcomes] == [("by-name", None), ("by-id", None)]
            assert [outcome.topic_id for outcome in outcomes] == [outcome.topic_id for outcome in created]
        asked = {"/admin/delete_topics/by-name": b"", "/admin/delete_topics/by-id": b""}
        assert cluster.nodes() == {**before, **asked}
        (rejected,) = await cluster.topics.create_partitions([MorePartitions("by-name", 4)])
        assert isinstance(rejected.error, InvalidTopic)
        (exists,) = await cluster.topics.create_topics([NewTopic("by-id")])
        assert isinstance(exists.error, TopicAlreadyExists)

    asyncio.run(scenario())


def test_a_deletion_that_is_refused_deletes_nothing() -> None:
    async def scenario() -> None:
        cluster = await Cluster.start()
        cluster.apply(await cluster.topics.create_topics([NewTopic("orders")]))
        before = cluster.nodes()
        outcomes = await cluster.topics.delete_topics(["none", b"x" * 16, "orders", "orders"])
        assert [type(outcome.error) for outcome in outcomes] == [
            UnknownTopicOrPartition,
            UnknownTopicId,
            InvalidRequest,
        ]
        assert outcomes[1].topic_id == b"x" * 16
        cluster.settings = BrokerSettings(delete_topic_enable=False)
        (disabled,) = await cluster.topics.delete_topics(["orders"])
        assert isinstance(disabled.error, TopicDeletionDisabled)
        assert cluster.nodes() == before

    asyncio.run(scenario())


def test_a_topic_created_again_under_its_name_is_not_deleted_by_its_old_id() -> None:
    async def scenario() -> None:
        cluster = await Cluster.start()
        cluster.apply(await cluster.topics.create_topics([NewTopic("orders")]))
        stale = cluster.image
        await cluster.remove_topic("orders")
        cluster.apply(await cluster.topics.create_topics([NewTopic("orders")]))
        cluster.image = stale
        (outcome,) = await cluster.topics.delete_topics([stale.topics["orders"].topic_id])
        assert isinstance(outcome.error, UnknownTopicOrPartition)
        assert "/admin/delete_topics/orders" not in cluster.nodes()

    asyncio.run(scenario())


def test_a_topic_grows_and_keeps_its_partitions() -> None:
    async def scenario() -> None:
        cluster = await Cluster.start(brokers=3)
        cluster.apply(await cluster.topics.create_topics([NewTopic("placed", 2, 2), NewTopic("chosen", 1, 2)]))
        before = cluster.image
        outcomes = await cluster.topics.create_partitions(
            [MorePartitions("placed", 5), MorePartitions("chosen", 3, [(3, 1), (1, 2)])]
        )
        assert [outcome.error for outcome in outcomes] == [None, None]
        cluster.apply(outcomes)
        assert await load_image(cluster.store) == cluster.image
        assert len(cluster.topic("placed").partitions) == 5
        assert cluster.topic("placed").partitions[:2] == before.topics["placed"].partitions
        assert [each.replicas for each in cluster.topic("chosen").partitions[1:]] == [(3, 1), (1, 2)]
        assert cluster.topic("placed").topic_id == before.topics["placed"].topic_id

    asyncio.run(scenario())


def test_topic_that_grows_while_its_replicas_move_has_the_replication_factor_of_the_target() -> None:
    """Apache Kafka 4.3 counts the replicas of both ends and gives new partitions too many; 3.9 refuses."""

    async def scenario() -> None:
        cluster = await Cluster.start(brokers=4)
        cluster.apply(await cluster.topics.create_topics([NewTopic("orders", assignments=[(0, (1, 2))])]))
        moving = replace(
            cluster.topic("orders").partitions[0],
            replicas=(3, 4, 1, 2),
            adding_replicas=(3, 4),
            removing_replicas=(1, 2),
        )
        topic = replace(cluster.topic("orders"), partitions=(moving,))
        (placed,) = decide_more_partitions(MorePartitions("orders", 2), topic, cluster.image)
        assert len(placed.replicas) == 2
        (chosen,) = decide_more_partitions(MorePartitions("orders", 2, [(3, 1)]), topic, cluster.image)
        assert chosen.replicas == (3, 1)

    asyncio.run(scenario())


GROWTH_REJECTED: list[tuple[MorePartitions, type[KafkaError], str]] = [
    (MorePartitions("none", 2), UnknownTopicOrPartition, "does not exist"),
    (MorePartitions("orders", 2), InvalidPartitions, "Topic already has 2 partition(s)."),
    (MorePartitions("orders", 1), InvalidPartitions, "would not be an increase"),
    (MorePartitions("orders", 1_000_000), InvalidPartitions, "more than the 100000"),
    (MorePartitions("orders", 4, [(1,)]), InvalidReplicaAssignment, "only 1 assignment(s) were specified"),
    (MorePartitions("orders", 3, [(1, 2)]), InvalidReplicaAssignment, "not consistent"),
    (MorePartitions("orders", 3, [(9,)]), InvalidReplicaAssignment, "no such broker"),
]


@pytest.mark.parametrize(("request_", "error", "message"), GROWTH_REJECTED, ids=lambda found: str(found)[:60])
def test_growth_that_is_refused_changes_nothing(
    request_: MorePartitions, error: type[KafkaError], message: str
) -> None:
    async def scenario() -> None:
        cluster = await Cluster.start(brokers=2)
        cluster.apply(await cluster.topics.create_topics([NewTopic("orders", 2)]))
        before = cluster.nodes()
        (outcome,) = await cluster.topics.create_partitions([request_])
        assert type(outcome.error) is error
        assert message in str(outcome.error)
        assert cluster.nodes() == before

    asyncio.run(scenario())


def test_growth_can_be_tried_and_must_name_a_topic_once() -> None:
    async def scenario() -> None:
        cluster = await Cluster.start()
        cluster.apply(await cluster.topics.create_topics([NewTopic("orders", 2)]))
        before = cluster.nodes()
        (tried,) = await cluster.topics.create_partitions([MorePartitions("orders", 3)], validate_only=True)
        assert tried.error is None
        (twice,) = await cluster.topics.create_partitions([MorePartitions("orders", 3), MorePartitions("orders", 4)])
        assert isinstance(twice.error, InvalidRequest)
        assert cluster.nodes() == before

    asyncio.run(scenario())


def test_a_controller_whose_term_is_over_can_change_nothing() -> None:
    async def scenario() -> None:
        cluster = await Cluster.start()
        cluster.apply(await cluster.topics.create_topics([NewTopic("orders")]))
        await cluster.store.set("/controller_epoch", b"2")
        before = cluster.nodes()
        outcomes = [
            *await cluster.topics.create_topics([NewTopic("new"), NewTopic("newer")]),
            *await cluster.topics.delete_topics(["orders"]),
            *await cluster.topics.create_partitions([MorePartitions("orders", 2)]),
        ]
        assert [type(outcome.error) for outcome in outcomes] == [NotController] * 4
        assert cluster.nodes() == before

    asyncio.run(scenario())


def test_the_metadata_of_thousands_of_partitions_loads_quickly_from_sqlite(tmp_path: Path) -> None:
    async def scenario() -> float:
        stores = SqliteStores(tmp_path)
        cluster = await Cluster.start(store=await stores.open())
        outcomes = await cluster.topics.create_topics([NewTopic(f"topic-{number}", 20) for number in range(100)])
        assert all(outcome.error is None for outcome in outcomes)
        cluster.apply(outcomes)
        await cluster.store.close()
        started = time.process_time()
        store = await stores.open()
        image = await load_image(store)
        elapsed = time.process_time() - started
        assert image.topics == cluster.image.topics
        await stores.close()
        return elapsed

    assert asyncio.run(scenario()) < 1.0


def test_requests_at_the_same_time_to_grow_a_topic_do_not_overwrite_each_other() -> None:
    async def scenario() -> None:
        cluster = await Cluster.start()
        cluster.apply(await cluster.topics.create_topics([NewTopic("orders")]))
        outcomes = await asyncio.gather(
            *(cluster.topics.create_partitions([MorePartitions("orders", count)]) for count in (2, 3, 3))
        )
        errors = [type(outcome.error) for (outcome,) in outcomes]
        assert errors == [type(None), type(None), InvalidPartitions]
        assert len((await load_image(cluster.store)).topics["orders"].partitions) == 3

    asyncio.run(scenario())


def test_a_client_must_look_for_the_controller_when_the_session_has_ended() -> None:
    async def scenario() -> None:
        cluster = await Cluster.start()
        cluster.apply(await cluster.topics.create_topics([NewTopic("orders")]))
        assert cluster.state is not None
        cluster.state.expire(cluster.store.session_id)
        outcomes = [
            *await cluster.topics.create_topics([NewTopic("new")]),
            *await cluster.topics.delete_topics(["orders"]),
            *await cluster.topics.create_partitions([MorePartitions("orders", 2)]),
        ]
        assert [type(outcome.error) for outcome in outcomes] == [NotController] * 3

    asyncio.run(scenario())
