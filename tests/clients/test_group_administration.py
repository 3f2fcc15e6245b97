"""Groups and their offsets as the administration clients of librdkafka and kafka-python see and change them."""

import itertools
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.clients.broker import BrokerProcess
from tests.clients.conftest import CLIENT_MARKS, Clients
from tests.clients.driver import ProducerOptions
from tests.clients.features import numbered

pytestmark = [
    *CLIENT_MARKS,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

NON_EMPTY_GROUP = 68
GROUP_ID_NOT_FOUND = 69
UNKNOWN_MEMBER_ID = 25
RECORDS = 20
CLOSE_LIMIT_S = 20.0

_numbers = itertools.count()


@pytest.fixture
def topic(clients: Clients) -> str:
    name = f"administered-{next(_numbers)}"
    clients.helper.create_topic(name, 2, {})
    for partition in (0, 1):
        clients.helper.produce(name, numbered(RECORDS), ProducerOptions(), partition)
    return name


@pytest.fixture
def group() -> str:
    return f"group-{next(_numbers)}"


@pytest.fixture
def admin(broker: BrokerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


@pytest.fixture
def kafka_python_admin(broker: BrokerProcess) -> Iterator[Any]:
    from kafka import KafkaAdminClient  # it warns of itself when it is imported

    client = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    yield client
    client.close()


def member(broker: BrokerProcess, group: str, topic: str, **settings: object) -> Consumer:
    common = {"bootstrap.servers": broker.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    consumer = Consumer(common | settings)
    consumer.subscribe([topic])
    return consumer


def read_all(consumer: Consumer) -> None:
    read, deadline_s = 0, time.monotonic() + 120
    while read < 2 * RECORDS:
        assert time.monotonic() < deadline_s, f"{read} records were read"
        read += sum(message.error() is None for message in consumer.consume(100, 0.1))


def offsets_of(admin: AdminClient, group: str) -> dict[int, int]:
    found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(30)
    return {place.partition: place.offset for place in found.topic_partitions}


def code_of(error: pytest.ExceptionInfo[KafkaException]) -> int:
    code: int = error.value.args[0].code()
    return code


def test_librdkafka_sees_a_group_moves_its_offsets_and_deletes_it(
    broker: BrokerProcess, admin: AdminClient, topic: str, group: str
) -> None:
    consumer = member(broker, group, topic, **{"enable.auto.commit": False})
    read_all(consumer)
    consumer.commit(asynchronous=False)
    assert offsets_of(admin, group) == {0: RECORDS, 1: RECORDS}

    described = admin.describe_consumer_groups([group])[group].result(30)
    assert described.state == ConsumerGroupState.STABLE
    assert {place.partition for place in described.members[0].assignment.topic_partitions} == {0, 1}
    listed = admin.list_consumer_groups(states={ConsumerGroupState.STABLE}).result().valid
    assert group in {each.group_id for each in listed}

    to_seven = [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 7)])]
    altered = admin.alter_consumer_group_offsets(to_seven)[group].result(30)
    assert [place.error.code() for place in altered.topic_partitions] == [UNKNOWN_MEMBER_ID]
    assert offsets_of(admin, group) == {0: RECORDS, 1: RECORDS}
    with pytest.raises(KafkaException) as rejected:
        admin.delete_consumer_groups([group])[group].result(30)
    assert code_of(rejected) == NON_EMPTY_GROUP

    consumer.close()
    assert admin.describe_consumer_groups([group])[group].result(30).state == ConsumerGroupState.EMPTY
    altered = admin.alter_consumer_group_offsets(to_seven)[group].result(30)
    assert [place.error for place in altered.topic_partitions] == [None]
    assert offsets_of(admin, group) == {0: 7, 1: RECORDS}
    admin.delete_consumer_groups([group])[group].result(30)
    assert offsets_of(admin, group) == {}
    with pytest.raises(KafkaException) as rejected:
        admin.delete_consumer_groups([group])[group].result(30)
    assert code_of(rejected) == GROUP_ID_NOT_FOUND


def test_kafka_python_sees_a_group_moves_its_offsets_and_deletes_it(
    broker: BrokerProcess, admin: AdminClient, kafka_python_admin: Any, topic: str, group: str
) -> None:
    consumer = member(broker, group, topic, **{"enable.auto.commit": False})
    read_all(consumer)
    consumer.commit(asynchronous=False)
    described = kafka_python_admin.describe_groups([group])[group]
    assert (described["group_state"], len(described["members"])) == ("Stable", 1)
    assert group in {each["group_id"] for each in kafka_python_admin.list_groups()}
    consumer.close()

    from kafka import TopicPartition as Place
    from kafka.structs import OffsetAndMetadata

    place = Place(topic, 0)
    kafka_python_admin.alter_group_offsets(group, {place: OffsetAndMetadata(7, "moved", -1)})
    found = kafka_python_admin.list_group_offsets({group: None})[group]
    assert {each.partition: committed.offset for each, committed in found.items()} == {0: 7, 1: RECORDS}
    assert found[place].metadata == "moved"
    kafka_python_admin.delete_groups([group])
    assert offsets_of(admin, group) == {}


def test_librdkafka_commits_on_close_without_delay(
    broker: BrokerProcess, admin: AdminClient, topic: str, group: str
) -> None:
    consumer = member(broker, group, topic, **{"enable.auto.commit": True})
    read_all(consumer)
    began_s = time.monotonic()
    consumer.close()
    assert time.monotonic() - began_s < CLOSE_LIMIT_S
    assert offsets_of(admin, group) == {0: RECORDS, 1: RECORDS}


def test_kafka_python_commits_on_close_without_delay(
    broker: BrokerProcess, admin: AdminClient, topic: str, group: str
) -> None:
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(
        topic, bootstrap_servers=broker.bootstrap, group_id=group, auto_offset_reset="earliest", enable_auto_commit=True
    )
    read, deadline_s = 0, time.monotonic() + 120
    while read < 2 * RECORDS:
        assert time.monotonic() < deadline_s, f"{read} records were read"
        read += sum(map(len, consumer.poll(timeout_ms=500).values()))
    began_s = time.monotonic()
    consumer.close()
    assert time.monotonic() - began_s < CLOSE_LIMIT_S
    assert offsets_of(admin, group) == {0: RECORDS, 1: RECORDS}
