"""Fetches of followers and what the leader learns from them, through the wire protocol, on virtual time.

The followers here are the test itself; the broker believes in them because the controller has made it leader
of partitions that have them as replicas.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from unittest.mock import patch

import pytest

from tests.server.harness import Client, Harness, batch_of, fetch_request, produce_request
from tests.server.session_reader import IDS_VERSION, SessionReader, errors, topic_id_of
from tests.server.test_fetch_sessions import counted_reads, delete_records
from tidelog.cluster.image import BrokerRegistration as RegisteredBroker
from tidelog.config.listeners import Endpoint
from tidelog.errors import (
    FencedLeaderEpoch,
    LeaderNotAvailable,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    OffsetNotAvailable,
    OffsetOutOfRange,
    RequestTimedOut,
    UnknownLeaderEpoch,
)
from tidelog.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from tidelog.protocol.messages.fetch import FetchRequest, FetchResponse, NodeEndpoint, PartitionData
from tidelog.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tidelog.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tidelog.protocol.messages.produce import ProduceResponse
from tidelog.protocol.record_batch import read_header
from tidelog.replication.assignment import PartitionAssignment
from tidelog.replication.partition import Partition
from tidelog.runtime.virtual_time import run_virtually
from tidelog.server.broker import Broker
from tidelog.server.fetching import Fetch
from tidelog.types import BrokerId

HERE, FOLLOWER, SECOND = 0, 5, 6


class Led:
    """A broker that leads topic t, with followers played by the test."""

    def __init__(self, harness: Harness, broker: Broker, client: Client) -> None:
        self.harness = harness
        self.broker = broker
        self.client = client
        self.replicas = broker._services.replicas

    def partition(self, index: int = 0) -> Partition:
        return self.replicas.get("t", index)

    def assign(
        self,
        *,
        in_sync: tuple[BrokerId, ...] = (HERE, FOLLOWER),
        replicas: tuple[BrokerId, ...] = (HERE, FOLLOWER),
        leader: BrokerId = HERE,
        leader_epoch: int = 1,
        count: int = 1,
    ) -> None:
        assignments = [
            PartitionAssignment(
                self.partition(index).topic_partition,
                self.partition(index).topic_id,
                controller_epoch=self.replicas.controller_epoch,
                leader=leader,
                leader_epoch=leader_epoch,
                in_sync_replicas=in_sync,
                version=leader_epoch,
                replicas=replicas,
            )
            for index in range(count)
        ]
        outcomes = self.replicas.become_leader_or_follower(self.replicas.controller_epoch, assignments, {})
        assert set(outcomes.values()) == {None}

    async def fetch_as(self, replica_id: BrokerId, offset: int, **options: int) -> PartitionData:
        response = await self.client.ask(follower_request(replica_id, offset, **options), 12, FetchResponse)
        return response.responses[0].partitions[0]


def follower_request(replica_id: BrokerId, offset: int, **options: int) -> FetchRequest:
    options.setdefault("max_wait_ms", 0)
    request = fetch_request("t", offset, **options)
    request.replica_id = replica_id
    return request


def with_leader(scenario: Callable[[Led], Awaitable[None]], count: int = 1) -> None:
    """Run a scenario with a broker that leads topic t in epoch 1, with one follower, in sync."""

    async def main() -> None:
        harness = Harness()
        async with harness.broker(replica_lag_time_max_ms=600_000) as broker:
            client = await harness.connect_as_broker(broker)
            await client.create_topic("t", count)
            led = Led(harness, broker, client)
            led.assign(count=count)
            await scenario(led)

    run_virtually(main())


def test_a_follower_reads_to_the_end_and_a_consumer_what_is_committed() -> None:
    async def scenario(led: Led) -> None:
        await led.client.produce("t", b"x", acks=1)
        assert not (await led.client.fetch("t", 0, max_wait_ms=0)).records
        data = await led.fetch_as(FOLLOWER, 0)
        assert data.records
        assert data.high_watermark == 0
        assert (await led.fetch_as(FOLLOWER, 1)).high_watermark == 1
        assert (await led.client.fetch("t", 0, max_wait_ms=0)).records

    with_leader(scenario)


def test_an_acks_all_produce_and_a_consumer_wait_for_the_follower() -> None:
    async def scenario(led: Led) -> None:
        producer, consumer = await led.harness.connect(), await led.harness.connect()
        produced = producer.start(produce_request("t", batch_of(b"x")), 9)
        consumed = consumer.start(fetch_request("t", 0, max_wait_ms=30_000), 12)
        await asyncio.sleep(1)
        assert (await led.fetch_as(FOLLOWER, 0)).records
        await asyncio.sleep(1)
        assert not produced.done()
        assert not consumed.done()
        waiting = led.client.start(follower_request(FOLLOWER, 1, max_wait_ms=500), 12)
        await asyncio.sleep(0.1)
        assert not waiting.done(), "the follower is counted before it is answered"
        assert (await produced).responses[0].partition_responses[0].error_code == 0  # type: ignore[attr-defined]
        assert (await consumed).responses[0].partitions[0].records  # type: ignore[attr-defined]

    with_leader(scenario)


def test_a_follower_waits_for_the_end_of_the_log_and_not_for_the_high_watermark() -> None:
    async def scenario(led: Led) -> None:
        led.assign(leader_epoch=2, replicas=(HERE, FOLLOWER, SECOND), in_sync=(HERE, FOLLOWER, SECOND))
        await led.client.produce("t", b"x", acks=1)
        await led.fetch_as(FOLLOWER, 0)
        waiting = led.client.start(follower_request(FOLLOWER, 1, max_wait_ms=30_000), 12)
        other = Led(led.harness, led.broker, await led.harness.connect_as_broker(led.broker))
        await other.fetch_as(SECOND, 1)
        await asyncio.sleep(1)
        assert led.partition().log.high_watermark == 1
        assert not waiting.done()
        await other.client.produce("t", b"y", acks=1)
        await asyncio.sleep(0.1)
        assert waiting.done()
        assert (await waiting).responses[0].partitions[0].records  # type: ignore[attr-defined]

    with_leader(scenario)


def test_a_fetch_that_diverges_or_is_out_of_range_does_not_count() -> None:
    async def scenario(led: Led) -> None:
        for _ in range(3):
            await led.client.produce("t", b"x", acks=1)
        led.assign(leader_epoch=4)
        await led.client.produce("t", b"y", acks=1)
        diverged = await led.fetch_as(FOLLOWER, 4, last_fetched_epoch=2)
        assert diverged.diverging_epoch is not None
        assert (diverged.diverging_epoch.epoch, diverged.diverging_epoch.end_offset) == (1, 3)
        assert (await led.fetch_as(FOLLOWER, 9)).error_code == OffsetOutOfRange.code
        assert (await led.fetch_as(FOLLOWER, 4, last_fetched_epoch=9)).error_code == OffsetOutOfRange.code
        assert led.partition().log.high_watermark == 0
        await led.fetch_as(FOLLOWER, 4, last_fetched_epoch=4)
        assert led.partition().log.high_watermark == 4

    with_leader(scenario)


def test_a_fetch_counts_for_all_its_partitions_where_one_of_them_is_read_by_a_worker() -> None:
    async def scenario(led: Led) -> None:
        producer = await led.harness.connect()
        led.partition().configure(replace(led.partition().log.settings, segment_bytes=1048576))
        for index in range(30):
            await producer.produce("t", b"%d" % index + b"x" * 100_000, acks=1)
        await producer.produce("t", b"y", acks=1, partition=1)
        led.harness.disk.uncached_paths.add("/logs/t-0/00000000000000000000.log")
        reader = SessionReader(led.client, replica_id=FOLLOWER)
        reader.wants("t", 0, 3)
        reader.wants("t", 1, 1)
        with patch.object(Fetch, "read_in_worker", autospec=True, side_effect=Fetch.read_in_worker) as read_in_worker:
            responses = await reader.fetch()
        assert read_in_worker.call_count == 1
        assert responses[0].records
        assert [led.partition(index).log.high_watermark for index in range(2)] == [3, 1]
        assert responses[1].high_watermark == 1

    with_leader(scenario, count=2)


def test_a_fetch_of_another_leader_epoch_does_not_count() -> None:
    async def scenario(led: Led) -> None:
        await led.client.produce("t", b"x", acks=1)
        led.assign(leader_epoch=2)
        old = await led.fetch_as(FOLLOWER, 1, current_leader_epoch=1)
        new = await led.fetch_as(FOLLOWER, 1, current_leader_epoch=3)
        assert (old.error_code, new.error_code) == (FencedLeaderEpoch.code, UnknownLeaderEpoch.code)
        assert led.partition().log.high_watermark == 0

    with_leader(scenario)


def test_strangers_and_earlier_lives_of_a_follower_are_refused() -> None:
    async def scenario(led: Led) -> None:
        await led.client.produce("t", b"x", acks=1)
        assert (await led.fetch_as(SECOND, 1)).error_code == UnknownLeaderEpoch.code
        topic_id = topic_id_of(led.broker, "t")
        for replica_epoch, error in ((70, 0), (60, NotLeaderOrFollower.code), (71, 0)):
            reader = SessionReader(led.client, version=IDS_VERSION, replica_id=FOLLOWER, replica_epoch=replica_epoch)
            reader.wants("t", 0, 0, topic_id)
            assert errors(await reader.fetch()) == {0: error}
        assert led.partition().log.high_watermark == 0

    with_leader(scenario)


def test_an_offset_between_high_watermark_and_end_is_waited_for() -> None:
    async def scenario(led: Led) -> None:
        for value in (b"a", b"b"):
            await led.client.produce("t", value, acks=1)
        consumer = await led.harness.connect()
        waiting = consumer.start(fetch_request("t", 1, max_wait_ms=30_000), 12)
        await asyncio.sleep(1)
        await led.fetch_as(FOLLOWER, 1)
        await asyncio.sleep(1)
        assert led.partition().log.high_watermark == 1
        assert not waiting.done(), "what was committed lies below the offset"
        await led.fetch_as(FOLLOWER, 2)
        data = (await waiting).responses[0].partitions[0]  # type: ignore[attr-defined]
        assert data.error_code == 0
        assert data.records

    with_leader(scenario)


def test_a_log_may_start_in_the_middle_of_a_batch() -> None:
    async def scenario(led: Led) -> None:
        await led.client.produce("t", b"a", b"b", b"c", acks=1)
        await led.fetch_as(FOLLOWER, 3)
        deleting = asyncio.get_running_loop().create_task(delete_records(await led.harness.connect(), 1))
        await asyncio.sleep(0.1)
        for data in (await led.fetch_as(FOLLOWER, 1), await led.client.fetch("t", 1)):
            assert data.log_start_offset == 1
            assert read_header(bytes(data.records or b"")).base_offset == 0  # type: ignore[arg-type]
        follower = led.partition().require_leader().followers[FOLLOWER]
        assert follower.log_end_offset == 1
        assert (await led.fetch_as(FOLLOWER, 0)).error_code == OffsetOutOfRange.code
        assert follower.log_end_offset == 1, "a fetch out of range does not count"
        await led.client.ask(with_log_start(follower_request(FOLLOWER, 3), 1), 12, FetchResponse)
        await deleting

    with_leader(scenario)


def with_log_start(request: FetchRequest, log_start_offset: int) -> FetchRequest:
    request.topics[0].partitions[0].log_start_offset = log_start_offset
    return request


def test_a_follower_of_a_thousand_partitions_of_which_one_moves_costs_what_one_costs() -> None:
    async def scenario(led: Led) -> None:
        producer = await led.harness.connect()
        reader = SessionReader(led.client, replica_id=FOLLOWER)
        for index in range(1000):
            reader.wants("t", index, 0)
        await reader.fetch()
        with counted_reads() as reads:
            for offset in range(10):
                waiting = reader.start(max_wait_ms=30_000)
                await asyncio.sleep(0.1)
                assert not waiting.done()
                produced = producer.start(produce_request("t", batch_of(b"x"), 700), 9)
                assert list(await waiting) == [700]
                reader.wants("t", 700, offset + 1)
                confirming = reader.start(max_wait_ms=1)
                assert (await produced).responses[0].partition_responses[0].error_code == 0  # type: ignore[attr-defined]
                assert (await confirming)[700].high_watermark == offset + 1
            assert set(reads) == {700}
            assert len(reads) <= 4 * 10  # two requests a round, each read when it comes and when it is answered

    with_leader(scenario, count=1000)


def test_a_high_watermark_that_another_follower_raised_is_in_the_next_response() -> None:
    async def scenario(led: Led) -> None:
        led.assign(leader_epoch=2, replicas=(HERE, FOLLOWER, SECOND), in_sync=(HERE, FOLLOWER, SECOND), count=2)
        reader = SessionReader(led.client, replica_id=FOLLOWER)
        for index in range(2):
            reader.wants("t", index, 0)
        await reader.fetch()
        other = Led(led.harness, led.broker, await led.harness.connect_as_broker(led.broker))
        await other.client.produce("t", b"x", acks=1)
        assert list(await reader.fetch()) == [0]
        reader.wants("t", 0, 1)
        assert await reader.fetch() == {}
        await other.fetch_as(SECOND, 1)
        responses = await reader.fetch(max_wait_ms=500)
        assert [(index, data.high_watermark) for index, data in responses.items()] == [(0, 1)]
        assert await reader.fetch() == {}

    with_leader(scenario, count=2)


def test_a_follower_that_names_its_high_watermark_is_answered_with_a_newer_one() -> None:
    """R23: consumers wait there. Once answered, it is not answered again for the same."""

    async def scenario(led: Led) -> None:
        led.assign(leader_epoch=2, replicas=(HERE, FOLLOWER, SECOND), in_sync=(HERE, FOLLOWER, SECOND))
        loop = asyncio.get_running_loop()
        reader = SessionReader(led.client, replica_id=FOLLOWER, version=18)
        topic_id = topic_id_of(led.broker, "t")
        reader.wants("t", 0, 0, topic_id)
        await reader.fetch()
        other = Led(led.harness, led.broker, await led.harness.connect_as_broker(led.broker))
        await other.client.produce("t", b"x", acks=1)
        assert list(await reader.fetch()) == [0]
        reader.wants("t", 0, 1, topic_id, high_watermark=0)
        waiting = asyncio.create_task(reader.fetch(max_wait_ms=500))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        await other.fetch_as(SECOND, 1)
        started = loop.time()
        assert [data.high_watermark for data in (await waiting).values()] == [1]
        assert loop.time() - started < 0.1
        assert await reader.fetch(max_wait_ms=500) == {}
        assert loop.time() - started >= 0.5

    with_leader(scenario)


def test_a_session_counts_the_offset_of_a_partition_it_does_not_name_again() -> None:
    async def scenario(led: Led) -> None:
        await led.client.produce("t", b"x", acks=1)
        led.assign(leader_epoch=2)
        reader = SessionReader(led.client, replica_id=FOLLOWER)
        reader.wants("t", 0, 1)
        await reader.fetch()
        assert led.partition().log.high_watermark == 1
        led.assign(leader_epoch=3)
        assert led.partition().leader is not None
        assert not led.partition().leader.followers[FOLLOWER].has_fetched  # type: ignore[union-attr]
        await reader.fetch()
        assert led.partition().leader.followers[FOLLOWER].has_fetched  # type: ignore[union-attr]

    with_leader(scenario)


def test_a_broker_that_may_have_been_replaced_serves_consumers_only() -> None:
    async def scenario(led: Led) -> None:
        await led.client.produce("t", b"x", acks=1)
        await led.fetch_as(FOLLOWER, 1)
        await led.client.produce("t", b"y", acks=1)
        led.harness.stores[-1].lease.end = 0.0
        assert led.broker._services.is_fenced
        rejected = await led.fetch_as(FOLLOWER, 2)
        assert rejected.error_code == NotLeaderOrFollower.code
        assert (await led.client.produce("t", b"z", acks=1)).error_code == NotLeaderOrFollower.code
        assert led.partition().log.high_watermark == 1
        assert led.partition().log.log_end_offset == 2
        assert (await led.client.fetch("t", 0)).records

    with_leader(scenario)


def test_the_wrong_broker_says_who_leads() -> None:
    async def scenario(led: Led) -> None:
        peer = RegisteredBroker(FOLLOWER, (Endpoint("PLAINTEXT", "elsewhere", 9095, "PLAINTEXT"),), rack="r")
        cluster = led.broker._services.cluster
        cluster.apply(replace(cluster.image, brokers={**cluster.image.brokers, FOLLOWER: peer}))
        led.assign(leader=FOLLOWER, leader_epoch=7)
        topic_id = topic_id_of(led.broker, "t")
        for version in (15, 16, 18):
            reader = SessionReader(led.client, version=version)
            reader.wants("t", 0, 0, topic_id, current_leader_epoch=1)
            response = await led.client.ask(reader.request(), version, FetchResponse)
            (data,) = response.responses[0].partitions
            assert data.error_code == FencedLeaderEpoch.code
            if version < 16:
                assert (data.current_leader, response.node_endpoints) == (None, [])
            else:
                assert data.current_leader is not None
                assert (data.current_leader.leader_id, data.current_leader.leader_epoch) == (FOLLOWER, 7)
                assert response.node_endpoints == [NodeEndpoint(FOLLOWER, "elsewhere", 9095, "r")]
        for version in (9, 10, 12):
            answer = await led.client.ask(produce_request("t", batch_of(b"x")), version, ProduceResponse)
            (produced,) = answer.responses[0].partition_responses
            assert produced.error_code == NotLeaderOrFollower.code
            if version < 10:
                assert (produced.current_leader, answer.node_endpoints) == (None, [])
            else:
                assert produced.current_leader is not None
                assert (produced.current_leader.leader_id, produced.current_leader.leader_epoch) == (FOLLOWER, 7)
                assert [node.node_id for node in answer.node_endpoints] == [FOLLOWER]

    with_leader(scenario)


def test_a_follower_reports_which_producers_it_knows() -> None:
    """Tools look for hanging transactions broker by broker (KIP-664)."""

    async def scenario(led: Led) -> None:
        batch = batch_of(b"x", producer_id=7, producer_epoch=2, base_sequence=0)
        await led.client.ask(produce_request("t", batch, acks=1), 9, ProduceResponse)
        led.assign(leader=FOLLOWER, leader_epoch=2)
        request = DescribeProducersRequest(topics=[TopicRequest("t", [0])])
        [described] = (await led.client.ask(request, 0, DescribeProducersResponse)).topics[0].partitions
        assert (described.error_code, [each.producer_id for each in described.active_producers]) == (0, [7])

    with_leader(scenario)


def test_a_produce_that_waits_learns_of_the_new_leader() -> None:
    async def scenario(led: Led) -> None:
        waiting = led.client.start(produce_request("t", batch_of(b"x")), 10)
        await asyncio.sleep(1)
        led.assign(leader=FOLLOWER, leader_epoch=2)
        response = (await waiting).responses[0].partition_responses[0]  # type: ignore[attr-defined]
        assert (response.error_code, response.base_offset) == (NotLeaderOrFollower.code, -1)
        assert (response.current_leader.leader_id, response.current_leader.leader_epoch) == (FOLLOWER, 2)

    with_leader(scenario)


def test_a_produce_that_nobody_confirms_times_out() -> None:
    async def scenario(led: Led) -> None:
        response = await led.client.produce("t", b"x")
        assert (response.error_code, response.base_offset) == (RequestTimedOut.code, -1)
        assert led.partition().log.log_end_offset == 1

    with_leader(scenario)


def test_too_few_replicas_in_sync_refuse_a_write_before_and_after_the_append() -> None:
    async def scenario(led: Led) -> None:
        log = led.partition().log
        led.partition().configure(replace(log.settings, min_insync_replicas=2))
        waiting = led.client.start(produce_request("t", batch_of(b"x")), 9)
        await asyncio.sleep(1)
        leader = led.partition().require_leader()
        led.partition().perform(leader, leader.on_written((HERE,), 2, led.harness.clock.now_ms()))
        await asyncio.sleep(0.1)
        assert waiting.done()
        response = (await waiting).responses[0].partition_responses[0]  # type: ignore[attr-defined]
        assert response.error_code == NotEnoughReplicasAfterAppend.code
        assert (await led.client.produce("t", b"y")).error_code == NotEnoughReplicas.code
        assert log.log_end_offset == 1

    with_leader(scenario)


async def latest_offset(client: Client, replica_id: int, version: int = 11) -> tuple[int, int]:
    wanted = ListOffsetsPartition(partition_index=0, timestamp=-1)
    request = ListOffsetsRequest(
        replica_id=replica_id, topics=[ListOffsetsTopic(name="t", partitions=[wanted])], timeout_ms=1000
    )
    response = (await client.ask(request, version, ListOffsetsResponse)).topics[0].partitions[0]
    return response.error_code, response.offset


def test_followers_get_the_end_of_the_log_and_consumers_what_is_committed() -> None:
    async def scenario(led: Led) -> None:
        await led.client.produce("t", b"x", acks=1)
        assert await latest_offset(led.client, FOLLOWER) == (0, 1)
        assert await latest_offset(led.client, -1) == (0, 0)

    with_leader(scenario)


def test_a_new_leader_that_does_not_know_what_is_committed_does_not_guess() -> None:
    async def scenario(led: Led) -> None:
        await led.client.produce("t", b"x", acks=1)
        led.assign(leader_epoch=2)
        assert await latest_offset(led.client, -1) == (OffsetNotAvailable.code, -1)
        assert await latest_offset(led.client, -1, version=4) == (LeaderNotAvailable.code, -1)
        assert await latest_offset(led.client, FOLLOWER) == (0, 1)
        await led.fetch_as(FOLLOWER, 1)
        assert await latest_offset(led.client, -1) == (0, 1)

    with_leader(scenario)


@pytest.mark.parametrize("replica_id", [-1, FOLLOWER])
def test_the_latest_epoch_ends_at_the_end_of_the_log(replica_id: int) -> None:
    async def scenario(led: Led) -> None:
        await led.client.produce("t", b"x", acks=1)
        wanted = OffsetForLeaderPartition(partition=0, current_leader_epoch=1, leader_epoch=1)
        request = OffsetForLeaderEpochRequest(
            replica_id=replica_id, topics=[OffsetForLeaderTopic(topic="t", partitions=[wanted])]
        )
        response = await led.client.ask(request, 4, OffsetForLeaderEpochResponse)
        (found,) = response.topics[0].partitions
        assert (found.error_code, found.leader_epoch, found.end_offset) == (0, 1, 1)

    with_leader(scenario)
