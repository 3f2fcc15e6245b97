"""A follower's side of replication throttles (R24), against a scripted leader, on virtual time."""

import asyncio
from unittest.mock import patch

from tests.replication.fetcher_harness import FetcherHarness, content, run_fetching
from tests.replication.scripted_leader import ScriptedLeader, Session
from tidelog.config.topic import TopicSettings
from tidelog.protocol.messages.fetch import FetchRequest, FetchResponse
from tidelog.replication.follower_throttle import FollowerThrottle
from tidelog.replication.partition import Partition

RATE = 20_000
THROTTLED = TopicSettings(follower_replication_throttled_replicas=("*",))
READ = ScriptedLeader.read
SETTINGS = {"replica_fetch_max_bytes": 4000}


def lead(harness: FetcherHarness, topic: str, batches: int) -> None:
    harness.leader.lead(topic)
    for number in range(batches):
        harness.leader.append(topic, b"%d" % number + bytes(1000))


def throttled(harness: FetcherHarness, topic: str) -> Partition:
    replica = harness.replica(topic)
    replica.configure(THROTTLED)
    return replica


def size_of(replica: Partition) -> int:
    return len(content(replica.log))


def test_a_throttled_replica_is_copied_at_its_rate_without_a_busy_loop() -> None:
    async def scenario(harness: FetcherHarness) -> None:
        lead(harness, "moved", 300)
        replica = throttled(harness, "moved")
        harness.quota.bytes_per_second = RATE
        harness.follow(replica)
        took_s = await harness.until(lambda: replica.log.log_end_offset == 300, within_s=60)
        assert 0.9 < took_s / (harness.quota.total_bytes / RATE) < 1.05, "incomplete batches at the end count, too"
        assert size_of(replica) <= harness.quota.total_bytes < 1.3 * size_of(replica)
        assert len(harness.leader.fetches()) < 300

    run_fetching(scenario, **SETTINGS)


def test_other_partitions_of_the_fetcher_are_not_slowed() -> None:
    async def scenario(harness: FetcherHarness) -> None:
        lead(harness, "moved", 300)
        lead(harness, "orders", 0)
        orders, moved = harness.start_following("orders"), throttled(harness, "moved")
        harness.quota.bytes_per_second = RATE
        harness.follow(moved)
        for number in range(50):
            await asyncio.sleep(0.1)
            harness.leader.append("orders", b"%d" % number)
            await harness.until(lambda number=number: orders.log.high_watermark > number, within_s=0.02)  # type: ignore[misc]
        assert 0.85 < size_of(moved) / (5 * RATE) < 1.25
        assert harness.quota.left_out > 10

    run_fetching(scenario, **SETTINGS)


def test_a_replica_that_is_in_sync_is_fetched_although_the_quota_is_exceeded() -> None:
    async def scenario(harness: FetcherHarness) -> None:
        lead(harness, "orders", 3)
        replica = throttled(harness, "orders")
        harness.follow(replica)
        await harness.until(lambda: replica.log.high_watermark == 3)
        harness.quota.bytes_per_second = 0
        for number in range(20):
            harness.leader.append("orders", b"%d" % number)
            await harness.until(lambda number=number: replica.log.high_watermark == 4 + number, within_s=0.02)  # type: ignore[misc]
        assert harness.quota.is_exceeded(harness.clock.monotonic())

    run_fetching(scenario)


def test_a_replica_of_the_isr_is_fetched_from_its_new_leader_although_the_quota_is_exceeded() -> None:
    async def scenario(harness: FetcherHarness) -> None:
        lead(harness, "orders", 1)
        replica = throttled(harness, "orders")
        harness.quota.bytes_per_second = 0
        harness.quota.record(10**9, harness.clock.monotonic())
        harness.follow(replica)
        await harness.until(lambda: replica.log.high_watermark == 1, within_s=0.1)

    run_fetching(scenario)


def test_a_fetcher_whose_partitions_are_all_throttled_sends_nothing() -> None:
    async def scenario(harness: FetcherHarness) -> None:
        lead(harness, "moved", 100)
        replica = throttled(harness, "moved")
        harness.quota.bytes_per_second = 1
        harness.follow(replica)
        await asyncio.sleep(1)
        before = len(harness.leader.fetches())
        for _ in range(50):
            harness.fetchers._fetchers[1, 0]._schedule_work()  # as a change of another partition does
            await asyncio.sleep(0.01)
        with patch.object(FollowerThrottle, "apply", autospec=True, side_effect=FollowerThrottle.apply) as rounds:
            await asyncio.sleep(5)
        assert len(harness.leader.fetches()) == before
        assert rounds.call_count <= 6, "one timer, of replica.fetch.backoff.ms"

    run_fetching(scenario, **SETTINGS)


def test_a_throttle_that_is_removed_ends_within_the_backoff() -> None:
    async def scenario(harness: FetcherHarness) -> None:
        lead(harness, "moved", 100)
        replica = throttled(harness, "moved")
        harness.quota.bytes_per_second = 1
        harness.follow(replica)
        await asyncio.sleep(3)
        assert replica.log.log_end_offset < 10
        replica.configure(TopicSettings())
        await harness.until(lambda: replica.log.log_end_offset == 100, within_s=1.1)

    run_fetching(scenario, **SETTINGS)


def test_a_rate_that_is_removed_ends_the_throttle_within_the_backoff() -> None:
    async def scenario(harness: FetcherHarness) -> None:
        lead(harness, "moved", 100)
        lead(harness, "idle", 1)
        replica = throttled(harness, "moved")
        harness.start_following("idle")
        harness.quota.bytes_per_second = 1
        harness.follow(replica)
        await asyncio.sleep(3)
        assert replica.log.log_end_offset < 10
        harness.quota.bytes_per_second = 2**63 - 1
        await harness.until(lambda: replica.log.log_end_offset == 100, within_s=1.1)

    run_fetching(scenario, **SETTINGS)


def test_throttled_partitions_take_turns_if_a_response_has_room_for_one_only() -> None:
    async def scenario(harness: FetcherHarness) -> None:
        names = [f"moved{number}" for number in range(5)]
        for name in names:
            lead(harness, name, 200)
        replicas = [throttled(harness, name) for name in names]
        harness.leader.lead("idle")
        harness.start_following("idle")  # there are fetches that leave the others out
        harness.quota.bytes_per_second = RATE
        with patch.object(ScriptedLeader, "read", one_partition_at_a_time):
            for replica in replicas:
                harness.follow(replica)
            await asyncio.sleep(10)
        sizes = [size_of(replica) for replica in replicas]
        assert min(sizes) > 0.5 * max(sizes)
        assert 0.85 < harness.quota.total_bytes / (10 * RATE) < 1.3

    run_fetching(scenario, **SETTINGS)


def one_partition_at_a_time(leader: ScriptedLeader, request: FetchRequest, session: Session) -> FetchResponse:
    response = READ(leader, request, session)
    found = [data for topic in response.responses for data in topic.partitions if data.records]
    for data in found[1:]:
        data.records = b""
    return response


def test_a_left_out_partition_that_is_no_longer_followed_is_forgotten() -> None:
    async def scenario(harness: FetcherHarness) -> None:
        lead(harness, "moved", 100)
        lead(harness, "orders", 1)
        replica = throttled(harness, "moved")
        harness.start_following("orders")
        harness.quota.bytes_per_second = 1
        harness.follow(replica)
        await asyncio.sleep(2)
        end_offset = replica.log.log_end_offset
        harness.fetchers.forget([replica.topic_partition])
        harness.quota.bytes_per_second = 10**9
        await asyncio.sleep(2)
        assert replica.log.log_end_offset == end_offset

    run_fetching(scenario, **SETTINGS)
