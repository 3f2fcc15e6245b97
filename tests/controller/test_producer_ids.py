import asyncio

import pytest

from tidelog.cluster.znodes import (
    CLUSTER_ID,
    ClusterNode,
    ProducerIdBlock,
    TakeoverState,
    encode_cluster,
    encode_producer_id_block,
)
from tidelog.controller.producer_ids import BLOCK_SIZE, LAST_PRODUCER_ID, ProducerIds, next_block
from tidelog.controller.registration import prepare_store
from tidelog.errors import CoordinatorLoadInProgress, KafkaError, UnknownServerError
from tidelog.store.memory import MemoryStore, MemoryStoreState

IN_USE = ClusterNode("tide", takeover=TakeoverState.DONE)


async def store_in_use(state: MemoryStoreState | None = None) -> MemoryStore:
    store = MemoryStore(state)
    await prepare_store(store)
    await store.create(CLUSTER_ID, encode_cluster(IN_USE))
    return store


def test_ids_of_one_broker_follow_each_other() -> None:
    async def scenario() -> None:
        store = await store_in_use()
        ids = ProducerIds(store, 1)
        assert [await ids.next() for _ in range(BLOCK_SIZE + 2)] == list(range(BLOCK_SIZE + 2))
        restarted = ProducerIds(store, 1)
        assert await restarted.next() == 2 * BLOCK_SIZE

    asyncio.run(scenario())


def test_no_two_producers_get_the_same_id() -> None:
    async def scenario() -> None:
        state = MemoryStoreState()
        await store_in_use(state)
        brokers = [ProducerIds(MemoryStore(state), broker_id) for broker_id in range(3)]
        taken = await asyncio.gather(*(brokers[number % 3].next() for number in range(3000)))
        assert sorted(taken) == list(range(3000))  # and no block is wasted

    asyncio.run(scenario())


@pytest.mark.parametrize("takeover", ["", "waiting", "registering"])
def test_an_empty_store_in_the_place_of_a_lost_one_hands_out_nothing(takeover: str) -> None:
    """A broker that has not noticed the loss got ids from 0 again, which producers used (seed 72046)."""

    async def scenario() -> None:
        store = MemoryStore()
        await prepare_store(store)
        with pytest.raises(KafkaError):  # seed 132029: the cluster id was not there yet
            await ProducerIds(store, 1).next()
        await store.create(CLUSTER_ID, encode_cluster(IN_USE._replace(takeover=TakeoverState(takeover))))
        with pytest.raises(KafkaError):
            await ProducerIds(store, 1).next()
        await store.set(CLUSTER_ID, encode_cluster(IN_USE))
        assert await ProducerIds(store, 1).next() == 0

    asyncio.run(scenario())


def test_who_cannot_wait_takes_what_is_at_hand() -> None:
    async def scenario() -> None:
        store = await store_in_use()
        ids = ProducerIds(store, 1)
        with pytest.raises(CoordinatorLoadInProgress):
            ids.take()
        await asyncio.gather(ids.ensure(), ids.ensure())
        assert [ids.take() for _ in range(BLOCK_SIZE)] == list(range(BLOCK_SIZE))
        with pytest.raises(CoordinatorLoadInProgress):
            ids.take()

    asyncio.run(scenario())


def test_a_block_follows_the_one_before() -> None:
    assert next_block(b"", 7) == ProducerIdBlock(7, 0, 999)
    assert next_block(encode_producer_id_block(ProducerIdBlock(1, 0, 999)), 7) == ProducerIdBlock(7, 1000, 1999)


def test_the_last_block_is_the_last() -> None:
    used_up = ProducerIdBlock(1, LAST_PRODUCER_ID - BLOCK_SIZE, LAST_PRODUCER_ID - 1)
    with pytest.raises(UnknownServerError, match="used up"):
        next_block(encode_producer_id_block(used_up), 1)
