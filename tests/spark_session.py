"""Common parts of tests of Spark: one session for all of them, and one broker."""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.clients.broker import TidelogProcess, running

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
}

NO_PARTITION = -1
"""librdkafka chooses."""

TopicMaker = Callable[..., str]


class Message(NamedTuple):
    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    timestamp_ms: int = 0
    headers: tuple[tuple[str, bytes | None], ...] = ()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    """It starts when the first test asks for it: ten seconds that all tests share."""
    from tidelog.spark import session

    directory = tmp_path_factory.mktemp("spark")
    settings = SETTINGS | {"spark.sql.warehouse.dir": str(directory), "spark.local.dir": str(directory)}
    started = session("tests", "local[2]", settings)
    started.sparkContext.setLogLevel("OFF")
    yield started
    started.stop()


@pytest.fixture(scope="session")
def running_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TidelogProcess]:
    process = TidelogProcess(tmp_path_factory.mktemp("broker-for-spark"))
    with running(process):
        yield process


@pytest.fixture
def new_topic(running_broker: TidelogProcess, request: pytest.FixtureRequest) -> TopicMaker:
    """Creates a topic named after the test. Returns its name."""
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": running_broker.bootstrap})
    count = 0

    def make(partitions: int = 1, suffix: str = "", **config: str) -> str:
        nonlocal count
        count += 1
        name = f"{re.sub('[^a-z_]', '-', request.node.name)[:80]}.{count}{suffix}"
        settings = {key.replace("_", "."): value for key, value in config.items()}
        admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(60)
        return name

    return make


def produce(
    bootstrap: str,
    topic: str,
    messages: Iterable[Message],
    compression: str = "none",
    largest_message_bytes: int = 1_000_000,
) -> None:
    """Writes them with librdkafka, a client that shares no code with ours, and waits for the last of them."""
    from confluent_kafka import Producer

    settings = {"compression.type": compression, "linger.ms": 5, "message.max.bytes": largest_message_bytes}
    producer = Producer({"bootstrap.servers": bootstrap, **settings})
    for message in messages:
        partition = NO_PARTITION if message.partition is None else message.partition
        while True:
            try:
                producer.produce(
                    topic,
                    message.value,
                    message.key,
                    partition,
                    timestamp=message.timestamp_ms,
                    headers=list(message.headers) or None,
                )
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(30) == 0
