"""Produce in transactions, WriteTxnMarkers, and what readers of committed records get, through the wire protocol.

The coordinator is a fake that answers when and what a test wants.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import pytest

from tests.server.harness import Client, Harness, batch_of, fetch_request
from tidelog.errors import (
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    InvalidProducerEpoch,
    InvalidRequest,
    InvalidTxnState,
    KafkaError,
    NotEnoughReplicas,
    OutOfOrderSequenceNumber,
    TransactionAbortable,
    TransactionalIdAuthorizationFailed,
    TransactionCoordinatorFenced,
    UnknownTopicOrPartition,
)
from tidelog.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducerState,
    TopicRequest,
)
from tidelog.protocol.messages.fetch import FetchResponse, PartitionData
from tidelog.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tidelog.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tidelog.protocol.record_batch import split_batches
from tidelog.protocol.records import records_of
from tidelog.runtime.deferred import Deferred
from tidelog.runtime.virtual_time import run_virtually
from tidelog.server.broker import Broker
from tidelog.storage.verification_guards import VerificationGuard
from tidelog.transactions.verifier import Verdict, Verification
from tidelog.types import TopicPartition

PRODUCER = 7
VERIFIES, KNOWS_ABORTABLE, ADDS = 10, 11, 12


class Question(NamedTuple):
    asked: Verification
    partition: TopicPartition
    verdict: Deferred[Verdict]


class FakeVerifier:
    """Confirms everything at once, or keeps the questions for the test."""

    def __init__(self) -> None:
        self.is_enabled = True
        self.confirms_at_once = True
        self.asked: list[Question] = []

    def verify_guarded(
        self, asked: Verification, partition: TopicPartition, guard: VerificationGuard
    ) -> Deferred[Verdict]:
        question = Question(asked, partition, Deferred())
        self.asked.append(question)
        if self.confirms_at_once:
            asyncio.get_running_loop().call_soon(question.verdict.resolve, None)
        return question.verdict

    async def close(self) -> None: ...

    def answer(self, error: KafkaError | None = None) -> None:
        questions, self.asked = self.asked, []
        for question in questions:
            question.verdict.resolve(error)


class Stage:
    def __init__(self, client: Client, other: Client, broker: Broker) -> None:
        self.client = client
        self.coordinator = other
        """Its connection: answers on one connection come in order, and a produce may be waiting on the other."""
        self.verifier = FakeVerifier()
        self._broker = broker._membership.broker
        broker._services.coordinators.verifier = self.verifier  # type: ignore[assignment]

    def start(
        self,
        sequence: int,
        *,
        count: int = 1,
        epoch: int = 0,
        version: int = VERIFIES,
        producer_id: int = PRODUCER,
        partition: int = 0,
        transactional_id: str | None = "tx",
        acks: int = -1,
    ) -> asyncio.Task[PartitionProduceResponse]:
        """A batch in a transaction, on its way."""
        batch = batch_of(
            *[b"%d" % (sequence + number) for number in range(count)],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        data = PartitionProduceData(index=partition, records=memoryview(batch))
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=acks,
            timeout_ms=30_000,
            topic_data=[TopicProduceData(name="t", partition_data=[data])],
        )
        answer = self.client.start(request, version)

        async def wait() -> PartitionProduceResponse:
            response = await answer
            assert isinstance(response, ProduceResponse)
            return response.responses[0].partition_responses[0]

        return asyncio.ensure_future(wait())

    async def send(self, sequence: int, **options: int) -> tuple[int, int]:
        """Error and base offset."""
        response = await self.start(sequence, **options)  # type: ignore[arg-type]
        return response.error_code, response.base_offset

    async def end(
        self,
        *,
        commit: bool = True,
        epoch: int = 0,
        coordinator_epoch: int = 0,
        transaction_version: int = 0,
        partitions: tuple[int, ...] = (0,),
        topic: str = "t",
        producer_id: int = PRODUCER,
        version: int = 2,
    ) -> list[int]:
        """The error of each partition."""
        marker = WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=epoch,
            transaction_result=commit,
            topics=[WritableTxnMarkerTopic(topic, list(partitions))],
            coordinator_epoch=coordinator_epoch,
            transaction_version=transaction_version,
        )
        request = WriteTxnMarkersRequest([marker], broker_id=self._broker.id, broker_epoch=self._broker.epoch)
        response = await self.coordinator.ask(request, version, WriteTxnMarkersResponse)
        [result] = response.markers
        assert result.producer_id == producer_id
        return [partition.error_code for partition in result.topics[0].partitions]

    async def fetch_committed(self, offset: int = 0, **options: int) -> PartitionData:
        request = fetch_request("t", offset, isolation_level=1, max_wait_ms=0, **options)
        response = await self.client.ask(request, 12, FetchResponse)
        return response.responses[0].partitions[0]

    async def committed(self, offset: int = 0, **options: int) -> list[bytes | None]:
        """What a consumer makes of it: records of aborted transactions are left out, up to their markers."""
        found: list[bytes | None] = []
        while True:
            data = await self.fetch_committed(offset, **options)
            assert data.error_code == 0
            aborted = sorted((each.first_offset, each.producer_id) for each in data.aborted_transactions or [])
            batches = list(split_batches(bytes(data.records or b"")))  # type: ignore[arg-type]
            if not batches:
                return found
            dropping: set[int] = set()
            for header, batch in batches:
                while aborted and aborted[0][0] <= header.last_offset:
                    dropping.add(aborted.pop(0)[1])
                if header.is_control:
                    dropping.discard(header.producer_id)
                elif not (header.is_transactional and header.producer_id in dropping):
                    found += [record.value for record in records_of(batch) if record.offset >= offset]
                offset = header.end_offset

    async def producers(self) -> list[ProducerState]:
        request = DescribeProducersRequest([TopicRequest("t", [0])])
        response = await self.client.ask(request, 0, DescribeProducersResponse)
        return response.topics[0].partitions[0].active_producers


def on_stage(scenario: Callable[[Stage], Awaitable[None]]) -> None:
    async def main() -> None:
        harness = Harness()
        async with harness.broker() as broker:
            client = await harness.connect()
            await client.create_topic("t", partitions=2)
            await scenario(Stage(client, await harness.connect("coordinator"), broker))

    run_virtually(main())


# ---- verification


def test_the_first_batch_of_a_transaction_in_a_partition_is_verified_and_no_other() -> None:
    async def scenario(stage: Stage) -> None:
        assert [await stage.send(sequence) for sequence in range(3)] == [(0, 0), (0, 1), (0, 2)]
        assert [(each.asked, each.partition) for each in stage.verifier.asked] == [
            (Verification("tx", PRODUCER, 0, adds=False), TopicPartition("t", 0))
        ]
        await stage.send(0, partition=1)
        assert len(stage.verifier.asked) == 2
        await stage.end()
        await stage.send(3)
        assert len(stage.verifier.asked) == 3

    on_stage(scenario)


def test_newer_producers_have_the_partition_added() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.send(0, version=ADDS)
        assert [each.asked.adds for each in stage.verifier.asked] == [True]

    on_stage(scenario)


@pytest.mark.parametrize(
    ("version", "error", "expected"),
    [
        (VERIFIES, InvalidTxnState(), InvalidTxnState),
        (VERIFIES, TransactionAbortable(), InvalidTxnState),
        (KNOWS_ABORTABLE, TransactionAbortable(), TransactionAbortable),
        (VERIFIES, CoordinatorLoadInProgress(), NotEnoughReplicas),
        (VERIFIES, ConcurrentTransactions(), NotEnoughReplicas),
        (ADDS, ConcurrentTransactions(), ConcurrentTransactions),
        (ADDS, InvalidProducerEpoch(), InvalidProducerEpoch),
    ],
)
def test_a_batch_that_is_not_confirmed_is_not_appended(
    version: int, error: KafkaError, expected: type[KafkaError]
) -> None:
    async def scenario(stage: Stage) -> None:
        stage.verifier.confirms_at_once = False
        sending = stage.start(0, version=version)
        await asyncio.sleep(1)
        stage.verifier.answer(error)
        assert (await sending).error_code == expected.code
        assert (await stage.fetch_committed()).high_watermark == 0

    on_stage(scenario)


def test_a_marker_between_confirmation_and_append_keeps_the_batch_out() -> None:
    """The hanging transaction of KIP-890: nobody would ever end what the late batch begins."""

    async def scenario(stage: Stage) -> None:
        stage.verifier.confirms_at_once = False
        sending = stage.start(0)
        await asyncio.sleep(1)
        assert await stage.end(commit=False) == [0]
        stage.verifier.answer()
        assert (await sending).error_code == InvalidTxnState.code
        data = await stage.fetch_committed()
        assert (data.high_watermark, data.last_stable_offset) == (1, 1)

    on_stage(scenario)


@pytest.mark.parametrize(("transaction_version", "expected"), [(2, 0), (1, InvalidTxnState.code)])
def test_a_late_marker_of_the_transaction_before_does_not_keep_the_next_one_out(
    transaction_version: int, expected: int
) -> None:
    """Recognised by its epoch, where every transaction has one of its own; otherwise it is better to be careful."""

    async def scenario(stage: Stage) -> None:
        await stage.send(0, epoch=1, version=ADDS)
        stage.verifier.asked.clear()
        stage.verifier.confirms_at_once = False
        sending = [stage.start(sequence, epoch=2, version=ADDS) for sequence in (0, 1)]
        await asyncio.sleep(1)
        assert await stage.end(epoch=2, transaction_version=transaction_version) == [0]
        stage.verifier.answer()
        responses = await asyncio.gather(*sending)
        assert [response.error_code for response in responses] == [expected] * 2

    on_stage(scenario)


def test_batches_that_were_sent_one_after_the_other_keep_their_order() -> None:
    async def scenario(stage: Stage) -> None:
        stage.verifier.confirms_at_once = False
        sending = [stage.start(sequence) for sequence in range(4)]
        await asyncio.sleep(1)
        stage.verifier.answer()
        assert [(response.error_code, response.base_offset) for response in await asyncio.gather(*sending)] == [
            (0, number) for number in range(4)
        ]

    on_stage(scenario)


def test_a_later_batch_does_not_take_the_place_of_one_that_must_be_sent_again() -> None:
    """It gets the same error. Out of order, as from Apache Kafka, it would end the transaction of librdkafka."""

    async def scenario(stage: Stage) -> None:
        stage.verifier.confirms_at_once = False
        first, second = stage.start(0), stage.start(1)
        await asyncio.sleep(1)
        [one, two] = stage.verifier.asked
        one.verdict.resolve(CoordinatorLoadInProgress())
        two.verdict.resolve(None)
        assert (await first).error_code == NotEnoughReplicas.code
        assert (await second).error_code == NotEnoughReplicas.code
        stage.verifier.confirms_at_once = True
        assert [await stage.send(0), await stage.send(1)] == [(0, 0), (0, 1)]

    on_stage(scenario)


def test_a_producer_that_is_out_of_order_at_the_beginning_learns_where_the_log_starts() -> None:
    async def scenario(stage: Stage) -> None:
        rejected = await stage.start(5, version=ADDS)
        assert (rejected.error_code, rejected.log_start_offset) == (OutOfOrderSequenceNumber.code, 0)

    on_stage(scenario)


def test_a_transaction_without_its_name_or_producer_is_refused() -> None:
    async def scenario(stage: Stage) -> None:
        nameless = await stage.start(0, transactional_id=None)
        assert nameless.error_code == TransactionalIdAuthorizationFailed.code
        assert (await stage.start(0, producer_id=-1)).error_code == InvalidTxnState.code
        assert stage.verifier.asked == []

    on_stage(scenario)


def test_verification_can_be_switched_off_for_producers_that_add_partitions_themselves() -> None:
    async def scenario(stage: Stage) -> None:
        stage.verifier.is_enabled = False
        await stage.send(0)
        assert stage.verifier.asked == []
        await stage.send(0, partition=1, version=ADDS)
        assert len(stage.verifier.asked) == 1

    on_stage(scenario)


def test_a_failed_append_without_acknowledgement_closes_the_connection_after_verification_too() -> None:
    async def scenario(stage: Stage) -> None:
        stage.verifier.confirms_at_once = False
        sending = stage.start(0, acks=0)
        await asyncio.sleep(1)
        stage.verifier.answer(InvalidTxnState())
        await asyncio.sleep(1)
        assert stage.client.closed_because is not None
        sending.cancel()

    on_stage(scenario)


# ---- markers


def test_a_marker_ends_the_transaction_and_may_be_repeated() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.send(0, count=3)
        assert await stage.committed() == []
        assert await stage.end() == [0]
        assert await stage.committed() == [b"0", b"1", b"2"]
        assert await stage.end() == [0]
        assert await stage.committed() == [b"0", b"1", b"2"]

    on_stage(scenario)


@pytest.mark.parametrize("version", [1, 2])
def test_the_state_of_a_producer_has_its_transaction_and_coordinator(version: int) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.send(0, count=3)
        [state] = await stage.producers()
        assert (state.producer_id, state.producer_epoch, state.last_sequence) == (PRODUCER, 0, 2)
        assert (state.coordinator_epoch, state.current_txn_start_offset) == (-1, 0)
        await stage.end(coordinator_epoch=4, version=version)
        [state] = await stage.producers()
        assert (state.coordinator_epoch, state.current_txn_start_offset, state.last_sequence) == (4, -1, 2)
        await stage.send(3)
        [state] = await stage.producers()
        assert (state.coordinator_epoch, state.current_txn_start_offset) == (4, 4)

    on_stage(scenario)


def test_markers_that_must_not_be_written_are_refused_one_by_one() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.send(0, epoch=3)
        assert await stage.end(epoch=3, coordinator_epoch=5, partitions=(0, 1, 9)) == [
            0,
            0,
            UnknownTopicOrPartition.code,
        ]
        assert await stage.end(epoch=3, coordinator_epoch=4) == [TransactionCoordinatorFenced.code]
        assert await stage.end(epoch=2, coordinator_epoch=5) == [InvalidProducerEpoch.code]
        assert await stage.end(topic="nowhere") == [UnknownTopicOrPartition.code]
        assert await stage.end(producer_id=-1) == [InvalidRequest.code]
        assert (await stage.fetch_committed()).high_watermark == 2

    on_stage(scenario)


def test_under_transactions_version_two_a_marker_of_the_open_transactions_own_epoch_is_late() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.send(0, epoch=1, version=ADDS)
        assert await stage.end(epoch=2, transaction_version=2) == [0]
        assert await stage.end(epoch=2, transaction_version=2) == [0]
        await stage.send(0, epoch=2, version=ADDS)
        assert await stage.end(epoch=2, transaction_version=2) == [InvalidProducerEpoch.code]
        assert await stage.end(epoch=3, transaction_version=2, commit=False) == [0]
        assert await stage.committed() == [b"0"]

    on_stage(scenario)


def test_a_request_without_markers_is_answered() -> None:
    async def scenario(stage: Stage) -> None:
        response = await stage.client.ask(WriteTxnMarkersRequest([]), 1, WriteTxnMarkersResponse)
        assert response.markers == []

    on_stage(scenario)


# ---- reading what is committed


def test_readers_of_committed_records_never_see_aborted_ones_from_whichever_offset_they_start() -> None:
    async def scenario(stage: Stage) -> None:
        """Three producers take turns; every second transaction is aborted, and they overlap."""
        expected: list[tuple[int, bytes]] = []
        sequences = {1: 0, 2: 0, 3: 0}
        offset = 0

        async def write(producer_id: int, *, is_committed: bool) -> None:
            nonlocal offset
            sequence = sequences[producer_id]
            assert await stage.send(sequence, producer_id=producer_id) == (0, offset)
            if is_committed:
                expected.append((offset, b"%d" % sequence))
            sequences[producer_id] += 1
            offset += 1

        async def end(producer_id: int, *, is_committed: bool) -> None:
            nonlocal offset
            assert await stage.end(producer_id=producer_id, commit=is_committed) == [0]
            offset += 1

        for turn in range(12):
            first, second = 1 + turn % 3, 1 + (turn + 1) % 3
            await write(first, is_committed=turn % 2 == 0)
            await write(second, is_committed=turn % 2 == 1)
            await write(first, is_committed=turn % 2 == 0)
            await end(first, is_committed=turn % 2 == 0)
            await end(second, is_committed=turn % 2 == 1)
        for start in range(offset):
            for limit in (1, 300, 1_000_000):
                found = await stage.committed(start, partition_max_bytes=limit)
                assert found == [value for at, value in expected if at >= start]

    on_stage(scenario)


def test_the_aborted_transactions_of_a_fetch_are_those_of_the_records_in_it() -> None:
    async def scenario(stage: Stage) -> None:
        for sequence in range(200):
            await stage.send(sequence, count=1)
            await stage.end(commit=False)
        data = await stage.fetch_committed(0, partition_max_bytes=1)
        assert len(data.aborted_transactions or []) < 60  # one index entry, some 4 KB, further at the most
        assert [each.first_offset for each in data.aborted_transactions or []][:2] == [0, 2]
        data = await stage.fetch_committed(300, partition_max_bytes=1)
        assert [each.first_offset for each in data.aborted_transactions or []][:2] == [300, 302]
        assert (await stage.fetch_committed(400)).aborted_transactions == []

    on_stage(scenario)


# ---- features


@pytest.mark.parametrize("version", [3, 4])
def test_clients_learn_which_transactions_and_groups_the_cluster_has(version: int) -> None:
    async def scenario(stage: Stage) -> None:
        request = ApiVersionsRequest(client_software_name="a-client", client_software_version="1.0")
        response = await stage.client.ask(request, version, ApiVersionsResponse)
        finalized = {
            each.name: (each.min_version_level, each.max_version_level) for each in response.finalized_features
        }
        assert finalized == {"group.version": (1, 1), "transaction.version": (2, 2)}
        assert response.finalized_features_epoch == 0
        supported = {each.name: (each.min_version, each.max_version) for each in response.supported_features}
        assert supported["tidelog.transaction.groups"] == (1, 1)
        levels_from_zero = {"group.version": (0, 1), "transaction.version": (0, 2)}
        assert supported.items() >= (levels_from_zero if version >= 4 else {}).items()
        assert version >= 4 or all(minimum > 0 for minimum, _ in supported.values())

    on_stage(scenario)
