import asyncio
from dataclasses import replace

import pytest

from tests.controller.cluster_under_test import broker
from tidelog.cluster import znodes
from tidelog.cluster.znodes import CONTROLLER_EPOCH, PERSISTENT_PATHS, LogDirectoryEpochs
from tidelog.controller.context_loading import load_brokers, load_image, load_log_directories
from tidelog.controller.log_directories import LogDirectories
from tidelog.controller.registration import (
    BrokerIdInUse,
    claim_controller,
    find_cluster_id,
    generate_broker_id,
    prepare_store,
    register_broker,
)
from tidelog.runtime.clock import ManualClock
from tidelog.runtime.randomness import SeededRandomness
from tidelog.store.interface import Node, Watch
from tidelog.store.memory import MemoryStore, MemoryStoreState

CLOCK = ManualClock()


async def prepared() -> tuple[MemoryStoreState, MemoryStore]:
    state = MemoryStoreState()
    store = MemoryStore(state)
    await prepare_store(store)
    return state, store


def test_preparing_twice_and_at_once_is_preparing_once() -> None:
    async def scenario() -> None:
        state = MemoryStoreState()
        stores = [MemoryStore(state) for _ in range(3)]
        await stores[0].create("/brokers")
        await asyncio.gather(*(prepare_store(store) for store in stores))
        await prepare_store(stores[0])
        assert set(PERSISTENT_PATHS) <= set(state.nodes)

    asyncio.run(scenario())


def test_the_first_broker_gives_the_cluster_its_id() -> None:
    async def scenario() -> None:
        _, store = await prepared()
        first = await find_cluster_id(store, SeededRandomness(1))
        assert len(first) == 22
        assert await find_cluster_id(store, SeededRandomness(2)) == first
        assert await find_cluster_id(store, SeededRandomness(2), wanted="other") == first

    asyncio.run(scenario())


def test_a_new_store_takes_the_cluster_id_of_the_log_directories() -> None:
    async def scenario() -> None:
        _, store = await prepared()
        assert await find_cluster_id(store, SeededRandomness(1), wanted="mine") == "mine"

    asyncio.run(scenario())


def test_generated_broker_ids_begin_above_the_reserved_ones() -> None:
    async def scenario() -> None:
        _, store = await prepared()
        assert [await generate_broker_id(store, 1000) for _ in range(2)] == [1001, 1002]

    asyncio.run(scenario())


def test_a_registration_has_an_epoch_that_grows_with_every_incarnation() -> None:
    async def scenario() -> None:
        state, store = await prepared()
        first = await register_broker(MemoryStore(state), broker(1, "rack"), CLOCK)
        assert (first.id, first.rack, first.endpoints) == (1, "rack", broker(1).endpoints)
        with pytest.raises(BrokerIdInUse, match="id 1 is running"):
            await register_broker(store, broker(1), CLOCK)
        state.expire(2)
        assert await load_brokers(store) == {}
        again = await register_broker(store, broker(1), CLOCK)
        assert again.epoch > first.epoch
        assert await load_brokers(store) == {1: again}

    asyncio.run(scenario())


def test_a_registration_whose_answer_was_lost_is_found_and_kept() -> None:
    """A broker that took it for another's would ask again for as long as its own session lives."""

    async def scenario() -> None:
        state, store = await prepared()
        first = await register_broker(store, broker(1), CLOCK)
        assert await register_broker(store, broker(1), CLOCK) == first
        with pytest.raises(BrokerIdInUse):
            await register_broker(MemoryStore(state), broker(1), CLOCK)

    asyncio.run(scenario())


def test_one_broker_is_controller_and_every_term_has_a_higher_epoch() -> None:
    async def scenario() -> None:
        state, store = await prepared()
        await find_cluster_id(store, SeededRandomness(1))
        other = MemoryStore(state)
        first = await claim_controller(other, 2, CLOCK)
        assert first is not None
        assert first.epoch == 1
        assert await claim_controller(store, 1, CLOCK) is None
        assert (await load_image(store)).controller_id == 2
        state.expire(other.session_id)
        second = await claim_controller(store, 1, CLOCK)
        assert second is not None
        assert second.epoch == 2
        assert (await store.get("/controller_epoch")).version == second.epoch_version

    asyncio.run(scenario())


def test_the_first_and_the_last_epoch_with_a_log_directory_are_recorded() -> None:
    """R42. Those of a broker that never had such nodes were there from the beginning: it was upgraded, say."""

    async def scenario() -> None:
        state, store = await prepared()
        first = await register_broker(MemoryStore(state), replace(broker(1), directory_ids=("a", "b")), CLOCK)
        assert first.directory_ids == ("a", "b")
        both = dict.fromkeys("ab", LogDirectoryEpochs(0, first.epoch))
        assert await load_log_directories(store, [first]) == {1: LogDirectories(both, [])}
        state.expire(2)
        again = await register_broker(store, replace(broker(1), directory_ids=("b", "c")), CLOCK)
        now = {"b": LogDirectoryEpochs(0, again.epoch), "c": LogDirectoryEpochs(again.epoch, again.epoch)}
        assert await load_log_directories(store, [again]) == {1: LogDirectories(now, [both["a"]])}

    asyncio.run(scenario())


def test_of_a_log_directory_that_an_earlier_version_registered_the_last_epoch_is_not_known() -> None:
    async def scenario() -> None:
        state, store = await prepared()
        first = await register_broker(MemoryStore(state), replace(broker(1), directory_ids=("a",)), CLOCK)
        await store.set("/brokers/directories/1/a", b'{"version":1,"from_the_beginning":true}')
        unknown = LogDirectoryEpochs(0, znodes.TO_THE_END)
        assert await load_log_directories(store, [first]) == {1: LogDirectories({"a": unknown}, [])}

    asyncio.run(scenario())


def test_a_log_directory_whose_node_is_damaged_is_not_known() -> None:
    async def scenario() -> None:
        _, store = await prepared()
        found = await register_broker(store, replace(broker(1), directory_ids=("a", "b")), CLOCK)
        await store.set("/brokers/directories/1/a", b"nonsense")
        await store.delete("/brokers/directories/1/b")
        assert await load_log_directories(store, [found]) == {}

    asyncio.run(scenario())


def test_no_epoch_is_given_twice_though_another_term_came_and_went_meanwhile() -> None:
    """Between reading the epoch and claiming it. There is no controller then; only the version shows it."""

    async def scenario() -> None:
        state, store = await prepared()
        get = store.get

        async def get_slowly(path: str, watch: Watch | None = None) -> Node:
            node = await get(path, watch)
            if path == CONTROLLER_EPOCH:
                other = MemoryStore(state)
                assert await claim_controller(other, 2, CLOCK) is not None
                state.expire(other.session_id)
            return node

        store.get = get_slowly  # type: ignore[method-assign]
        assert await claim_controller(store, 1, CLOCK) is None
        store.get = get  # type: ignore[method-assign]
        fence = await claim_controller(store, 1, CLOCK)
        assert fence is not None
        assert fence.epoch == 2

    asyncio.run(scenario())
