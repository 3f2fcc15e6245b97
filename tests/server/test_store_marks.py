"""By what a broker recognises an older copy of its store."""

import asyncio

from tidelog.cluster import znodes
from tidelog.cluster.znodes import ClusterNode, TakeoverState
from tidelog.controller.registration import prepare_store
from tidelog.runtime.randomness import SeededRandomness
from tidelog.server.store_marks import StoreMark, count_missing_changes, ensure_store_id, increment_change_counter
from tidelog.store.memory import MemoryStore, MemoryStoreState

BROKER = 1


async def store_in_use() -> MemoryStore:
    store = MemoryStore(MemoryStoreState(), session_timeout_ms=6000)
    await prepare_store(store)
    await store.create(znodes.CLUSTER_ID, znodes.encode_cluster(ClusterNode("cluster", TakeoverState.DONE)))
    await store.create(znodes.log_directories_path(BROKER))
    return store


def test_a_store_keeps_the_id_that_the_first_broker_gives_it() -> None:
    async def run() -> None:
        store = await store_in_use()
        assert await increment_change_counter(store, BROKER) is None
        given = (await ensure_store_id(store, SeededRandomness(1))).node
        assert (await ensure_store_id(store, SeededRandomness(2))).node == given
        assert given.store_id
        assert given.takeover is TakeoverState.DONE

    asyncio.run(run())


def test_a_store_lacks_what_was_counted_since_it_was_copied() -> None:
    async def run() -> None:
        store = await store_in_use()
        store_id = (await ensure_store_id(store, SeededRandomness(1))).node.store_id
        assert await increment_change_counter(store, BROKER) == StoreMark(store_id, 1)
        assert await increment_change_counter(store, BROKER) == StoreMark(store_id, 2)
        assert await count_missing_changes(store, BROKER, StoreMark(store_id, 2)) == 0
        assert await count_missing_changes(store, BROKER, StoreMark(store_id, 5)) == 3
        assert await count_missing_changes(store, BROKER, StoreMark("another store", 5)) == 0
        assert await count_missing_changes(store, 2, StoreMark(store_id, 1)) == 2, "it has never heard of this broker"

    asyncio.run(run())
