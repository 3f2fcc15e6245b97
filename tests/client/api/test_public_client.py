"""The public client against a test cluster: what it writes, reads, commits and refuses."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from tidelog.client import (
    Admin,
    ConnectionLost,
    Consumer,
    KafkaError,
    Producer,
    Record,
    TopicPartition,
)
from tidelog.testing import Cluster

pytestmark = pytest.mark.clients

TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(settings={"num.partitions": 2}) as cluster:
        yield cluster


@pytest.fixture
def kafka(cluster: Cluster) -> Cluster:
    cluster.reset()
    return cluster


def _run(main: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        await asyncio.wait_for(main(), TIMEOUT_S)

    asyncio.run(limited())


async def _fill(kafka: Cluster, count: int, topic: str = "tides") -> None:
    async with Producer(kafka.bootstrap_servers) as producer:
        for number in range(count):
            await producer.enqueue(topic, b"%d" % number, key=b"%d" % number)


def test_a_record_is_written_and_read_with_all_its_parts(kafka: Cluster) -> None:
    async def main() -> None:
        async with Producer(kafka.bootstrap_servers) as producer:
            acknowledgement = await producer.send(
                "tides", b"low", key=b"Dover", headers=[("unit", b"m")], timestamp_ms=1_700_000_000_000, partition=1
            )
        assert acknowledgement[:3] == ("tides", 1, 0)
        async with Consumer(kafka.bootstrap_servers, "tides", start="earliest") as consumer:
            record = await anext(aiter(consumer))
        assert record == Record("tides", 1, 0, 1_700_000_000_000, b"Dover", b"low", (("unit", b"m"),))

    _run(main)


def test_fields_of_other_types(kafka: Cluster) -> None:
    async def main() -> None:
        async with Producer(kafka.bootstrap_servers) as producer:
            wrong: list[tuple[Any, dict[str, Any], str]] = [
                ("low", {}, "value must be bytes or None, not str"),
                (5, {}, "value must be bytes or None, not int"),
                (b"", {"key": "Dover"}, "key must be bytes or None, not str"),
                (b"", {"headers": [("unit", "m")]}, "header 'unit' must be bytes or None, not str"),
                (b"", {"headers": [(b"unit", b"m")]}, "the name of a header must be str, not bytes"),
            ]
            for value, named, sentence in wrong:
                with pytest.raises(TypeError, match=sentence):
                    await producer.send("tides", value, **named)
            headers = ((name, b"m") for name in ["unit"])
            await producer.send("tides", bytearray(b"low"), key=memoryview(b"Dover"), headers=headers)  # type: ignore[arg-type]

    _run(main)
    (record,) = kafka.topic("tides").records()
    assert (record.key, record.value, record.headers) == (b"Dover", b"low", (("unit", b"m"),))


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_compression(kafka: Cluster, compression: str) -> None:
    async def main() -> None:
        async with Producer(kafka.bootstrap_servers, compression=compression) as producer:  # type: ignore[arg-type]
            await producer.send("tides", b"low" * 1000)

    _run(main)
    kafka.topic("tides").should_have(value=b"low" * 1000, count=1)


def test_leaving_the_block_waits_for_acknowledgements(kafka: Cluster) -> None:
    _run(lambda: _fill(kafka, 1000))
    kafka.topic("tides").should_have(count=1000)


def test_an_idempotent_producer_makes_no_duplicates(kafka: Cluster) -> None:
    kafka.on("Produce").lose_answer(times=2)
    _run(lambda: _fill(kafka, 10))
    kafka.topic("tides").should_have(count=10)


def test_named_partitions_start_where_the_options_say(kafka: Cluster) -> None:
    async def main() -> None:
        await _fill(kafka, 100)
        start = {TopicPartition("tides", 0): 5, TopicPartition("tides", 1): "latest"}
        async with Consumer(kafka.bootstrap_servers, start) as consumer:  # type: ignore[arg-type]
            assert (await consumer.poll())[0].offset == 5
            assert consumer.partitions == start.keys()

    _run(main)


def test_a_group_goes_on_where_it_has_committed(kafka: Cluster) -> None:
    """Records that were fetched and not returned are not committed."""

    async def main() -> None:
        await _fill(kafka, 100)
        seen = []
        for count in (30, 70):
            async with Consumer(kafka.bootstrap_servers, "tides", group="g", start="earliest") as consumer:
                async for record in consumer:
                    seen.append((record.partition, record.offset))
                    count -= 1
                    if not count:
                        break
                await consumer.commit()
        assert len(seen) == len(set(seen)) == 100

    _run(main)
    assert sum(kafka.groups()["g"].committed.values()) == 100


def test_offsets_are_committed_by_themselves_on_request(kafka: Cluster) -> None:
    async def main() -> None:
        await _fill(kafka, 10)
        config = {"enable.auto.commit": "true", "group.protocol": "classic"}
        async with Consumer(kafka.bootstrap_servers, ["tides"], group="g", start="earliest", config=config) as consumer:
            left = 10
            while left:
                left -= len(await consumer.poll())

    _run(main)
    assert sum(kafka.groups()["g"].committed.values()) == 10


def test_batches_have_records_of_one_partition(kafka: Cluster) -> None:
    async def main() -> None:
        await _fill(kafka, 100)
        found = 0
        async with Consumer(kafka.bootstrap_servers, "tides", start="earliest") as consumer:
            async for batch in consumer.batches():
                assert {record.partition for record in batch.records} == {batch.partition}
                found += len(batch.records)
                if found == 100:
                    break

    _run(main)


def test_ways_to_read_may_be_mixed(kafka: Cluster) -> None:
    async def main() -> None:
        async with Producer(kafka.bootstrap_servers) as producer:
            for number in range(10):
                await producer.enqueue("tides", b"%d" % number, partition=0)
        first = TopicPartition("tides", 0)
        async with Consumer(kafka.bootstrap_servers, {first: 2}) as consumer:
            assert (await anext(consumer)).offset == 2
            assert (await anext(consumer)).offset == 3
            assert consumer.positions == {first: 4}
            batch = await anext(consumer.batches())
            assert consumer.positions == {first: 10}
            assert [record.offset for record in batch.records] == list(range(4, 10))
            assert list(batch.records[1:3]) == [batch.records[1], batch.records[2]]
            assert batch.records[-1].value == b"9"
            assert batch.records[0] in batch.records
            assert await consumer.poll(timeout_s=0) == []

    _run(main)


def test_tables(kafka: Cluster) -> None:
    async def main() -> None:
        async with Producer(kafka.bootstrap_servers) as producer:
            await producer.send("tides", None, key=b"Dover", headers=[("unit", b"m")], timestamp_ms=1000, partition=0)
        async with Consumer(kafka.bootstrap_servers, "tides", start="earliest") as consumer:
            async for table in consumer.tables():
                (row,) = table.to_pylist()
                assert (row["topic"], row["partition"], row["offset"]) == ("tides", 0, 0)
                assert (row["key"], row["value"]) == (b"Dover", None)
                assert row["timestamp"].timestamp() == 1
                assert row["headers"] == [{"name": "unit", "value": b"m"}]
                break

    _run(main)


async def _fail_in_transaction(producer: Producer) -> None:
    async with producer.transaction():
        await producer.send("tides", b"aborted")
        raise ZeroDivisionError


def test_transactions(kafka: Cluster) -> None:
    async def main() -> None:
        async with Producer(kafka.bootstrap_servers, transactional_id="till") as producer:
            with pytest.raises(ZeroDivisionError):
                await _fail_in_transaction(producer)
            async with producer.transaction():
                await producer.enqueue("tides", b"committed")

    _run(main)
    assert [record.value for record in kafka.topic("tides").records()] == [b"committed"]


def test_exactly_once_from_topic_to_topic(kafka: Cluster) -> None:
    async def main() -> None:
        await _fill(kafka, 50)
        for _ in range(2):
            async with (
                Consumer(kafka.bootstrap_servers, "tides", group="copier", start="earliest") as consumer,
                Producer(kafka.bootstrap_servers, transactional_id="copier") as producer,
            ):
                left = 25
                async with producer.transaction():
                    async for record in consumer:
                        await producer.enqueue("copies", record.value)
                        left -= 1
                        if not left:
                            break
                    await producer.send_offsets(consumer)

    _run(main)
    values = [int(record.value or b"") for record in kafka.topic("copies").records()]
    assert sorted(values) == list(range(50))


def test_admin(kafka: Cluster) -> None:
    async def main() -> None:
        async with Admin(kafka.bootstrap_servers) as admin:
            topic = await admin.create_topic("tides", partitions=3, settings={"retention.ms": "1000"})
            assert list(topic.partitions) == [0, 1, 2]
            await admin.add_partitions("tides", 4)
            assert len((await admin.describe_topic("tides")).partitions) == 4
            await admin.set_topic_settings("tides", {"retention.ms": None, "segment.ms": "2000"})
            assert await admin.topic_settings("tides") == {"segment.ms": "2000"}
            await admin.commit_offsets("g", {TopicPartition("tides", 0): 0})
            assert await admin.list_groups() == ["g"]
            assert await admin.committed_offsets("g") == {TopicPartition("tides", 0): 0}
            assert (await admin.describe_group("g")).members == ()
            await admin.delete_group("g")
            await admin.delete_topic("tides")
            assert [found.name for found in await admin.list_topics() if not found.is_internal] == []
            assert list((await admin.describe_cluster()).brokers) == [1]
            with pytest.raises(KafkaError, match="does not exist"):
                await admin.describe_topic("tides")

    _run(main)


def test_mistakes_get_one_sentence() -> None:
    with pytest.raises(
        ValueError, match=r"linger\.m: unknown setting; did you mean linger\.ms\?; acks: expected one of 0"
    ):
        Producer("localhost:1", config={"linger.m": "1", "acks": "2"})
    with pytest.raises(ValueError, match="transactions need acks=all"):
        Producer("localhost:1", acks="1", transactional_id="till")
    with pytest.raises(ValueError, match=r"enable\.idempotence needs acks=all"):
        Producer("localhost:1", acks="1", config={"enable.idempotence": "true"})
    with pytest.raises(ValueError, match="either named or shared by a group"):
        Consumer("localhost:1", {TopicPartition("tides", 0): 0}, group="g")
    with pytest.raises(ValueError, match=r"fetch\.min\.bytes: expected a whole number of at least 0, found 'many'"):
        Consumer("localhost:1", "tides", config={"fetch.min.bytes": "many"})

    async def main() -> None:
        with pytest.raises(RuntimeError, match="use it in `async with Producer"):
            await Producer("localhost:1").send("tides", b"low")
        with pytest.raises(RuntimeError, match="use it in `async with Consumer"):
            await Consumer("localhost:1", "tides").poll()
        with pytest.raises(RuntimeError, match="use it in `async with Admin"):
            await Admin("localhost:1").list_topics()
        with pytest.raises(ValueError, match="expected HOST:PORT"):
            async with Producer("localhost"):
                pass
        with pytest.raises(ConnectionLost, match="cannot connect to"):
            async with Consumer("127.0.0.1:1", "tides"):
                pass

    _run(main)


def test_groups_and_transactions_must_be_asked_for(kafka: Cluster) -> None:
    async def main() -> None:
        await _fill(kafka, 1)
        async with (
            Producer(kafka.bootstrap_servers) as producer,
            Consumer(kafka.bootstrap_servers, "tides") as consumer,
        ):
            with pytest.raises(RuntimeError, match=r"Producer\(\.\.\., transactional_id='name'\)"):
                producer.begin()
            with pytest.raises(RuntimeError, match=r"Consumer\(\.\.\., group='name'\)"):
                await consumer.commit()

    _run(main)


def test_partitions_are_added_though_the_answer_is_lost(kafka: Cluster) -> None:
    async def main() -> None:
        async with Admin(kafka.bootstrap_servers) as admin:
            await admin.create_topic("tides", partitions=3)
            kafka.on("CreatePartitions").lose_answer(times=1)
            await admin.add_partitions("tides", 4)
            assert len((await admin.describe_topic("tides")).partitions) == 4

    _run(main)


def test_settings_of_a_topic_that_does_not_exist_are_refused_at_once(kafka: Cluster) -> None:
    async def main() -> None:
        async with Admin(kafka.bootstrap_servers, timeout_s=1) as admin:
            with pytest.raises(KafkaError):
                await admin.set_topic_settings("tides", {"segment.ms": "2000"})
        assert len(kafka.requests("IncrementalAlterConfigs")) == 1

    _run(main)
