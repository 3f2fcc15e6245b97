"""A leader's side of replication throttles (R24), through the wire protocol, on virtual time."""

import asyncio
from dataclasses import replace

import pytest

from tests.server.harness import fetch_request
from tests.server.session_reader import SessionReader
from tests.server.test_follower_fetch import FOLLOWER, HERE, SECOND, Led, follower_request, with_leader
from tidelog.errors import FencedLeaderEpoch, OffsetOutOfRange
from tidelog.replication.quota import ReplicationQuota

RATE = 1000


def throttle(led: Led, *indexes: int, in_sync: tuple[int, ...] = (HERE,), count: int = 1) -> ReplicationQuota:
    """The follower is out of sync, and the quota is exceeded for the next five seconds."""
    led.assign(leader_epoch=2, replicas=(HERE, FOLLOWER, SECOND), in_sync=in_sync, count=count)
    for index in indexes:
        partition = led.partition(index)
        listed = (f"{index}:{HERE}",)
        partition.configure(replace(partition.log.settings, leader_replication_throttled_replicas=listed))
    services = led.broker._services
    quota = services.quotas.leader
    quota.bytes_per_second = RATE
    quota.record(5 * RATE, services.clock.monotonic())
    return quota


def test_a_follower_that_is_out_of_sync_gets_no_records_until_the_quota_allows_it() -> None:
    async def scenario(led: Led) -> None:
        await led.client.produce("t", b"x" * 500, acks=1)
        quota = throttle(led, 0)
        recorded = quota.total_bytes
        data = await led.fetch_as(FOLLOWER, 0)
        assert (data.records or b"", data.error_code, data.high_watermark) == (b"", 0, 1)
        assert (quota.total_bytes, quota.left_out) == (recorded, 1)
        await asyncio.sleep(5.1)
        data = await led.fetch_as(FOLLOWER, 0)
        assert data.records
        assert quota.total_bytes == recorded + len(data.records)

    with_leader(scenario)


def test_consumers_are_never_throttled_nor_counted() -> None:
    async def scenario(led: Led) -> None:
        await led.client.produce("t", b"x" * 500, acks=1)
        quota = throttle(led, 0)
        recorded = quota.total_bytes
        assert (await led.client.fetch("t", 0, max_wait_ms=0)).records
        waiting = led.client.start(fetch_request("t", 1, max_wait_ms=30_000), 12)
        producer = await led.harness.connect()
        await producer.produce("t", b"y", acks=1)
        await asyncio.sleep(0.1)
        assert waiting.done()
        assert quota.total_bytes == recorded

    with_leader(scenario)


def test_a_follower_in_sync_is_not_throttled_but_counted() -> None:
    async def scenario(led: Led) -> None:
        await led.client.produce("t", b"x" * 500, acks=1)
        quota = throttle(led, 0, in_sync=(HERE, FOLLOWER))
        recorded = quota.total_bytes
        data = await led.fetch_as(FOLLOWER, 0)
        assert data.records
        assert quota.total_bytes == recorded + len(data.records)
        assert not (await led.fetch_as(SECOND, 0)).records

    with_leader(scenario)


def test_partitions_and_brokers_that_are_not_listed_are_not_throttled() -> None:
    async def scenario(led: Led) -> None:
        for index in range(2):
            await led.client.produce("t", b"x", acks=1, partition=index)
        throttle(led, 0, count=2)
        settings = replace(led.partition(1).log.settings, leader_replication_throttled_replicas=("1:7", "0:0"))
        led.partition(1).configure(settings)
        assert not (await led.fetch_as(FOLLOWER, 0)).records
        assert (await led.fetch_as(FOLLOWER, 0, partition=1)).records

    with_leader(scenario, count=2)


def test_errors_and_progress_of_a_throttled_follower_are_as_ever() -> None:
    async def scenario(led: Led) -> None:
        for _ in range(3):
            await led.client.produce("t", b"x", acks=1)
        throttle(led, 0)
        assert (await led.fetch_as(FOLLOWER, 99)).error_code == OffsetOutOfRange.code
        assert (await led.fetch_as(FOLLOWER, 0, current_leader_epoch=1)).error_code == FencedLeaderEpoch.code
        assert (await led.fetch_as(FOLLOWER, 3, last_fetched_epoch=0)).diverging_epoch is not None
        await led.fetch_as(FOLLOWER, 2)
        leader = led.partition().leader
        assert leader is not None
        assert leader.followers[FOLLOWER].log_end_offset == 2

    with_leader(scenario)


@pytest.mark.parametrize("min_bytes", [1, 100])
@pytest.mark.parametrize("has_session", [False, True])
def test_a_throttled_fetch_waits_and_is_not_woken_by_records_that_it_cannot_have(
    has_session: bool, min_bytes: int
) -> None:
    async def scenario(led: Led) -> None:
        producer = await led.harness.connect()
        for index in range(2):
            await producer.produce("t", b"x" * 500, acks=1, partition=index)
        throttle(led, 0, count=2)
        reader = SessionReader(led.client, replica_id=FOLLOWER)
        if has_session:
            reader.wants("t", 0, 0)
            reader.wants("t", 1, 1)
            assert not any(data.records for data in (await reader.fetch()).values())
        clock = led.broker._services.clock
        for _ in range(3):
            started = clock.monotonic()
            waiting = (
                reader.start(max_wait_ms=500, min_bytes=min_bytes)
                if has_session
                else led.client.start(follower_request(FOLLOWER, 0, max_wait_ms=500, min_bytes=min_bytes), 12)
            )
            for _ in range(4):
                await asyncio.sleep(0.1)
                await producer.produce("t", b"y" * 500, acks=1)
                assert not waiting.done()
            await waiting
            assert 0.45 < clock.monotonic() - started < 0.55
        await asyncio.sleep(5)
        if has_session:
            assert (await reader.fetch())[0].records
        else:
            assert (await led.fetch_as(FOLLOWER, 0)).records

    with_leader(scenario, count=2)


def test_records_of_another_partition_complete_a_fetch_with_throttled_ones() -> None:
    async def scenario(led: Led) -> None:
        producer = await led.harness.connect()
        await producer.produce("t", b"x" * 500, acks=1)
        throttle(led, 0, count=2)
        reader = SessionReader(led.client, replica_id=FOLLOWER)
        reader.wants("t", 0, 0)
        reader.wants("t", 1, 0)
        await reader.fetch()
        waiting = reader.start(max_wait_ms=30_000)
        await asyncio.sleep(0.1)
        await producer.produce("t", b"y", acks=1, partition=1)
        await asyncio.sleep(0.1)
        assert waiting.done()
        assert [index for index, data in (await waiting).items() if data.records] == [1]

    with_leader(scenario, count=2)


def test_a_throttle_that_a_worker_reads_under_is_kept() -> None:
    async def scenario(led: Led) -> None:
        producer = await led.harness.connect()
        for index in range(2):
            await producer.produce("t", b"x" * 500, acks=1, partition=index)
        throttle(led, 0, count=2)
        led.harness.disk.uncached_paths.add("/logs/t-1/00000000000000000000.log")
        reader = SessionReader(led.client, replica_id=FOLLOWER)
        reader.wants("t", 0, 0)
        reader.wants("t", 1, 0)
        found = await reader.fetch()
        assert [index for index, data in found.items() if data.records] == [1]

    with_leader(scenario, count=2)
