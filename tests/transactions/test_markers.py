"""Markers reach every partition, whatever happens to leaders and connections on the way."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from tests.controller.peer import HOST, Peer
from tidelog.client.network.broker_links import BrokerLinks
from tidelog.cluster.image import BrokerRegistration, ClusterImage, PartitionRegistration, Topic
from tidelog.config.listeners import Endpoint
from tidelog.errors import (
    InvalidProducerEpoch,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    TransactionCoordinatorFenced,
)
from tidelog.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tidelog.protocol.structs import Request, Response
from tidelog.runtime.memory_network import MemoryNetwork
from tidelog.runtime.virtual_time import VirtualClock, VirtualTimeLoop, run_virtually
from tidelog.transactions.markers import MAX_MARKERS_PER_REQUEST, MISSING_TOPIC_GRACE_S, Marker, MarkerSender
from tidelog.types import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


class LeaderOf:
    """A broker that writes markers, and refuses what a test says."""

    def __init__(self) -> None:
        self.peer = Peer(self._answer)
        self.rejections: dict[TopicPartition, int] = {}
        self.is_silent = False
        self.written: list[tuple[int, TopicPartition, bool]] = []

    @property
    def requests(self) -> list[WriteTxnMarkersRequest]:
        return [request for request in self.peer.requests if isinstance(request, WriteTxnMarkersRequest)]

    def _answer(self, request: Request) -> Response | None:
        assert isinstance(request, WriteTxnMarkersRequest)
        results = []
        for marker in request.markers:
            topics = []
            for topic in marker.topics:
                partitions = []
                for index in topic.partition_indexes:
                    partition = TopicPartition(topic.name, index)
                    code = self.rejections.get(partition, 0)
                    if code == 0:
                        self.written.append((marker.producer_id, partition, marker.transaction_result))
                    partitions.append(WritableTxnMarkerPartitionResult(index, code))
                topics.append(WritableTxnMarkerTopicResult(topic.name, partitions))
            results.append(WritableTxnMarkerResult(marker.producer_id, topics))
        return None if self.is_silent else WriteTxnMarkersResponse(results)


class Harness:
    """Brokers 1 and 2, which lead as the image says, and a sender."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        self.loop = loop
        self.network = MemoryNetwork()
        self.leaders = {1: LeaderOf(), 2: LeaderOf()}
        endpoints = {each: Endpoint("PLAINTEXT", HOST, each, "PLAINTEXT") for each in self.leaders}
        self.image = ClusterImage(
            "c", brokers={each: BrokerRegistration(each, (endpoints[each],)) for each in self.leaders}
        )
        self.lead({A0: 1, A1: 1, B0: 2})
        self.links = BrokerLinks(self.network, "test", lambda: self.image)
        self.sender = MarkerSender(self.links, VirtualClock(loop), lambda: self.image)
        self.written: list[TopicPartition] = []

    def lead(self, leaders: dict[TopicPartition, int]) -> None:
        topics: dict[str, list[PartitionRegistration]] = {}
        for (topic, index), leader in sorted(leaders.items()):
            topics.setdefault(topic, []).append(PartitionRegistration(index, (1, 2), leader, 0, (1, 2)))
        self.image = replace(
            self.image,
            topics={name: Topic(name, name.encode().ljust(16), tuple(several)) for name, several in topics.items()},
        )

    def see(self, leaders: dict[TopicPartition, int]) -> None:
        self.lead(leaders)
        self.sender.on_image(self.image)

    def send(self, *partitions: TopicPartition, producer_id: int = 7, coordinator_partition: int = 0) -> None:
        marker = Marker(producer_id, 3, 5, True, 2, frozenset(partitions), coordinator_partition)
        self.sender.send(marker, self.written.extend)


def with_harness(scenario: Callable[[Harness], Awaitable[None]]) -> None:
    async def main() -> None:
        harness = Harness()
        for port, leader in harness.leaders.items():
            await leader.peer.listen(harness.network, port)
        await scenario(harness)
        await harness.sender.close()
        harness.links.close()

    run_virtually(main())


def test_every_leader_gets_its_part_of_the_marker() -> None:
    async def scenario(harness: Harness) -> None:
        harness.send(A0, A1, B0)
        assert harness.sender.pending_count == 3
        await asyncio.sleep(0.1)
        assert sorted(harness.written) == [A0, A1, B0]
        assert harness.sender.pending_count == 0
        [request] = harness.leaders[1].requests
        [marker] = request.markers
        assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (7, 3, 5)
        assert (marker.transaction_version, marker.transaction_result) == (2, True)
        assert [(topic.name, list(topic.partition_indexes)) for topic in marker.topics] == [("a", [0, 1])]
        assert [topic.name for topic in harness.leaders[2].requests[0].markers[0].topics] == ["b"]

    with_harness(scenario)


def test_a_marker_without_partitions_is_written_at_once() -> None:
    async def scenario(harness: Harness) -> None:
        marked: list[frozenset[TopicPartition]] = []
        harness.sender.send(Marker(7, 3, 5, True, 2, frozenset(), 0), marked.append)
        assert marked == [frozenset()]

    with_harness(scenario)


def test_one_request_is_under_way_and_the_rest_goes_together_with_the_next() -> None:
    async def scenario(harness: Harness) -> None:
        for producer_id in range(MAX_MARKERS_PER_REQUEST + 5):
            harness.send(A0, producer_id=producer_id)
        await asyncio.sleep(0.1)
        assert [len(request.markers) for request in harness.leaders[1].requests] == [MAX_MARKERS_PER_REQUEST, 5]
        assert len(harness.leaders[1].peer.connections) == 1

    with_harness(scenario)


def test_two_markers_of_one_producer_are_never_in_one_request() -> None:
    """The answer could not tell them apart."""

    async def scenario(harness: Harness) -> None:
        harness.send(A0)
        harness.send(A1)
        await asyncio.sleep(0.1)
        assert [len(request.markers) for request in harness.leaders[1].requests] == [1, 1]
        assert sorted(harness.written) == [A0, A1]

    with_harness(scenario)


def test_a_refused_marker_is_repeated_until_it_is_written_and_holds_up_no_other() -> None:
    async def scenario(harness: Harness) -> None:
        harness.leaders[1].rejections[A0] = NotEnoughReplicas.code
        harness.send(A0, A1)
        await asyncio.sleep(60)
        assert harness.written == [A1]
        assert 30 < harness.sender.oldest_age_s <= 60
        harness.send(A1, producer_id=8)
        await asyncio.sleep(0.01)
        assert harness.written == [A1, A1]
        asked = len(harness.leaders[1].requests)
        assert 20 < asked < 60
        harness.leaders[1].rejections.clear()
        await asyncio.sleep(3)
        assert harness.written == [A1, A1, A0]
        assert harness.sender.oldest_age_s == 0
        await asyncio.sleep(60)
        assert len(harness.leaders[1].requests) == asked + 1

    with_harness(scenario)


def test_a_new_leader_is_asked_at_once_though_the_old_one_never_answers() -> None:
    async def scenario(harness: Harness) -> None:
        harness.leaders[1].is_silent = True
        harness.send(A0, A1)
        await asyncio.sleep(1)
        assert harness.written == []
        harness.see({A0: 2, A1: 1, B0: 2})
        await asyncio.sleep(0.01)
        assert harness.written == [A0]
        harness.leaders[1].is_silent = False
        await asyncio.sleep(40)
        assert sorted(harness.written) == [A0, A1]

    with_harness(scenario)


def test_a_new_leader_is_asked_at_once_though_the_old_one_refused() -> None:
    async def scenario(harness: Harness) -> None:
        harness.leaders[1].rejections[A0] = NotLeaderOrFollower.code
        harness.send(A0)
        await asyncio.sleep(10)
        harness.see({A0: 2, A1: 1, B0: 2})
        await asyncio.sleep(0.01)
        assert harness.written == [A0]

    with_harness(scenario)


def test_a_broker_that_is_gone_is_tried_again_and_its_successor_takes_over() -> None:
    async def scenario(harness: Harness) -> None:
        harness.leaders[1].peer.leave()
        harness.send(A0, A1)
        await asyncio.sleep(20)
        assert harness.written == []
        harness.see({A0: 2, A1: -1, B0: 2})
        await asyncio.sleep(0.01)
        assert harness.written == [A0]
        await asyncio.sleep(20)
        harness.see({A0: 2, A1: 2, B0: 2})
        await asyncio.sleep(0.01)
        assert harness.written == [A0, A1]

    with_harness(scenario)


def test_a_partition_whose_topic_is_deleted_counts_as_written_and_one_that_lost_its_leader_does_not() -> None:
    async def scenario(harness: Harness) -> None:
        harness.leaders[1].rejections = {A0: NotLeaderOrFollower.code, A1: NotLeaderOrFollower.code}
        harness.leaders[2].is_silent = True
        harness.send(A0, B0)
        await asyncio.sleep(1)
        harness.see({A0: -1, A1: 1})
        await asyncio.sleep(3 * MISSING_TOPIC_GRACE_S)
        assert harness.written == [B0]
        await asyncio.sleep(100)
        assert harness.written == [B0]

    with_harness(scenario)


def test_a_topic_that_is_heard_of_a_little_later_gets_its_marker() -> None:
    async def scenario(harness: Harness) -> None:
        harness.see({A0: 1})
        harness.send(B0)
        await asyncio.sleep(MISSING_TOPIC_GRACE_S / 2)
        harness.see({A0: 1, B0: 2})
        await asyncio.sleep(0.01)
        assert harness.written == [B0]
        assert harness.leaders[2].written == [(7, B0, True)]

    with_harness(scenario)


def test_what_another_coordinator_sends_now_is_forgotten() -> None:
    async def scenario(harness: Harness) -> None:
        harness.leaders[1].rejections = {A0: NotEnoughReplicas.code}
        harness.leaders[2].is_silent = True
        harness.send(A0, B0, coordinator_partition=4)
        harness.send(A0, producer_id=8, coordinator_partition=5)
        await asyncio.sleep(1)
        harness.sender.forget(4)
        assert harness.sender.pending_count == 1
        harness.leaders[1].rejections.clear()
        harness.leaders[2].is_silent = False
        await asyncio.sleep(60)
        assert harness.written == [A0]
        assert harness.leaders[1].written == [(8, A0, True)]

    with_harness(scenario)


def test_a_producer_epoch_that_has_been_overtaken_counts_as_written_and_a_fenced_coordinator_does_not() -> None:
    async def scenario(harness: Harness) -> None:
        harness.leaders[1].rejections = {A0: InvalidProducerEpoch.code, A1: TransactionCoordinatorFenced.code}
        harness.send(A0, A1)
        await asyncio.sleep(10)
        assert harness.written == [A0]
        assert harness.sender.pending_count == 1

    with_harness(scenario)


def test_a_listener_that_fails_does_not_stop_the_others() -> None:
    async def scenario(harness: Harness) -> None:
        def fail(partitions: frozenset[TopicPartition]) -> None:
            raise RuntimeError("a bug")

        harness.sender.send(Marker(1, 3, 5, True, 2, frozenset({A0}), 0), fail)
        harness.send(A1)
        await asyncio.sleep(5)
        assert harness.written == [A1]

    with_harness(scenario)
