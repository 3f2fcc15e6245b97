"""Metrics of transactions on /metrics, on virtual time."""

import asyncio

from tests.server.harness import Client, Harness, batch_of, produce_request
from tests.server.scrape import Scrape
from tidelog.errors import NO_ERROR
from tidelog.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.protocol.messages.produce import ProduceResponse
from tidelog.runtime.virtual_time import run_virtually
from tidelog.storage.validation import AppendOrigin
from tidelog.transactions.transaction import ProducerIdentity

IDS = "tidelog_transactional_ids"
DECIDED = "tidelog_transactions_{}_total"
LATE = "kafka_server_replicamanager_partitionswithlatetransactionscount"
PRODUCERS = "kafka_server_replicamanager_produceridcount"
HOUR_S = 3600


async def begin(client: Client, transactional_id: str, timeout_ms: int = 60_000) -> ProducerIdentity:
    """A transaction with one record."""
    request = InitProducerIdRequest(transactional_id, timeout_ms)
    response = await client.ask(request, 5, InitProducerIdResponse)
    assert response.error_code == NO_ERROR
    identity = ProducerIdentity(response.producer_id, response.producer_epoch)
    batch = batch_of(
        b"x",
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        base_sequence=0,
        is_transactional=True,
    )
    produce = produce_request("t", batch)
    produce.transactional_id = transactional_id
    written = await client.ask(produce, 12, ProduceResponse)
    assert written.responses[0].partition_responses[0].error_code == NO_ERROR
    return identity


def test_transactions_are_counted_by_what_became_of_them() -> None:
    async def main() -> None:
        harness = Harness()
        async with harness.broker() as broker:
            client = await harness.connect()
            await client.create_topic("t")
            await client.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["x"]), 4, FindCoordinatorResponse)
            for transactional_id, is_committed in (("a", True), ("b", True), ("c", False)):
                identity = await begin(client, transactional_id)
                request = EndTxnRequest(transactional_id, *identity, is_committed)
                assert (await client.ask(request, 5, EndTxnResponse)).error_code == NO_ERROR
            await begin(client, "slow", timeout_ms=1000)
            await asyncio.sleep(0.5)
            found = Scrape.of(broker)
            assert found(IDS, state="CompleteCommit") == 2
            assert found(IDS, state="CompleteAbort") == 1
            assert found(IDS, state="Ongoing") == 1
            assert [found(DECIDED.format(what)) for what in ("committed", "aborted", "timed_out")] == [2, 1, 0]
            assert found(PRODUCERS) == 4
            assert found("tidelog_transaction_markers_pending") == 0
            assert found("tidelog_transaction_markers_oldest_seconds") == 0
            assert (
                found("kafka_coordinator_transaction_transactionmarkerchannelmanager_unknowndestinationqueuesize") == 0
            )
            assert found("tidelog_transaction_verification_failures_total") == 0
            assert found("tidelog_transaction_coordinator_load_seconds") >= 0
            await asyncio.sleep(2)
            found = Scrape.of(broker)
            assert found(IDS, state="Ongoing") == 0
            assert [found(DECIDED.format(what)) for what in ("committed", "aborted", "timed_out")] == [2, 2, 1]

    run_virtually(main())


def test_a_partition_in_which_a_transaction_hangs_has_a_metric() -> None:
    async def main() -> None:
        harness = Harness()
        async with harness.broker() as broker:
            client = await harness.connect()
            await client.create_topic("t")
            batch = batch_of(b"x", producer_id=7, base_sequence=0, is_transactional=True)
            partition = broker._services.replicas.get("t", 0)
            partition.append_as_leader(memoryview(bytearray(batch)), -1, AppendOrigin.COORDINATOR)
            assert Scrape.of(broker)(LATE) == 0
            await asyncio.sleep(HOUR_S)
            assert Scrape.of(broker)(LATE) == 1

    run_virtually(main())
