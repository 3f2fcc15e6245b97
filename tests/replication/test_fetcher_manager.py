"""Fetchers: which partitions each one has, and when fetchers begin and end (R25)."""

import asyncio
from dataclasses import replace

from tests.replication.fetcher_harness import FetcherHarness, content, run_fetching
from tests.replication.scripted_leader import ScriptedLeader
from tidelog.replication.fetcher_manager import fetcher_id_of
from tidelog.types import TopicPartition


def test_partitions_of_a_topic_spread_evenly_and_always_in_the_same_way() -> None:
    ids = [fetcher_id_of(TopicPartition("orders", index), 3) for index in range(9)]
    assert sorted(ids) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert fetcher_id_of(TopicPartition("orders", 0), 1000) == 662


def test_one_connection_per_leader_and_fetcher_id() -> None:
    async def scenario(harness: FetcherHarness) -> None:
        other = ScriptedLeader(harness.network, broker_id=3)
        await other.start()
        for index in range(8):
            for leader in (harness.leader, other):
                leader.lead(f"led-by-{leader.address.broker_id}", index)
                leader.append(f"led-by-{leader.address.broker_id}", b"a", partition=index)
        replicas = []
        for index in range(8):
            for leader in (harness.leader, other):
                replicas.append(harness.replica(f"led-by-{leader.address.broker_id}", index))
                harness.follow(replicas[-1], leader=leader)
        await harness.until(lambda: all(replica.log.high_watermark == 1 for replica in replicas))
        assert (len(harness.leader.connections), len(other.connections)) == (2, 2)
        names = sorted(fetcher.client_id for fetcher in harness.fetchers.statistics().fetchers)
        assert names == ["broker-2-fetcher-0", "broker-2-fetcher-0", "broker-2-fetcher-1", "broker-2-fetcher-1"]

    run_fetching(scenario, num_replica_fetchers=2)


def test_a_partition_moves_to_the_fetcher_of_its_new_leader_and_the_idle_one_stops() -> None:
    async def scenario(harness: FetcherHarness) -> None:
        led = harness.leader.lead("orders")
        harness.leader.append("orders", b"a")
        replica = harness.start_following("orders")
        await harness.until(lambda: replica.log.high_watermark == 1)
        successor = ScriptedLeader(harness.network, broker_id=3)
        await successor.start()
        harness.leader.stop()
        successor.lead("orders", leader_epoch=2, log=led.log)
        successor.append("orders", b"b")
        harness.follow(replica, leader_epoch=2, leader=successor)
        harness.fetchers.stop_idle()
        assert await harness.until(lambda: replica.log.high_watermark == 2) < 0.01
        assert [fetcher.leader.broker_id for fetcher in harness.fetchers.statistics().fetchers] == [3]
        await asyncio.sleep(5)
        assert not harness.leader.connections

    run_fetching(scenario)


def test_a_leader_that_moves_is_connected_to_where_it_is_now() -> None:
    async def scenario(harness: FetcherHarness) -> None:
        led = harness.leader.lead("orders")
        replica = harness.start_following("orders")
        await asyncio.sleep(0.1)
        moved = ScriptedLeader(harness.network, broker_id=1)
        await moved.start()
        moved.lead("orders", log=led.log)
        moved.append("orders", b"a")
        harness.fetchers.retarget(moved.address)
        assert await harness.until(lambda: replica.log.high_watermark == 1) < 0.01
        await asyncio.sleep(0.01)
        assert (len(harness.leader.connections), len(moved.connections)) == (0, 1)
        harness.fetchers.retarget(moved.address)
        await asyncio.sleep(0.01)
        assert len(moved.connections) == 1

    run_fetching(scenario)


def test_another_number_of_fetchers_takes_effect_while_they_run() -> None:
    async def scenario(harness: FetcherHarness) -> None:
        replicas = []
        for index in range(4):
            harness.leader.lead("orders", index)
            replicas.append(harness.start_following("orders", index))
        await asyncio.sleep(0.1)
        assert len(harness.leader.connections) == 1
        harness.settings = replace(harness.settings, num_replica_fetchers=4)
        harness.fetchers.resize()
        for index in range(4):
            harness.leader.append("orders", b"a", partition=index)
        await harness.until(lambda: all(replica.log.high_watermark == 1 for replica in replicas))
        assert len(harness.leader.connections) == 4
        harness.settings = replace(harness.settings, num_replica_fetchers=1)
        harness.fetchers.resize()
        await asyncio.sleep(0.1)
        assert len(harness.leader.connections) == 1

    run_fetching(scenario)


def test_statistics_have_lag_bytes_and_requests() -> None:
    async def scenario(harness: FetcherHarness) -> None:
        led = harness.leader.lead("orders")
        harness.leader.append("orders", b"a" * 1000)
        harness.leader.append("orders", b"b" * 1000)
        lags: list[int] = []
        harness.leader.on_request = lambda request: lags.append(harness.fetchers.statistics().max_lag)
        replica = harness.start_following("orders")
        await harness.until(lambda: replica.log.log_end_offset == 2)
        await asyncio.sleep(0.01)
        assert lags[-2:] == [1, 0]
        statistics = harness.fetchers.statistics()
        assert statistics.max_lag == 0
        assert statistics.fetchers[0].lags == {TopicPartition("orders", 0): 0}
        assert statistics.fetchers[0].bytes == len(content(led.log))
        assert statistics.fetchers[0].requests >= 2
        assert statistics.fetchers[0].is_connected

    run_fetching(scenario, replica_fetch_max_bytes=10)


def test_after_closing_nothing_is_asked_or_appended() -> None:
    async def scenario(harness: FetcherHarness) -> None:
        harness.leader.lead("orders")
        replica = harness.start_following("orders")
        harness.start_following("unknown")
        await asyncio.sleep(0.1)
        await harness.fetchers.close()
        asked = len(harness.leader.requests)
        harness.leader.append("orders", b"a")
        await asyncio.sleep(10)
        assert (replica.log.log_end_offset, len(harness.leader.requests)) == (0, asked)
        assert not harness.leader.connections

    run_fetching(scenario)
