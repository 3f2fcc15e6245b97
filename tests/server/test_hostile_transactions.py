"""Transactional producers that do whatever comes to their minds, with identities of now, of before and of others.

Whatever they do, every request is answered, nothing fails inside, and in the end no transaction hangs: all of them are
decided, and readers of committed records reach the end of every partition.
"""

import asyncio
import logging
from collections import Counter
from copy import copy
from random import Random

import pytest

from tests.server.harness import Client, Harness, batch_of, produce_request
from tidelog.errors import NO_ERROR, ConcurrentTransactions, InvalidTxnState, ProducerFenced, UnknownServerError
from tidelog.groups.transaction_guards import OffsetCommitGuard
from tidelog.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from tidelog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from tidelog.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tidelog.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from tidelog.protocol.messages.produce import ProduceResponse
from tidelog.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from tidelog.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tidelog.replicated.memory_shard import MemoryReply
from tidelog.runtime.virtual_time import run_virtually
from tidelog.transactions.transaction import ProducerIdentity

TOPIC, GROUP = "tides", "tidelog-group-batches"
PARTITIONS = 2
STEPS = 60
WORKERS = 3
TIMEOUT_MS = 10_000
CONSUMER_GROUPS = ("readers", "others")
MANY = 10**9
MEMBERS_IN_USE = 2


class Hostile:
    """Several at once: each on a connection of its own, all of them as the same producers."""

    client: Client

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.identities: dict[str, list[ProducerIdentity]] = {"one": [], "two": [], GROUP: []}
        """All that were ever given, by transactional id."""
        self.sequences: Counter[tuple[ProducerIdentity, int]] = Counter()
        self.codes: set[int] = set()
        self.written: list[tuple[ProducerIdentity, int]] = []

    def choose(self) -> tuple[str, ProducerIdentity]:
        """Mostly those of now."""
        transactional_id = self.random.choice([*list(self.identities)[-MEMBERS_IN_USE:], "one", "two", GROUP])
        known = self.identities[transactional_id] or [ProducerIdentity(MANY, 0)]
        identity = known[-1] if self.random.random() < 0.9 else self.random.choice(known)
        if self.random.random() < 0.05:
            identity = ProducerIdentity(identity.producer_id, self.random.choice((-1, 0, 7, 32766, 32767)))
        return transactional_id, identity

    async def step(self) -> None:
        await self.random.choice(
            (self.init, self.init_member, self.add, *[self.write] * 5, self.offsets, self.end, self.end)
            if self.random.random() < 0.93
            else (self.markers, self.rest)
        )()

    def note(self, code: int) -> bool:
        self.codes.add(code)
        return code == NO_ERROR

    async def init(self, transactional_id: str | None = None) -> None:
        chosen, identity = self.choose()
        request = InitProducerIdRequest(transactional_id or chosen, TIMEOUT_MS)
        version = self.random.randint(3, 5)
        if self.random.random() < 0.4:
            request.producer_id, request.producer_epoch = identity
        response = await self.client.ask(request, version, InitProducerIdResponse)
        if self.note(response.error_code):
            found = self.identities.setdefault(str(request.transactional_id), [])
            found.append(ProducerIdentity(response.producer_id, response.producer_epoch))

    async def init_member(self) -> None:
        drivers = self.identities[GROUP]
        if drivers:
            driver = drivers[-1] if self.random.random() < 0.8 else self.random.choice(drivers)
            await self.init(f"{GROUP}#{driver.producer_id}.{driver.producer_epoch}-{self.random.randint(1, 3)}")

    async def add(self) -> None:
        transactional_id, identity = self.choose()
        topics = [AddPartitionsToTxnTopic(TOPIC, [self.random.randrange(PARTITIONS + 1)])]
        if self.random.random() < 0.5:
            old = AddPartitionsToTxnRequest([], transactional_id, *identity, topics)
            response = await self.client.ask(old, self.random.randint(0, 3), AddPartitionsToTxnResponse)
            results = response.results_by_topic_v3_and_below
        else:
            transaction = AddPartitionsToTxnTransaction(
                transactional_id, *identity, verify_only=self.random.random() < 0.3, topics=topics
            )
            response = await self.client.ask(
                AddPartitionsToTxnRequest([transaction]), self.random.randint(4, 5), AddPartitionsToTxnResponse
            )
            results = response.results_by_transaction[0].topic_results
        self.note(results[0].results_by_partition[0].partition_error_code)

    async def write(self) -> None:
        transactional_id, identity = self.choose()
        place = identity, self.random.randrange(PARTITIONS)
        batch = batch_of(
            b"x",
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            base_sequence=self.sequences[place] if self.random.random() < 0.9 else self.random.randrange(3),
            is_transactional=self.random.random() < 0.95,
        )
        request = produce_request(TOPIC, batch, partition=place[1])
        request.transactional_id = transactional_id
        response = await self.client.ask(request, self.random.choice((9, 11, 12, 12)), ProduceResponse)
        if self.note(response.responses[0].partition_responses[0].error_code):
            self.written.append(place)
            self.sequences[place] += 1

    async def offsets(self) -> None:
        transactional_id, identity = self.choose()
        group = self.random.choice(CONSUMER_GROUPS)
        if self.random.random() < 0.4:
            request = AddOffsetsToTxnRequest(transactional_id, *identity, group)
            response = await self.client.ask(request, self.random.randint(0, 4), AddOffsetsToTxnResponse)
            self.note(response.error_code)
            return
        topics = [TxnOffsetCommitRequestTopic(TOPIC, [TxnOffsetCommitRequestPartition(0, 1)])]
        commit = TxnOffsetCommitRequest(transactional_id, group, *identity, topics=topics)
        committed = await self.client.ask(commit, self.random.randint(3, 5), TxnOffsetCommitResponse)
        self.note(committed.topics[0].partitions[0].error_code)

    async def end(self) -> None:
        transactional_id, identity = self.choose()
        request = EndTxnRequest(transactional_id, *identity, self.random.random() < 0.6)
        version = self.random.choice((1, 3, 4, 5, 5, 5))
        if transactional_id == GROUP:
            version, request.group_batch_id = 5, self.random.randint(-1, 9)
            if request.committed:
                request.group_winners = [each for each in self.identities if "#" in each and self.random.random() < 0.3]
        response = await self.client.ask(request, version, EndTxnResponse)
        if self.note(response.error_code) and version >= 5:
            self.identities[transactional_id].append(ProducerIdentity(response.producer_id, response.producer_epoch))

    async def markers(self) -> None:
        _, identity = self.choose()
        marker = WritableTxnMarker(
            *identity,
            transaction_result=self.random.random() < 0.5,
            topics=[WritableTxnMarkerTopic(TOPIC, [self.random.randrange(PARTITIONS + 1)])],
            coordinator_epoch=self.random.choice((-1, 0)),  # a later one would fence the coordinator, as in Kafka
            transaction_version=self.random.choice((0, 2)),
        )
        response = await self.client.ask(WriteTxnMarkersRequest([marker]), 2, WriteTxnMarkersResponse)
        self.note(response.markers[0].topics[0].partitions[0].error_code)

    async def rest(self) -> None:
        await asyncio.sleep(self.random.choice((0.1, 1, TIMEOUT_MS / 1000)))


async def _both_ends(client: Client, topic: str, partitions: int) -> list[tuple[int, int]]:
    """For those who read everything, and those who read what is committed."""
    ends = []
    for isolation_level in (0, 1):
        wanted = ListOffsetsTopic(topic, [ListOffsetsPartition(each, -1, -1) for each in range(partitions)])
        response = await client.ask(ListOffsetsRequest(-1, isolation_level, [wanted]), 7, ListOffsetsResponse)
        ends.append([each.offset for each in response.topics[0].partitions])
    return list(zip(*ends, strict=True))


async def _torment(harness: Harness, hostile: Hostile) -> None:
    async def work() -> None:
        worker = copy(hostile)
        worker.client = await harness.connect()
        for _ in range(STEPS):
            await worker.step()
            await asyncio.sleep(hostile.random.choice((0, 0, 0.01)))
        assert worker.client.closed_because is None

    await asyncio.gather(*(work() for _ in range(WORKERS)))


async def _check_end(client: Client) -> None:
    for topic, partitions in ((TOPIC, PARTITIONS), ("__consumer_offsets", 2)):
        for end, committed_end in await _both_ends(client, topic, partitions):
            assert committed_end == end, f"a transaction hangs in {topic}"
    unfinished = ListTransactionsRequest(state_filters=["Ongoing", "PrepareCommit", "PrepareAbort"])
    assert (await client.ask(unfinished, 1, ListTransactionsResponse)).transaction_states == []


async def _play(seed: int) -> Hostile:
    """In two acts, between which the broker is restarted."""
    harness, hostile = Harness(), Hostile(seed)
    settings = {"transaction_state_log_num_partitions": 2, "offsets_topic_num_partitions": 2}
    async with harness.broker(**settings):
        client = await harness.connect()
        await client.create_topic(TOPIC, partitions=PARTITIONS)
        for key_type in (0, 1):
            request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["x"])
            await client.ask(request, 4, FindCoordinatorResponse)
        await _torment(harness, hostile)
    async with harness.broker(**settings):
        await _torment(harness, hostile)
        await asyncio.sleep(10 * TIMEOUT_MS / 1000)
        await _check_end(await harness.connect())
    return hostile


@pytest.mark.parametrize("seed", range(5))
def test_nothing_hangs_whatever_transactional_producers_do(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    hostile = run_virtually(_play(seed))
    assert len(hostile.written) >= 10  # 30 on average; with some seeds hardly half as many
    assert {NO_ERROR, ConcurrentTransactions.code, ProducerFenced.code, InvalidTxnState.code} < hostile.codes
    assert UnknownServerError.code not in hostile.codes
    assert [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR] == []


@pytest.mark.parametrize(("transaction_version", "is_broken"), [(0, True), (2, False)])
def test_offsets_do_not_join_a_transaction_whose_end_says_nothing_about_its_epoch(
    transaction_version: int, is_broken: bool
) -> None:
    """A producer that ends its transactions as of old and commits offsets as of now: epochs show nothing then."""

    async def main() -> None:
        harness = Harness()
        async with harness.broker(offsets_topic_num_partitions=1) as broker:
            client = await harness.connect()
            request = FindCoordinatorRequest(key_type=0, coordinator_keys=["readers"])
            await client.ask(request, 4, FindCoordinatorResponse)
            await asyncio.sleep(1)
            guard, reply = OffsetCommitGuard(7, own_epoch=6), MemoryReply()
            broker._services.groups.guard_transaction("readers", guard, reply)
            assert isinstance(reply.outcome, TxnOffsetCommitResponse)
            topics = [WritableTxnMarkerTopic("__consumer_offsets", [0])]
            marker = WritableTxnMarker(7, 6, False, topics, 0, transaction_version)
            response = await client.ask(WriteTxnMarkersRequest([marker]), 2, WriteTxnMarkersResponse)
            assert response.markers[0].topics[0].partitions[0].error_code == NO_ERROR
            assert guard.is_broken is is_broken

    run_virtually(main())
