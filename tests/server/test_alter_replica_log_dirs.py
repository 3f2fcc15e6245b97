"""AlterReplicaLogDirs, through the wire protocol."""

import asyncio
import errno
from collections import Counter

import pytest

from tests.server.harness import Client, Harness, with_broker
from tests.server.test_configs import SET, THIS_BROKER, change
from tests.server.test_describe_log_dirs import describe
from tidelog.errors import InvalidTopic, KafkaStorageError, LogDirNotFound, UnknownTopicOrPartition
from tidelog.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from tidelog.protocol.messages.describe_log_dirs import DescribeLogDirsResult
from tidelog.runtime.turns import Turns
from tidelog.runtime.virtual_time import run_virtually
from tidelog.server.broker import CannotStart
from tidelog.server.handlers import alter_replica_log_dirs


class NothingAllowed:
    """A quota that is exceeded for ever."""

    def record(self, size: int, now_s: float) -> None: ...

    def wait_s(self, now_s: float) -> float:
        return 60.0


async def alter(client: Client, path: str, version: int = 2, topic: str = "t", partition: int = 0) -> int:
    dirs = [AlterReplicaLogDir(path=path, topics=[AlterReplicaLogDirTopic(name=topic, partitions=[partition])])]
    response = await client.ask(AlterReplicaLogDirsRequest(dirs=dirs), version, AlterReplicaLogDirsResponse)
    ((found,),) = (result.partitions for result in response.results)
    return found.error_code


def logs_in(results: list[DescribeLogDirsResult]) -> dict[str, list[tuple[str, int, bool]]]:
    return {
        result.log_dir: [
            (topic.name, log.partition_index, log.is_future_key) for topic in result.topics for log in topic.partitions
        ]
        for result in results
    }


@pytest.mark.parametrize("version", [1, 2])
def test_a_replica_moves_and_keeps_its_records(version: int) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t")
        await client.produce("t", b"x" * 100)
        assert await alter(client, "/b", version) == 0
        await asyncio.sleep(1)
        assert logs_in(await describe(client, None)) == {"/a": [], "/b": [("t", 0, False)]}
        await client.produce("t", b"y")
        assert harness.disk.size("/b/t-0/00000000000000000000.log") > 200

    with_broker(scenario, log_dirs=("/a", "/b"))


def test_a_topic_name_without_room_for_a_future_log_is_refused_and_the_log_says_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Apache Kafka 4.3 answers the same from 214 characters on."""

    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("x" * 244)
        await client.create_topic("x" * 245)
        assert await alter(client, "/b", topic="x" * 244) == 0
        assert {await alter(client, path, topic="x" * 245) for path in ("/a", "/b")} == {0, InvalidTopic.code}
        assert "is too long for a move between log dirs" in caplog.text
        assert (await client.produce("x" * 245, b"y")).error_code == 0

    with_broker(scenario, log_dirs=("/a", "/b"))


def test_a_future_log_has_a_lag_and_no_log_end() -> None:
    async def main() -> None:
        harness = Harness()
        async with harness.broker(log_dirs=("/a", "/b")) as broker:
            broker._services.alter_log_dirs.quota = NothingAllowed()
            client = await harness.connect()
            await client.create_topic("t")
            for _ in range(3):
                await client.produce("t", b"x")
            await alter(client, "/b")
            await asyncio.sleep(5)
            results = await describe(client, None)
            assert logs_in(results) == {"/a": [("t", 0, False)], "/b": [("t", 0, True)]}
            (future,) = results[1].topics[0].partitions
            assert (future.offset_lag, future.log_end_offset, future.last_epoch) == (3, -1, -1)

    run_virtually(main())


def test_errors() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t")
        assert await alter(client, "/elsewhere") == LogDirNotFound.code
        assert await alter(client, "/b", topic="missing") == UnknownTopicOrPartition.code
        assert await alter(client, "/b", partition=7) == UnknownTopicOrPartition.code
        assert await alter(client, "/b", partition=-1) == UnknownTopicOrPartition.code
        harness.disk.inject(errno.EIO, "/b")
        await alter(client, "/b")
        await asyncio.sleep(1)
        assert await alter(client, "/b") == KafkaStorageError.code
        (broken,) = [each for each in await describe(client, None) if each.log_dir == "/b"]
        assert "Input/output error" in broken.offline_reason
        await client.produce("t", b"the partition is in the other directory")

    with_broker(scenario, log_dirs=("/a", "/b"))


def test_a_log_dir_chosen_before_the_topic_is_created_gets_its_log() -> None:
    """As kafka-reassign-partitions does it: first the directory, then the replica."""

    async def scenario(harness: Harness, client: Client) -> None:
        assert await alter(client, "/b") == UnknownTopicOrPartition.code
        await client.create_topic("t")
        assert logs_in(await describe(client, None)) == {"/a": [], "/b": [("t", 0, False)]}

    with_broker(scenario, log_dirs=("/a", "/b"))


def test_a_partition_that_is_named_twice_is_answered_once_and_goes_to_the_last_log_dir() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t")
        dirs = [AlterReplicaLogDir(path, [AlterReplicaLogDirTopic("t", [0, 0])]) for path in ("/a", "/b", "/c")]
        response = await client.ask(AlterReplicaLogDirsRequest(dirs=dirs), 2, AlterReplicaLogDirsResponse)
        assert response.results[0].partitions == [AlterReplicaLogDirPartitionResult(partition_index=0, error_code=0)]
        await asyncio.sleep(1)
        assert logs_in(await describe(client, None)) == {"/a": [], "/b": [], "/c": [("t", 0, False)]}

    with_broker(scenario, log_dirs=("/a", "/b", "/c"))


def test_no_new_cluster_begins_while_log_dirs_cannot_be_read() -> None:
    """With a new cluster id all other brokers would be foreign (seed 483: the store was lost, and disks failed)."""

    async def main() -> None:
        harness = Harness()
        fault = harness.disk.inject(errno.EIO, "/b")
        with pytest.raises(CannotStart, match="log dirs cannot be read: /b"):
            async with harness.broker(log_dirs=("/a", "/b")):
                pass
        harness.disk.faults.remove(fault)
        async with harness.broker(log_dirs=("/a", "/b")):
            pass

    run_virtually(main())


def test_a_broker_starts_without_a_log_dir_that_cannot_be_read() -> None:
    async def main() -> None:
        harness = Harness()
        async with harness.broker(log_dirs=("/a", "/b")):
            client = await harness.connect()
            await client.create_topic("t", partitions=2)
            for index in range(2):
                await client.produce("t", b"x", partition=index)
        fault = harness.disk.inject(errno.EACCES, "/b")
        async with harness.broker(log_dirs=("/a", "/b")) as broker:
            await asyncio.sleep(1)
            client = await harness.connect()
            await client.produce("t", b"y", partition=0)
            results = {each.log_dir: each for each in await describe(client, None)}
            assert (results["/a"].error_code, results["/b"].error_code) == (0, KafkaStorageError.code)
            assert "Permission denied" in results["/b"].offline_reason
            assert broker.statistics().offline_partitions == 1
        harness.disk.faults.remove(fault)
        async with harness.broker(log_dirs=("/a", "/b")) as broker:
            await asyncio.sleep(1)
            assert broker.statistics().offline_partitions == 0
            assert broker.replicas.get("t", 1).log.log_end_offset == 1

    run_virtually(main())


def test_a_move_takes_the_time_that_its_rate_demands() -> None:
    async def main() -> None:
        harness, name = Harness(), "replica.alter.log.dirs.io.max.bytes.per.second"
        async with harness.broker(log_dirs=("/a", "/b")) as broker:
            services = broker._services
            services.alter_log_dirs.copy_bytes = 1000
            client = await harness.connect()
            await client.create_topic("t")
            for _ in range(50):
                await client.produce("t", b"x" * 900)
            assert await change(client, THIS_BROKER, (name, SET, "5000")) == 0
            started_s = services.clock.monotonic()
            assert await alter(client, "/b") == 0
            while not services.alter_log_dirs.swaps:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            took_s = services.clock.monotonic() - started_s
            moved_bytes = services.quotas.alter_log_dirs.total_bytes
            assert moved_bytes >= 45_000
            assert 0.85 < took_s / (moved_bytes / 5000) < 1.15

    run_virtually(main())


def test_a_request_of_very_many_moves_is_answered_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Turns, "is_slice_over", lambda _: True)
    turn = 0
    made: Counter[int] = Counter()

    def counted(**fields: int) -> AlterReplicaLogDirPartitionResult:
        made[turn] += 1
        return AlterReplicaLogDirPartitionResult(**fields)

    async def count_turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    monkeypatch.setattr(alter_replica_log_dirs, "AlterReplicaLogDirPartitionResult", counted)

    async def scenario(harness: Harness, client: Client) -> None:
        turns = asyncio.create_task(count_turns())
        dirs = [AlterReplicaLogDir("/nowhere", [AlterReplicaLogDirTopic("t", range(200))])]
        response = await client.ask(AlterReplicaLogDirsRequest(dirs=dirs), 2, AlterReplicaLogDirsResponse)
        turns.cancel()
        assert [each.partition_index for each in response.results[0].partitions] == list(range(200))
        assert max(made.values()) <= 2

    with_broker(scenario)
