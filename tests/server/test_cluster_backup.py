"""cluster.backup: what is noted of the cluster in every log directory, and who is missing by it."""

import asyncio
import json
from typing import Any

import pytest

from tests.server.harness import Client, World, with_broker
from tidelog.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.runtime.virtual_time import run_virtually
from tidelog.server.broker import CannotStart
from tidelog.server.store_marks import StoreMark
from tidelog.store.memory import MemoryStoreState

SETTLED_S = 2.0
TWO_DIRS: tuple[str, ...] = ("/a", "/b")


def noted(world: World, directory: str = "/logs") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(world.disk.read_file(f"{directory}/cluster.backup"))
    return found


async def new_producer_id(client: Client) -> int:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    return (await client.ask(request, 4, InitProducerIdResponse)).producer_id


def test_topics_and_their_settings_are_noted_soon_after_they_change() -> None:
    async def scenario(world: World, client: Client) -> None:
        await client.create_topic("orders", retention_ms="1000")
        await asyncio.sleep(SETTLED_S)
        content = noted(world)
        assert (content["members"], content["topic_configs"]) == ([0], {"orders": {"retention.ms": "1000"}})

    with_broker(scenario)


def test_producer_ids_are_noted_before_they_are_given() -> None:
    async def scenario(world: World, client: Client) -> None:
        assert await new_producer_id(client) == 0
        assert noted(world)["last_producer_id"] == 999

    with_broker(scenario)


def test_a_stop_leaves_nothing_to_be_noted() -> None:
    async def main() -> None:
        world = World()
        async with world.broker():
            client = await world.connect()
            await client.create_topic("first")
            await asyncio.sleep(SETTLED_S)
            await client.create_topic("second")
        assert set(noted(world)["topic_configs"]) == {"first", "second"}

    run_virtually(main())


def test_a_stop_waits_for_a_backup_that_is_being_written() -> None:
    """The store may take a while to count the change: a stop in that time must not leave the backup unwritten."""

    async def main() -> None:
        world = World()
        async with world.broker() as broker:
            client = await world.connect()
            await client.create_topic("first")
            await asyncio.sleep(SETTLED_S)
            count = broker._backup.increment_change_counter

            async def slowly() -> StoreMark | None:
                await asyncio.sleep(1)
                return await count()

            broker._backup.increment_change_counter = slowly
            await client.create_topic("second")
            await asyncio.sleep(0.5)
            assert not broker._backup._is_stale.is_set()
            assert set(noted(world)["topic_configs"]) == {"first"}
        assert set(noted(world)["topic_configs"]) == {"first", "second"}

    run_virtually(main())


def test_every_log_directory_has_it_and_one_that_lacks_it_is_missed() -> None:
    async def main() -> None:
        world = World()
        async with world.broker(log_dirs=TWO_DIRS):
            client = await world.connect()
            await client.create_topic("orders", partitions=2)
            await client.produce("orders", b"one")
            await asyncio.sleep(SETTLED_S)
            assert noted(world, "/a") == noted(world, "/b")
        world.store_state = MemoryStoreState()
        world.disk.remove_tree("/b")
        with pytest.raises(CannotStart, match="broker 0 held replicas, and /b is new"):
            await world.start(log_dirs=TWO_DIRS)
        async with world.broker(log_dirs=TWO_DIRS, unclean_takeover_enable=True):
            client = await world.connect()
            response = await client.ask(DescribeLogDirsRequest(topics=None), 4, DescribeLogDirsResponse)
            assert (response.suspension, response.stray_logs) == ("", [])

    run_virtually(main())


def test_a_damaged_file_is_written_anew() -> None:
    async def main() -> None:
        world = World()
        async with world.broker():
            client = await world.connect()
            await client.create_topic("orders")
            await asyncio.sleep(SETTLED_S)
        world.disk.write_file_atomically("/logs/cluster.backup", b"{")
        async with world.broker():
            await asyncio.sleep(SETTLED_S)
        assert noted(world)["members"] == [0]

    run_virtually(main())


def test_a_log_directory_that_never_got_its_backup_is_not_taken_for_a_new_one() -> None:
    """The broker dies after the first of two writes. The backup of the other directory names both."""

    async def main() -> None:
        world = World()
        async with world.broker(log_dirs=TWO_DIRS):
            client = await world.connect()
            await client.create_topic("orders", partitions=2)
            await client.produce("orders", b"one")
            await asyncio.sleep(SETTLED_S)
        world.store_state = MemoryStoreState()
        world.disk.remove("/b/cluster.backup")
        async with world.broker(log_dirs=TWO_DIRS):
            client = await world.connect()
            assert noted(world, "/b") == noted(world, "/a")

    run_virtually(main())
