"""OffsetCommit, OffsetFetch, OffsetDelete and TxnOffsetCommit through the wire protocol, in all their versions."""

import asyncio
from typing import Any

import pytest

from tests.server.harness import Client, Harness, with_broker
from tidelog.errors import (
    GroupIdNotFound,
    IllegalGeneration,
    InvalidGroupId,
    InvalidTxnState,
    NotCoordinator,
    OffsetMetadataTooLarge,
    TransactionAbortable,
    UnknownTopicId,
    UnknownTopicOrPartition,
    UnstableOffsetCommit,
)
from tidelog.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from tidelog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from tidelog.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tidelog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tidelog.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from tidelog.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from tidelog.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from tidelog.replicated.partition_keys import partition_for
from tidelog.runtime.virtual_time import run_virtually
from tidelog.types import ZERO_UUID, TopicPartition, Uuid

GROUP = "readers"
TOPIC = "orders"
NOBODY = bytes(15) + b"\7"


async def prepare(client: Client, partitions: int = 2) -> Uuid:
    """A topic, and the coordinators of groups and transactions; the topic's id."""
    await client.create_topic(TOPIC, partitions)
    for key_type in (0, 1):
        await wait_for_coordinator(client, key_type)
    request = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])
    return (await client.ask(request, 12, MetadataResponse)).topics[0].topic_id


async def wait_for_coordinator(client: Client, key_type: int = 0) -> None:
    for _ in range(100):
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[GROUP])
        found = (await client.ask(request, 6, FindCoordinatorResponse)).coordinators[0]
        if found.error_code == 0:
            return
        await asyncio.sleep(0.1)
    raise AssertionError("no coordinator")


def commit_request(
    *wanted: tuple[int, int],
    topic: str = TOPIC,
    topic_id: Uuid = ZERO_UUID,
    group: str = GROUP,
    metadata: str = "note",
    generation: int = -1,
    member: str = "",
) -> OffsetCommitRequest:
    partitions = [OffsetCommitRequestPartition(partition, offset, 3, metadata) for partition, offset in wanted]
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member,
        topics=[OffsetCommitRequestTopic(topic, topic_id, partitions)],
    )


async def commit(client: Client, *wanted: tuple[int, int], version: int = 9, **options: Any) -> dict[int, int]:
    response = await client.ask(commit_request(*wanted, **options), version, OffsetCommitResponse)
    return {each.partition_index: each.error_code for topic in response.topics for each in topic.partitions}


async def fetch(
    client: Client,
    *partitions: int,
    group: str = GROUP,
    topic: str = TOPIC,
    topic_id: Uuid = ZERO_UUID,
    version: int = 9,
    is_stable: bool = False,
) -> tuple[int, dict[int, Any]]:
    """The error of the group, and per partition the offset or the error as a text. Without partitions, all."""
    topics = [OffsetFetchRequestTopic(topic, partitions)] if partitions else None
    named = [OffsetFetchRequestTopics(topic, topic_id, partitions)] if partitions else None
    request = OffsetFetchRequest(
        group_id=group,
        topics=topics,
        groups=[OffsetFetchRequestGroup(group, None, -1, named)],
        require_stable=is_stable,
    )
    response = await client.ask(request, version, OffsetFetchResponse)
    found: Any = response.groups[0] if version >= 8 else response
    return found.error_code, {
        each.partition_index: f"error {each.error_code}" if each.error_code else each.committed_offset
        for topic in found.topics
        for each in topic.partitions
    }


class TestCommittingAndFetching:
    @pytest.mark.parametrize("version", range(2, 11))
    def test_what_was_committed_is_fetched(self, version: int) -> None:
        async def scenario(harness: Harness, client: Client) -> None:
            topic_id = await prepare(client)
            assert await commit(client, (0, 5), (1, 6), version=version, topic_id=topic_id) == {0: 0, 1: 0}
            assert await fetch(client, 0, 1) == (0, {0: 5, 1: 6})

        with_broker(scenario)

    def test_commits_that_arrive_together_are_written_together_and_answered_in_their_order(self) -> None:
        async def scenario() -> None:
            harness = Harness()
            async with harness.broker() as broker:
                client = await harness.connect()
                await prepare(client)
                await commit(client, (0, 1))
                partition = TopicPartition("__consumer_offsets", partition_for(GROUP, 50))
                traffic = broker.replicas.get(*partition).traffic
                writes_before, responses_before = traffic.produces, len(client.order_of_responses)
                responses = [client.start(commit_request((0, offset)), 9) for offset in range(2, 52)]
                await asyncio.gather(*responses)
                order = client.order_of_responses[responses_before:]
                assert order == sorted(order)
                assert await fetch(client, 0) == (0, {0: 51})
                assert traffic.produces - writes_before < 10

        run_virtually(scenario())

    @pytest.mark.parametrize("version", range(1, 11))
    def test_offsets_are_fetched_in_every_version(self, version: int) -> None:
        async def scenario(harness: Harness, client: Client) -> None:
            topic_id = await prepare(client, partitions=3)
            await commit(client, (0, 5), (1, 6))
            found = await fetch(client, 0, 1, 2, version=version, topic_id=topic_id, is_stable=version >= 7)
            assert found == (0, {0: 5, 1: 6, 2: -1})
            if version >= 2:
                assert await fetch(client, version=version) == (0, {0: 5, 1: 6})

        with_broker(scenario)

    def test_metadata_and_leader_epoch_come_back(self) -> None:
        async def scenario(harness: Harness, client: Client) -> None:
            await prepare(client)
            await commit(client, (0, 5))
            request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(GROUP, None, -1, None)])
            response = await client.ask(request, 9, OffsetFetchResponse)
            (found,) = response.groups[0].topics[0].partitions
            assert (found.committed_offset, found.committed_leader_epoch, found.metadata) == (5, 3, "note")

        with_broker(scenario)

    def test_several_groups_are_fetched_at_once(self) -> None:
        async def scenario(harness: Harness, client: Client) -> None:
            await prepare(client)
            for number in range(5):
                await commit(client, (0, number), group=f"g{number}")
            groups = [OffsetFetchRequestGroup(f"g{number}", None, -1, None) for number in (3, 1, 4, 9)]
            response = await client.ask(OffsetFetchRequest(groups=groups), 9, OffsetFetchResponse)
            assert [group.group_id for group in response.groups] == ["g3", "g1", "g4", "g9"]
            offsets = [[each.partitions[0].committed_offset for each in group.topics] for group in response.groups]
            assert offsets == [[3], [1], [4], []]

        with_broker(scenario)

    def test_offsets_are_there_after_a_restart(self) -> None:
        async def main() -> None:
            harness = Harness()
            async with harness.broker():
                client = await harness.connect()
                await prepare(client)
                await commit(client, (0, 5))
            async with harness.broker():
                client = await harness.connect()
                await wait_for_coordinator(client)
                assert await fetch(client, 0) == (0, {0: 5})

        run_virtually(main())


class TestRejections:
    def test_a_broker_that_coordinates_nothing_says_so(self) -> None:
        async def scenario(harness: Harness, client: Client) -> None:
            await client.create_topic(TOPIC)
            assert await commit(client, (0, 5)) == {0: NotCoordinator.code}
            assert await fetch(client, 0) == (NotCoordinator.code, {})
            assert await fetch(client, 0, version=5) == (NotCoordinator.code, {})
            assert await fetch(client, 0, version=1) == (0, {0: f"error {NotCoordinator.code}"})

        with_broker(scenario)

    @pytest.mark.parametrize("version", [2, 9, 10])
    def test_partitions_that_do_not_exist_are_refused_one_by_one(self, version: int) -> None:
        async def scenario(harness: Harness, client: Client) -> None:
            topic_id = await prepare(client)
            found = await commit(client, (0, 5), (2, 6), (-1, 7), version=version, topic_id=topic_id)
            assert found == {0: 0, 2: UnknownTopicOrPartition.code, -1: UnknownTopicOrPartition.code}
            assert await fetch(client) == (0, {0: 5})

        with_broker(scenario)

    def test_topics_that_do_not_exist_are_refused(self) -> None:
        async def scenario(harness: Harness, client: Client) -> None:
            await prepare(client)
            assert await commit(client, (0, 5), topic="nothing") == {0: UnknownTopicOrPartition.code}
            assert await commit(client, (0, 5), version=10, topic_id=NOBODY) == {0: UnknownTopicId.code}
            assert await fetch(client, 0, version=10, topic_id=NOBODY) == (0, {0: f"error {UnknownTopicId.code}"})
            assert await fetch(client) == (0, {})

        with_broker(scenario)

    def test_a_topic_that_is_refused_twice_is_returned_once(self) -> None:
        async def scenario(harness: Harness, client: Client) -> None:
            await prepare(client)
            request = commit_request((0, 5), topic_id=NOBODY)
            request.topics.append(commit_request((1, 5), topic_id=NOBODY).topics[0])
            (topic,) = (await client.ask(request, 10, OffsetCommitResponse)).topics
            assert [(each.partition_index, each.error_code) for each in topic.partitions] == [
                (0, UnknownTopicId.code),
                (1, UnknownTopicId.code),
            ]

        with_broker(scenario)

    def test_bad_commits_get_kafkas_errors(self) -> None:
        async def scenario(harness: Harness, client: Client) -> None:
            await prepare(client)
            assert await commit(client, (0, 5), metadata="x" * 5000) == {0: OffsetMetadataTooLarge.code}
            assert await commit(client, (0, 5), generation=1, member="m") == {0: GroupIdNotFound.code}
            assert await commit(client, (0, 5), generation=1, member="m", version=8) == {0: IllegalGeneration.code}
            assert await commit(client) == {}

        with_broker(scenario)


class TestDeleting:
    async def delete(self, client: Client, *partitions: int, group: str = GROUP, topic: str = TOPIC) -> tuple[int, Any]:
        wanted = [OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(each) for each in partitions])]
        response = await client.ask(OffsetDeleteRequest(group, wanted), 0, OffsetDeleteResponse)
        return response.error_code, {
            each.partition_index: each.error_code for found in response.topics for each in found.partitions
        }

    def test_offsets_are_deleted(self) -> None:
        async def scenario(harness: Harness, client: Client) -> None:
            await prepare(client)
            await commit(client, (0, 5), (1, 6))
            assert await self.delete(client, 0, 7) == (0, {0: 0, 7: UnknownTopicOrPartition.code})
            assert await fetch(client) == (0, {1: 6})

        with_broker(scenario)

    @pytest.mark.parametrize("others", [(), (7,)])
    def test_a_topic_that_is_named_twice_is_answered_whole(self, others: tuple[int, ...]) -> None:
        async def scenario(harness: Harness, client: Client) -> None:
            await prepare(client)
            await commit(client, (0, 5), (1, 6))
            wanted = [
                OffsetDeleteRequestTopic(TOPIC, [OffsetDeleteRequestPartition(each) for each in indexes])
                for indexes in ((0,), (1, *others))
            ]
            response = await client.ask(OffsetDeleteRequest(GROUP, wanted), 0, OffsetDeleteResponse)
            answered = [each.partition_index for topic in response.topics for each in topic.partitions]
            assert sorted(answered) == [0, 1, *others]

        with_broker(scenario)

    def test_bad_deletions_get_kafkas_errors(self) -> None:
        async def scenario(harness: Harness, client: Client) -> None:
            await prepare(client)
            assert await self.delete(client, 0) == (GroupIdNotFound.code, {})
            assert await self.delete(client, 0, group="") == (InvalidGroupId.code, {})

        with_broker(scenario)

    def test_offsets_of_a_deleted_topic_are_forgotten(self) -> None:
        async def scenario(harness: Harness, client: Client) -> None:
            await prepare(client)
            await client.create_topic("payments")
            await commit(client, (0, 5))
            await commit(client, (0, 6), topic="payments")
            request = DeleteTopicsRequest(topics=[DeleteTopicState(name=TOPIC)], timeout_ms=10_000)
            await client.ask(request, 6, DeleteTopicsResponse)
            await asyncio.sleep(1)
            response = await client.ask(
                OffsetFetchRequest(groups=[OffsetFetchRequestGroup(GROUP, None, -1, None)]), 9, OffsetFetchResponse
            )
            assert [topic.name for topic in response.groups[0].topics] == ["payments"]

        with_broker(scenario)


class TestTransactions:
    async def begin(self, client: Client) -> InitProducerIdResponse:
        request = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=60_000)
        for _ in range(100):
            found = await client.ask(request, 4, InitProducerIdResponse)
            if found.error_code == 0:
                return found
            await asyncio.sleep(0.1)
        raise AssertionError(found)

    async def add(self, client: Client, producer: InitProducerIdResponse) -> None:
        request = AddOffsetsToTxnRequest("t", producer.producer_id, producer.producer_epoch, GROUP)
        assert (await client.ask(request, 3, AddOffsetsToTxnResponse)).error_code == 0

    async def commit(self, client: Client, producer: Any, offset: int, *, version: int, **options: Any) -> list[int]:
        values = {"topic": TOPIC, "partition": 0, "generation": -1, "member": "", "group": GROUP, **options}
        wanted = TxnOffsetCommitRequestPartition(values["partition"], offset, -1, "")
        request = TxnOffsetCommitRequest(
            transactional_id="t",
            group_id=values["group"],
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            generation_id=values["generation"],
            member_id=values["member"],
            topics=[TxnOffsetCommitRequestTopic(values["topic"], [wanted])],
        )
        response = await client.ask(request, version, TxnOffsetCommitResponse)
        return [each.error_code for topic in response.topics for each in topic.partitions]

    async def end(self, client: Client, producer: Any, *, is_committed: bool, version: int) -> None:
        request = EndTxnRequest("t", producer.producer_id, producer.producer_epoch, is_committed)
        assert (await client.ask(request, version, EndTxnResponse)).error_code == 0

    @pytest.mark.parametrize("version", range(6))
    def test_offsets_count_when_the_transaction_is_committed(self, version: int) -> None:
        async def scenario(harness: Harness, client: Client) -> None:
            await prepare(client)
            producer = await self.begin(client)
            if version < 5:
                await self.add(client, producer)
            assert await self.commit(client, producer, 5, version=version) == [0]
            assert await fetch(client, 0, is_stable=True) == (0, {0: f"error {UnstableOffsetCommit.code}"})
            assert await fetch(client, 0) == (0, {0: -1})
            await self.end(client, producer, is_committed=True, version=3)
            await asyncio.sleep(1)
            assert await fetch(client, 0, is_stable=True) == (0, {0: 5})

        with_broker(scenario)

    def test_offsets_of_an_aborted_transaction_never_count(self) -> None:
        async def scenario(harness: Harness, client: Client) -> None:
            await prepare(client)
            producer = await self.begin(client)
            assert await self.commit(client, producer, 5, version=5) == [0]
            await self.end(client, producer, is_committed=False, version=5)
            await asyncio.sleep(1)
            assert await fetch(client, 0, is_stable=True) == (0, {0: -1})

        with_broker(scenario)

    @pytest.mark.parametrize(("version", "error"), [(3, InvalidTxnState), (4, TransactionAbortable)])
    def test_a_group_that_was_not_added_is_refused(self, version: int, error: Any) -> None:
        async def scenario(harness: Harness, client: Client) -> None:
            await prepare(client)
            producer = await self.begin(client)
            assert await self.commit(client, producer, 5, version=version) == [error.code]
            assert await fetch(client, 0, is_stable=True) == (0, {0: -1})

        with_broker(scenario)

    def test_bad_commits_get_kafkas_errors(self) -> None:
        async def scenario(harness: Harness, client: Client) -> None:
            await prepare(client)
            producer = await self.begin(client)
            await self.add(client, producer)
            unknown = UnknownTopicOrPartition.code
            assert await self.commit(client, producer, 5, version=3, topic="nothing") == [unknown]
            assert await self.commit(client, producer, 5, version=3, partition=9) == [unknown]
            assert await self.commit(client, producer, 5, version=3, group="") == [InvalidGroupId.code]
            found = await self.commit(client, producer, 5, version=3, generation=1, member="m")
            assert found == [IllegalGeneration.code]

        with_broker(scenario)


def test_all_offsets_of_a_group_that_is_named_repeatedly_are_returned_once() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await prepare(client)
        await commit(client, (0, 5))
        named = OffsetFetchRequestGroup(GROUP, None, -1, [OffsetFetchRequestTopics(TOPIC, ZERO_UUID, [1])])
        groups = [OffsetFetchRequestGroup(GROUP, None, -1, None)] * 1000 + [named, named]
        response = await client.ask(OffsetFetchRequest(groups=groups), 9, OffsetFetchResponse)
        found = [
            [each.partition_index for topic in group.topics for each in topic.partitions] for group in response.groups
        ]
        assert found == [[0], [1], [1]]

    with_broker(scenario)
