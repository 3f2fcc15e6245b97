"""Asking coordinators whether transactions go on: who is asked, what together, and what becomes of the answers."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.controller.peer import HOST, Peer
from tidelog.client.network.broker_links import BrokerLinks
from tidelog.cluster.image import BrokerRegistration, ClusterImage, PartitionRegistration, Topic
from tidelog.cluster.topic_names import TRANSACTION_TOPIC
from tidelog.config.broker import BrokerSettings
from tidelog.config.listeners import Endpoint
from tidelog.errors import (
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTxnState,
    KafkaError,
    NotCoordinator,
    NotEnoughReplicas,
    ProducerFenced,
    TransactionAbortable,
)
from tidelog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from tidelog.protocol.record_batch import read_header
from tidelog.protocol.records import Record, build_batch
from tidelog.protocol.structs import Request, Response
from tidelog.runtime.memory_network import MemoryNetwork
from tidelog.runtime.virtual_time import VirtualClock, VirtualTimeLoop, run_virtually
from tidelog.storage.verification_guards import VerificationGuard
from tidelog.transactions.verifier import TransactionVerifier, Verification, error_for_producer
from tidelog.types import TopicPartition

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
HEADER = read_header(build_batch([Record(0, 0, None, b"v")], producer_id=7, producer_epoch=0, base_sequence=0))


class Coordinator:
    """Broker 1 leads all partitions of the transaction state."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        self.loop = loop
        self.peer = Peer(self._answer)
        self.error_code = 0
        self.codes: dict[TopicPartition, list[int]] = {}
        self.is_silent = False
        network = MemoryNetwork()
        self.network = network
        self.image = ClusterImage(
            "c", brokers={1: BrokerRegistration(1, (Endpoint("PLAINTEXT", HOST, 1, "PLAINTEXT"),))}
        )
        self.lead(1)
        self.links = BrokerLinks(network, "test", lambda: self.image)
        self.verifier = TransactionVerifier(self.links, VirtualClock(loop), lambda: self.image, BrokerSettings)

    def lead(self, leader: int) -> None:
        partitions = tuple(PartitionRegistration(index, (1,), leader, 0, (1,)) for index in range(50))
        self.image = self.image.with_topics(Topic(TRANSACTION_TOPIC, bytes(16), partitions))

    @property
    def requests(self) -> list[AddPartitionsToTxnRequest]:
        return [request for request in self.peer.requests if isinstance(request, AddPartitionsToTxnRequest)]

    def _answer(self, request: Request) -> Response | None:
        assert isinstance(request, AddPartitionsToTxnRequest)
        if self.is_silent:
            return None
        results = [
            AddPartitionsToTxnResult(
                transaction.transactional_id,
                [
                    AddPartitionsToTxnTopicResult(
                        topic.name,
                        [
                            AddPartitionsToTxnPartitionResult(index, self._code(topic.name, index))
                            for index in topic.partitions
                        ],
                    )
                    for topic in transaction.topics
                ],
            )
            for transaction in request.transactions
        ]
        return AddPartitionsToTxnResponse(error_code=self.error_code, results_by_transaction=results)

    def _code(self, topic: str, index: int) -> int:
        """The next one that the test wants, and then none."""
        codes = self.codes.get(TopicPartition(topic, index), [])
        return codes.pop(0) if codes else 0

    async def verify(
        self, *partitions: TopicPartition, adds: bool = False, transactional_id: str = "t", epoch: int = 0
    ) -> dict[TopicPartition, KafkaError | None]:
        asked = Verification(transactional_id, 7, epoch, adds)
        verdicts = await asyncio.gather(*(self.verifier.verify(asked, each) for each in partitions))
        return dict(zip(partitions, verdicts, strict=True))


def with_coordinator(scenario: Callable[[Coordinator], Awaitable[None]]) -> None:
    async def main() -> None:
        coordinator = Coordinator()
        await coordinator.peer.listen(coordinator.network, 1)
        await scenario(coordinator)
        await coordinator.verifier.close()
        coordinator.links.close()

    run_virtually(main())


@pytest.mark.parametrize("adds", [False, True])
def test_the_coordinator_is_asked_in_the_form_that_the_producer_needs(adds: bool) -> None:
    async def scenario(coordinator: Coordinator) -> None:
        assert await coordinator.verify(A0, A1, adds=adds, epoch=3) == {A0: None, A1: None}
        [request] = coordinator.requests
        [transaction] = request.transactions
        assert (transaction.transactional_id, transaction.producer_id, transaction.producer_epoch) == ("t", 7, 3)
        assert transaction.verify_only is not adds
        assert [(topic.name, list(topic.partitions)) for topic in transaction.topics] == [("a", [0, 1])]

    with_coordinator(scenario)


def test_each_partition_gets_its_own_answer() -> None:
    async def scenario(coordinator: Coordinator) -> None:
        coordinator.codes = {A0: [InvalidTxnState.code], A1: [ProducerFenced.code]}
        outcome = await coordinator.verify(A0, A1)
        assert [type(error) for error in (outcome[A0], outcome[A1])] == [InvalidTxnState, InvalidProducerEpoch]
        assert coordinator.verifier.failures == 2

    with_coordinator(scenario)


def test_what_comes_while_a_request_is_under_way_goes_together_with_the_next() -> None:
    async def scenario(coordinator: Coordinator) -> None:
        first = asyncio.create_task(coordinator.verify(A0, transactional_id="t0"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        rest = [asyncio.create_task(coordinator.verify(A0, transactional_id=f"t{number}")) for number in range(1, 5)]
        assert await asyncio.gather(first, *rest) == [{A0: None}] * 5
        assert [len(request.transactions) for request in coordinator.requests] == [1, 4]

    with_coordinator(scenario)


def test_two_epochs_of_one_transactional_id_are_never_in_one_request() -> None:
    async def scenario(coordinator: Coordinator) -> None:
        await asyncio.gather(coordinator.verify(A0, epoch=0), coordinator.verify(A1, epoch=1))
        assert [len(request.transactions) for request in coordinator.requests] == [1, 1]

    with_coordinator(scenario)


def test_batches_of_one_guard_share_a_question_and_are_answered_in_their_order() -> None:
    async def scenario(coordinator: Coordinator) -> None:
        answered: list[tuple[int, KafkaError | None]] = []
        guard, asked = VerificationGuard(HEADER, 0, starts_at_zero=False), Verification("t", 7, 0, False)

        def ask(number: int) -> None:
            verdict = coordinator.verifier.verify_guarded(asked, A0, guard)
            verdict.listen(lambda error: answered.append((number, error)), lambda error: pytest.fail(str(error)))

        for number in range(3):
            ask(number)
        assert answered == []
        await asyncio.sleep(0.1)
        assert answered == [(0, None), (1, None), (2, None)]
        assert len(coordinator.requests) == 1
        ask(3)
        await asyncio.sleep(0.1)
        assert answered[3:] == [(3, None)]
        assert len(coordinator.requests) == 2

    with_coordinator(scenario)


def test_a_transaction_whose_predecessor_is_still_ending_is_waited_for_a_little() -> None:
    async def scenario(coordinator: Coordinator) -> None:
        coordinator.codes = {A0: [ConcurrentTransactions.code] * 3}
        began = coordinator.loop.time()
        assert await coordinator.verify(A0, adds=True) == {A0: None}
        assert coordinator.loop.time() - began == pytest.approx(0.002 + 0.004 + 0.008)
        coordinator.codes = {A0: [ConcurrentTransactions.code] * 100}
        began = coordinator.loop.time()
        outcome = await coordinator.verify(A0, adds=True)
        assert isinstance(outcome[A0], ConcurrentTransactions)
        assert coordinator.loop.time() - began == pytest.approx(0.002 + 0.004 + 0.008 + 0.016 + 4 * 0.02)

    with_coordinator(scenario)


def test_a_question_that_adds_nothing_is_not_repeated() -> None:
    async def scenario(coordinator: Coordinator) -> None:
        coordinator.codes = {A0: [ConcurrentTransactions.code]}
        assert isinstance((await coordinator.verify(A0))[A0], ConcurrentTransactions)

    with_coordinator(scenario)


def test_without_a_coordinator_the_answer_is_that_there_is_none() -> None:
    async def scenario(coordinator: Coordinator) -> None:
        coordinator.lead(-1)
        assert isinstance((await coordinator.verify(A0))[A0], CoordinatorNotAvailable)
        coordinator.image = coordinator.image.without_topics(TRANSACTION_TOPIC)
        assert isinstance((await coordinator.verify(A0))[A0], CoordinatorNotAvailable)
        coordinator.lead(2)
        assert isinstance((await coordinator.verify(A0))[A0], CoordinatorNotAvailable)

    with_coordinator(scenario)


def test_a_coordinator_that_does_not_answer_is_not_waited_for_for_ever() -> None:
    async def scenario(coordinator: Coordinator) -> None:
        coordinator.is_silent = True
        assert isinstance((await coordinator.verify(A0))[A0], CoordinatorNotAvailable)
        coordinator.is_silent = False
        assert await coordinator.verify(A0) == {A0: None}

    with_coordinator(scenario)


def test_an_error_of_the_whole_request_concerns_all() -> None:
    async def scenario(coordinator: Coordinator) -> None:
        coordinator.error_code = 31
        outcome = await coordinator.verify(A0, A1)
        assert [type(error) for error in outcome.values()] == [InvalidTxnState] * 2

    with_coordinator(scenario)


def test_members_of_a_transaction_group_have_the_coordinator_of_their_group() -> None:
    async def scenario(coordinator: Coordinator) -> None:
        partitions = tuple(PartitionRegistration(index, (1,), -1, 0, (1,)) for index in range(50))
        coordinator.image = coordinator.image.with_topics(Topic(TRANSACTION_TOPIC, bytes(16), partitions))
        ids = ("tidelog-group-g", "tidelog-group-g#5.0-m1", "tidelog-group-g#5.0-m2")
        found = set()
        for index in range(50):
            led = tuple(PartitionRegistration(each, (1,), 1 if each == index else -1, 0, (1,)) for each in range(50))
            coordinator.image = coordinator.image.with_topics(Topic(TRANSACTION_TOPIC, bytes(16), led))
            outcomes = [(await coordinator.verify(A0, transactional_id=each))[A0] for each in ids]
            assert len({type(outcome) for outcome in outcomes}) == 1
            if outcomes[0] is None:
                found.add(index)
        assert len(found) == 1

    with_coordinator(scenario)


@pytest.mark.parametrize(
    ("error", "adds", "knows_abortable", "expected"),
    [
        (InvalidTxnState(), False, True, InvalidTxnState),
        (TransactionAbortable(), False, True, TransactionAbortable),
        (TransactionAbortable(), False, False, InvalidTxnState),
        (CoordinatorLoadInProgress(), False, True, NotEnoughReplicas),
        (CoordinatorNotAvailable(), True, True, NotEnoughReplicas),
        (NotCoordinator(), True, True, NotEnoughReplicas),
        (ConcurrentTransactions(), False, True, NotEnoughReplicas),
        (ConcurrentTransactions(), True, True, ConcurrentTransactions),
        (InvalidProducerIdMapping(), True, True, InvalidProducerIdMapping),
        (InvalidProducerEpoch(), False, False, InvalidProducerEpoch),
    ],
)
def test_producers_get_errors_that_they_can_handle(
    error: KafkaError, adds: bool, knows_abortable: bool, expected: type[KafkaError]
) -> None:
    answered = error_for_producer(error, Verification("t", 7, 0, adds), knows_abortable=knows_abortable)
    assert type(answered) is expected
