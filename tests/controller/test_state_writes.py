from collections.abc import Sequence
from dataclasses import replace

from tidelog.cluster import znodes
from tidelog.cluster.image import PartitionRegistration
from tidelog.controller.fenced_store import FencedStore
from tidelog.controller.registration import ControllerFence, prepare_store
from tidelog.controller.state_writes import write_states
from tidelog.runtime.virtual_time import run_virtually
from tidelog.store.interface import Operation, Result, StoreUnavailable
from tidelog.store.memory import MemoryStore
from tidelog.types import TopicPartition

NEW = PartitionRegistration(0, (1, 2), 1, 0, (1, 2), controller_epoch=1, version=-1)


class ForgetfulStore(MemoryStore):
    """Does what it is asked, and sometimes does not say so."""

    def __init__(self) -> None:
        super().__init__()
        self.responses_to_lose = 0
        self.transactions = 0

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        results = await super().multi(operations)
        self.transactions += 1
        if self.responses_to_lose:
            self.responses_to_lose -= 1
            raise StoreUnavailable
        return results


async def prepared() -> tuple[ForgetfulStore, FencedStore]:
    store = ForgetfulStore()
    await prepare_store(store)
    await store.create(znodes.CONTROLLER_EPOCH, b"1")
    await store.create(znodes.topic_path("orders"))
    store.transactions = 0
    return store, FencedStore(store, ControllerFence(1, 0))


def partitions(count: int) -> dict[TopicPartition, PartitionRegistration]:
    return {TopicPartition("orders", index): replace(NEW, index=index) for index in range(count)}


def test_states_are_created_and_changed_with_their_versions() -> None:
    async def scenario() -> None:
        _, store = await prepared()
        outcome = await write_states(store, partitions(2))
        assert not outcome.lost
        assert [each.version for each in outcome.written.values()] == [0, 0]
        outcome = await write_states(store, outcome.written)
        assert [each.version for each in outcome.written.values()] == [1, 1]

    run_virtually(scenario())


def test_many_states_take_one_transaction_per_thousand() -> None:
    async def scenario() -> None:
        raw, store = await prepared()
        created = await write_states(store, partitions(2500))
        raw.transactions = 0
        changed = await write_states(store, created.written)
        assert raw.transactions == 3
        assert len(changed.written) == 2500

    run_virtually(scenario())


def test_a_state_that_somebody_else_changed_is_lost_and_the_others_are_written() -> None:
    async def scenario() -> None:
        raw, store = await prepared()
        created = (await write_states(store, partitions(3))).written
        await raw.set(znodes.state_path("orders", 1), b"{}")
        outcome = await write_states(store, created)
        assert outcome.lost == [TopicPartition("orders", 1)]
        assert [each.partition for each in outcome.written] == [0, 2]
        assert (await raw.get(znodes.state_path("orders", 1))).data == b"{}"

    run_virtually(scenario())


def test_a_write_whose_answer_was_lost_is_found_to_be_done() -> None:
    async def scenario() -> None:
        for responses_to_lose in (1, 2, 3):
            raw, store = await prepared()
            raw.responses_to_lose = responses_to_lose
            created = await write_states(store, partitions(2))
            assert not created.lost
            raw.responses_to_lose = responses_to_lose
            changed = await write_states(store, created.written)
            assert not changed.lost
            assert [each.version for each in changed.written.values()] == [1, 1]
            assert (await raw.get(znodes.state_path("orders", 0))).version == 1

    run_virtually(scenario())


def test_states_of_a_topic_that_is_gone_are_lost() -> None:
    async def scenario() -> None:
        raw, store = await prepared()
        await raw.delete(znodes.topic_path("orders"))
        outcome = await write_states(store, partitions(1))
        assert outcome.lost == [TopicPartition("orders", 0)]

    run_virtually(scenario())
