from dataclasses import replace

from tidelog.cluster.image import BrokerRegistration, ClusterImage, PartitionRegistration, Topic
from tidelog.config.listeners import Endpoint
from tidelog.types import TopicPartition

ORDERS_ID = b"o" * 16
OTHER_ID = b"x" * 16


def topic(name: str = "orders", topic_id: bytes = ORDERS_ID, partitions: int = 2) -> Topic:
    return Topic(name, topic_id, tuple(PartitionRegistration(index, (1,), 1, 0, (1,)) for index in range(partitions)))


def test_a_topic_is_found_by_name_and_by_id() -> None:
    image = ClusterImage("cluster").with_topics(topic())
    assert image.topics["orders"] == topic()
    assert image.topic_by_id(ORDERS_ID) == topic()
    assert image.topic_by_id(OTHER_ID) is None


def test_an_earlier_image_does_not_change() -> None:
    before = ClusterImage("cluster").with_topics(topic())
    after = before.without_topics("orders", "never was")
    assert "orders" in before.topics
    assert before.topic_by_id(ORDERS_ID) is not None
    assert not after.topics
    assert not after.topic_names


def test_a_topic_that_was_created_again_has_only_its_new_id() -> None:
    image = ClusterImage("cluster").with_topics(topic()).with_topics(topic(topic_id=OTHER_ID))
    assert image.topic_by_id(ORDERS_ID) is None
    assert image.topic_by_id(OTHER_ID) is not None


def test_a_partition_is_found_if_it_exists() -> None:
    image = ClusterImage("cluster").with_topics(topic())
    found = image.partition(TopicPartition("orders", 1))
    assert found is not None
    assert found.index == 1
    for missing in (("orders", 2), ("orders", -1), ("other", 0)):
        assert image.partition(TopicPartition(*missing)) is None


def test_racks_and_endpoints_of_brokers_are_found() -> None:
    endpoint = Endpoint("PLAINTEXT", "host", 9092, "PLAINTEXT")
    image = ClusterImage("cluster", {1: BrokerRegistration(1, (endpoint,), "rack")})
    assert image.racks == {1: "rack"}
    assert image.brokers[1].endpoint("PLAINTEXT") == endpoint
    assert image.brokers[1].endpoint("SSL") is None


def test_brokers_reach_each_other_by_the_named_listener_or_the_first_unencrypted_one() -> None:
    secure, inside = Endpoint("SECURE", "a", 1, "SSL"), Endpoint("INSIDE", "b", 2, "PLAINTEXT")
    broker = BrokerRegistration(1, (secure, inside))
    assert broker.inter_broker_endpoint() == inside
    assert broker.inter_broker_endpoint("secure") == secure
    assert broker.inter_broker_endpoint("OTHER") is None
    assert BrokerRegistration(1, (secure,)).inter_broker_endpoint() is None


def test_a_topic_that_changes_leaves_the_table_of_ids_as_it_is() -> None:
    topic = Topic("orders", b"o" * 16, ())
    image = ClusterImage("c").with_topics(topic)
    assert image.with_topics(replace(topic, version=2)).topic_names is image.topic_names
    assert image.with_topics(replace(topic, topic_id=b"n" * 16)).topic_names == {b"n" * 16: "orders"}
