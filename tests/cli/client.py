"""Questions of tests to a broker, in one line each."""

from confluent_kafka import Consumer, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

WAIT_S = 120.0


def produce(address: str, topic: str, *values: str) -> None:
    producer = Producer({"bootstrap.servers": address, "linger.ms": 0})
    failures: list[object] = []
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(WAIT_S) == 0
    assert failures == [None] * len(values)


def consume(address: str, topic: str, count: int, partition: int = 0) -> list[str]:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "unused", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        return [(message.value() or b"").decode() for message in consumer.consume(count, WAIT_S)]
    finally:
        consumer.close()


def topic_ids(address: str, *topics: str) -> dict[str, str]:
    admin = AdminClient({"bootstrap.servers": address})
    futures = admin.describe_topics(TopicCollection(list(topics)))
    return {name: str(future.result(WAIT_S).topic_id) for name, future in futures.items()}


def create_topic(address: str, name: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(WAIT_S)
