"""Responses to transactional producers and administrators over the wire, in all versions."""

import asyncio
from typing import Any

import pytest

from tests.server.harness import Client, Harness, with_broker
from tidelog.errors import (
    NO_ERROR,
    ConcurrentTransactions,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidRegularExpression,
    InvalidRequest,
    InvalidTransactionTimeout,
    InvalidTxnState,
    KafkaError,
    NotCoordinator,
    OperationNotAttempted,
    ProducerFenced,
    TopicAuthorizationFailed,
    TransactionAbortable,
    TransactionalIdNotFound,
    UnknownTopicOrPartition,
)
from tidelog.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from tidelog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from tidelog.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from tidelog.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from tidelog.runtime.virtual_time import run_virtually
from tidelog.transactions.transaction import ProducerIdentity

ID = "payments"
TOPIC = "orders"
TIMEOUT_MS = 60_000
BROKERS_VERSION = 5


async def ready(client: Client) -> None:
    """The topics that all this needs are there."""
    await client.create_topic(TOPIC, partitions=2)
    for key_type in (0, 1):
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[ID])
        response = await client.ask(request, 6, FindCoordinatorResponse)
        assert response.coordinators[0].error_code == NO_ERROR


async def init(
    client: Client, transactional_id: str = ID, version: int = 5, timeout_ms: int = TIMEOUT_MS, **expected: int
) -> InitProducerIdResponse:
    request = InitProducerIdRequest(transactional_id, timeout_ms, **expected)
    while True:
        response = await client.ask(request, version, InitProducerIdResponse)
        if response.error_code != ConcurrentTransactions.code:
            return response
        await asyncio.sleep(0.05)


async def producer_of(client: Client, transactional_id: str = ID) -> ProducerIdentity:
    response = await init(client, transactional_id)
    assert response.error_code == NO_ERROR
    return ProducerIdentity(response.producer_id, response.producer_epoch)


async def add(
    client: Client, identity: ProducerIdentity, *indexes: int, version: int = 3, topic: str = TOPIC
) -> dict[int, int]:
    topics = [AddPartitionsToTxnTopic(topic, list(indexes))]
    request = AddPartitionsToTxnRequest([], ID, *identity, topics)
    response = await client.ask(request, version, AddPartitionsToTxnResponse)
    return codes_of(response.results_by_topic_v3_and_below)


def codes_of(topics: list[AddPartitionsToTxnTopicResult]) -> dict[int, int]:
    return {each.partition_index: each.partition_error_code for topic in topics for each in topic.results_by_partition}


async def end(
    client: Client, identity: ProducerIdentity, version: int = 5, *, commit: bool = True, transactional_id: str = ID
) -> EndTxnResponse:
    return await client.ask(EndTxnRequest(transactional_id, *identity, commit), version, EndTxnResponse)


async def describe(client: Client, *transactional_ids: str) -> list[TransactionState]:
    request = DescribeTransactionsRequest(list(transactional_ids))
    return (await client.ask(request, 0, DescribeTransactionsResponse)).transaction_states


async def wait_for(client: Client, state: str) -> TransactionState:
    async with asyncio.timeout(30):
        while True:
            (described,) = await describe(client, ID)
            if described.transaction_state == state:
                return described
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("version", range(6))
def test_a_transaction_from_beginning_to_end_in_every_version(version: int) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await ready(client)
        response = await init(client, version=version)
        assert (response.error_code, response.producer_epoch) == (NO_ERROR, 0)
        identity = ProducerIdentity(response.producer_id, 0)
        assert await add(client, identity, 0, 1, version=min(version, 3)) == {0: NO_ERROR, 1: NO_ERROR}
        offsets = AddOffsetsToTxnRequest(ID, *identity, "readers")
        answer = await client.ask(offsets, min(version, 4), AddOffsetsToTxnResponse)
        assert answer.error_code == NO_ERROR
        ended = await end(client, identity, version)
        assert ended.error_code == NO_ERROR
        if version == 5:
            assert (ended.producer_id, ended.producer_epoch) == (identity.producer_id, 1)
        await wait_for(client, "CompleteCommit")

    with_broker(scenario)


@pytest.mark.parametrize(
    ("api", "version", "error"),
    [
        ("init", 3, InvalidProducerEpoch),
        ("init", 4, ProducerFenced),
        ("add", 1, InvalidProducerEpoch),
        ("add", 2, ProducerFenced),
        ("offsets", 1, InvalidProducerEpoch),
        ("offsets", 2, ProducerFenced),
        ("end", 1, InvalidProducerEpoch),
        ("end", 2, ProducerFenced),
        ("end", 5, ProducerFenced),
    ],
)
def test_who_was_succeeded_hears_it_in_words_it_knows(api: str, version: int, error: type[KafkaError]) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await ready(client)
        first = await producer_of(client)
        await producer_of(client)
        await producer_of(client)
        if api == "init":
            code = (await init(client, version=version, producer_id=first[0], producer_epoch=first[1])).error_code
        elif api == "add":
            code = (await add(client, first, 0, version=version))[0]
        elif api == "offsets":
            request = AddOffsetsToTxnRequest(ID, *first, "readers")
            code = (await client.ask(request, version, AddOffsetsToTxnResponse)).error_code
        else:
            code = (await end(client, first, version)).error_code
        assert code == error.code

    with_broker(scenario)


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (InitProducerIdRequest("", TIMEOUT_MS), InvalidRequest),
        (InitProducerIdRequest(ID, 0), InvalidTransactionTimeout),
        (InitProducerIdRequest(ID, -1), InvalidTransactionTimeout),
        (InitProducerIdRequest(ID, 900_001), InvalidTransactionTimeout),
        (InitProducerIdRequest(ID, TIMEOUT_MS, 5, -1), InvalidRequest),
        (InitProducerIdRequest(ID, TIMEOUT_MS, -1, 5), InvalidRequest),
        (InitProducerIdRequest("tidelog-group-", TIMEOUT_MS), InvalidRequest),
        (InitProducerIdRequest("tidelog-group-a#x", TIMEOUT_MS), InvalidRequest),
        (InitProducerIdRequest("tidelog-group-a#1.0-x", TIMEOUT_MS), ProducerFenced),
    ],
)
def test_bad_beginnings_are_refused_and_leave_nothing(request_: InitProducerIdRequest, error: type[KafkaError]) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await ready(client)
        response = await client.ask(request_, 5, InitProducerIdResponse)
        assert (response.error_code, response.producer_id, response.producer_epoch) == (error.code, -1, -1)
        assert (await client.ask(ListTransactionsRequest(), 2, ListTransactionsResponse)).transaction_states == []

    with_broker(scenario)


def test_empty_and_unknown_ids_are_refused() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await ready(client)
        stranger = ProducerIdentity(1, 0)
        assert await add(client, stranger, 0) == {0: InvalidProducerIdMapping.code}
        assert (await end(client, stranger)).error_code == InvalidProducerIdMapping.code
        assert (await end(client, stranger, transactional_id="")).error_code == InvalidRequest.code
        described = await describe(client, "", ID)
        assert [(each.transactional_id, each.error_code) for each in described] == [
            ("", InvalidRequest.code),
            (ID, TransactionalIdNotFound.code),
        ]

    with_broker(scenario)


def test_before_the_topic_is_there_nobody_coordinates() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        assert (await init(client)).error_code == NotCoordinator.code

    with_broker(scenario)


def test_a_partition_that_does_not_exist_keeps_the_others_out() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await ready(client)
        identity = await producer_of(client)
        assert await add(client, identity, 0, 7) == {0: OperationNotAttempted.code, 7: UnknownTopicOrPartition.code}
        assert await add(client, identity, 0, topic="nowhere") == {0: UnknownTopicOrPartition.code}
        for internal in ("__consumer_offsets", "__transaction_state"):
            assert await add(client, identity, 0, topic=internal) == {0: TopicAuthorizationFailed.code}
        (described,) = await describe(client, ID)
        assert (described.transaction_state, described.topics) == ("Empty", [])

    with_broker(scenario)


def test_what_is_named_twice_is_answered_twice() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await ready(client)
        identity = await producer_of(client)
        named = [(TOPIC, [0, 0]), (TOPIC, [1]), (TOPIC, [])]
        topics = [AddPartitionsToTxnTopic(topic, indexes) for topic, indexes in named]
        response = await client.ask(AddPartitionsToTxnRequest([], ID, *identity, topics), 3, AddPartitionsToTxnResponse)
        assert [
            (topic.name, [each.partition_index for each in topic.results_by_partition])
            for topic in response.results_by_topic_v3_and_below
        ] == named

    with_broker(scenario)


def test_brokers_ask_about_many_transactions_at_once() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await ready(client)
        identity = await producer_of(client)
        await add(client, identity, 0)

        def asked(transactional_id: str, *indexes: int, verify: bool) -> AddPartitionsToTxnTransaction:
            topics = [AddPartitionsToTxnTopic(TOPIC, list(indexes))]
            return AddPartitionsToTxnTransaction(transactional_id, *identity, verify, topics)

        request = AddPartitionsToTxnRequest([asked(ID, 0, 1, verify=True), asked("other", 0, verify=False)])
        response = await client.ask(request, BROKERS_VERSION, AddPartitionsToTxnResponse)
        assert response.error_code == NO_ERROR
        assert {each.transactional_id: codes_of(each.topic_results) for each in response.results_by_transaction} == {
            ID: {0: NO_ERROR, 1: TransactionAbortable.code},
            "other": {0: InvalidProducerIdMapping.code},
        }
        request = AddPartitionsToTxnRequest([asked(ID, 1, verify=False)])
        response = await client.ask(request, BROKERS_VERSION, AddPartitionsToTxnResponse)
        assert codes_of(response.results_by_transaction[0].topic_results) == {1: NO_ERROR}
        (described,) = await describe(client, ID)
        assert [(topic.topic, list(topic.partitions)) for topic in described.topics] == [(TOPIC, [0, 1])]

    with_broker(scenario)


def test_transactions_are_listed_as_filters_want_them() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await ready(client)
        identity = await producer_of(client)
        await add(client, identity, 0)
        await asyncio.sleep(10)
        idle = await producer_of(client, "idle")

        async def listed(version: int = 2, **filters: Any) -> list[str]:
            response = await client.ask(ListTransactionsRequest(**filters), version, ListTransactionsResponse)
            assert response.error_code == NO_ERROR
            return sorted(each.transactional_id for each in response.transaction_states)

        assert await listed(version=0) == ["idle", ID]
        assert await listed(state_filters=["Ongoing"]) == [ID]
        assert await listed(state_filters=["Ongoing", "Empty"]) == ["idle", ID]
        assert await listed(state_filters=["Nonsense"]) == []
        assert await listed(producer_id_filters=[idle.producer_id]) == ["idle"]
        assert await listed(duration_filter=5000, state_filters=["Ongoing"], version=1) == [ID]
        assert await listed(duration_filter=20_000, state_filters=["Ongoing"]) == []
        assert await listed(transactional_id_pattern="id.e|x") == ["idle"]
        assert await listed(transactional_id_pattern="pay") == []
        assert await listed(transactional_id_pattern="") == ["idle", ID]
        response = await client.ask(ListTransactionsRequest(state_filters=["Nonsense"]), 2, ListTransactionsResponse)
        assert response.unknown_state_filters == ["Nonsense"]
        request = ListTransactionsRequest(transactional_id_pattern="a(")
        response = await client.ask(request, 2, ListTransactionsResponse)
        assert response.error_code == InvalidRegularExpression.code

    with_broker(scenario)


def test_a_transaction_that_takes_too_long_is_aborted_by_the_broker() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await ready(client)
        response = await init(client, timeout_ms=3000)
        identity = ProducerIdentity(response.producer_id, response.producer_epoch)
        await add(client, identity, 0)
        await asyncio.sleep(2.9)
        assert (await describe(client, ID))[0].transaction_state == "Ongoing"
        await asyncio.sleep(1)
        assert (await describe(client, ID))[0].transaction_state == "CompleteAbort"
        assert (await end(client, identity)).error_code == InvalidTxnState.code

    with_broker(scenario)


def test_another_life_of_the_broker_knows_its_transactions() -> None:
    async def main() -> None:
        harness = Harness()
        async with harness.broker():
            client = await harness.connect()
            await ready(client)
            identity = await producer_of(client)
            await add(client, identity, 0)
        async with harness.broker():
            client = await harness.connect()
            described = await wait_for(client, "Ongoing")
            assert described.producer_id == identity.producer_id
            assert (await end(client, identity)).error_code == NO_ERROR
            await wait_for(client, "CompleteCommit")

    run_virtually(main())
