"""Topics, settings and brokers through the admin client, against a broker."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.server.harness import Harness
from tidelog.client.admin.admin import Admin, own_settings
from tidelog.client.network.bootstrap import Address
from tidelog.client.network.in_flight import ConnectionLost
from tidelog.client.network.retries import GaveUp
from tidelog.client.routing.cluster import Cluster
from tidelog.errors import InvalidReplicationFactor, InvalidTopic, TopicAlreadyExists, UnknownTopicOrPartition
from tidelog.protocol.messages.describe_log_dirs import DescribeLogDirsResponse
from tidelog.runtime.randomness import SeededRandomness
from tidelog.runtime.virtual_time import run_virtually

ADDRESS = Address("127.0.0.1", 9092)


def with_admin(scenario: Callable[[Admin], Awaitable[None]], *bootstrap: Address) -> None:
    async def main() -> None:
        harness = Harness()
        async with (
            harness.broker(),
            Cluster(harness.network, bootstrap or [ADDRESS], SeededRandomness(1)) as cluster,
        ):
            await scenario(Admin(cluster, timeout_s=5.0))

    run_virtually(main())


def test_topic_is_created_described_listed_and_deleted() -> None:
    async def scenario(admin: Admin) -> None:
        created = await admin.create_topic("orders", partitions=3, settings={"retention.ms": "60000"})
        assert (created.name, sorted(created.partitions)) == ("orders", [0, 1, 2])
        assert all(partition.leader == 0 for partition in created.partitions.values())
        assert await admin.describe_topic("orders") == created
        settings = await admin.topic_settings("orders")
        assert own_settings(settings["orders"]) == {"retention.ms": "60000"}
        assert [topic.name for topic in await admin.list_topics()] == ["orders"]
        await admin.delete_topic("orders")
        assert await admin.list_topics() == []
        with pytest.raises(UnknownTopicOrPartition, match="topic orders does not exist"):
            await admin.describe_topic("orders")

    with_admin(scenario)


def test_what_will_not_pass_is_raised_at_once() -> None:
    async def scenario(admin: Admin) -> None:
        await admin.create_topic("orders", partitions=1)
        with pytest.raises(TopicAlreadyExists, match="orders"):
            await admin.create_topic("orders")
        with pytest.raises(InvalidTopic):
            await admin.create_topic("no/slash")
        with pytest.raises(InvalidReplicationFactor):
            await admin.create_topic("wide", partitions=1, replication_factor=3)
        with pytest.raises(Exception, match="topic nowhere does not exist"):
            await admin.delete_topic("nowhere")

    with_admin(scenario)


def test_cluster_its_settings_and_its_disks_are_described() -> None:
    async def scenario(admin: Admin) -> None:
        await admin.create_topic("orders", partitions=2)
        described = await admin.describe_cluster()
        assert described.controller_id == 0
        assert described.brokers[0].address == ADDRESS
        settings = {entry.name: entry.value for entry in (await admin.broker_settings(0)).configs}
        assert settings["num.partitions"] == "1"
        (log_dirs,) = (await admin.describe_log_dirs()).values()
        assert isinstance(log_dirs, DescribeLogDirsResponse)
        assert [topic.name for topic in log_dirs.results[0].topics] == ["orders"]

    with_admin(scenario)


def test_bootstrap_address_that_is_dead_is_passed_over() -> None:
    async def scenario(admin: Admin) -> None:
        assert (await admin.describe_cluster()).controller_id == 0

    with_admin(scenario, Address("127.0.0.1", 1), ADDRESS)


def test_brokers_that_do_not_answer_are_reported_long_before_they_are_given_up() -> None:
    reported: list[tuple[float, str]] = []

    async def main() -> None:
        harness, loop = Harness(), asyncio.get_running_loop()

        def report(reason: str) -> None:
            reported.append((loop.time(), reason))

        async with Cluster(harness.network, [ADDRESS], SeededRandomness(1), report_waiting=report) as cluster:
            started_at = loop.time()
            with pytest.raises(GaveUp):
                await Admin(cluster, timeout_s=120.0).list_topics()
            ((at, reason),) = reported
            assert 5 <= at - started_at < 10
            assert "no listener" in reason
            async with harness.broker():
                await Admin(cluster, timeout_s=120.0).list_topics()
        assert len(reported) == 1

    run_virtually(main())


def test_cluster_that_cannot_be_reached_is_given_up_with_every_reason() -> None:
    async def scenario(admin: Admin) -> None:
        with pytest.raises(
            GaveUp, match=r"gave up after 5 s: .*127\.0\.0\.1:1: no listener.*127\.0\.0\.1:2: no listener"
        ) as info:
            await admin.list_topics()
        assert isinstance(info.value.__cause__, ConnectionLost)

    with_admin(scenario, Address("127.0.0.1", 1), Address("127.0.0.1", 2))
