"""A coordination store that fails: requests get errors that clients retry, connections stay, data goes on if it may."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, ClassVar, TypeAlias

import pytest

from tests.server.harness import Client, Harness
from tests.server.test_configs import SET, change, value
from tests.server.test_create_partitions import grow, more
from tests.server.test_create_topics import create, topic, topic_names
from tests.server.test_delete_topics import delete
from tests.server.test_idempotent_producers import init
from tests.server.test_list_offsets import EARLIEST, LATEST, look_up
from tests.server.test_metadata import ask, by_name
from tidelog.config.resolution import ConfigSource
from tidelog.errors import (
    ERRORS_BY_CODE,
    CoordinatorLoadInProgress,
    LeaderNotAvailable,
    NotController,
    NotLeaderOrFollower,
    RequestTimedOut,
)
from tidelog.runtime.virtual_time import run_virtually
from tidelog.server.broker import CannotStart
from tidelog.store.interface import Operation, Result, Store, StoreUnavailable
from tidelog.store.memory import MemoryStore

Ask: TypeAlias = Callable[[Client], Coroutine[Any, Any, int]]
"""Sends one request, returns the error code of its answer."""

DEFAULT_RETENTION = ("604800000", ConfigSource.DEFAULT_CONFIG)


class BreakableStore(MemoryStore):
    """Answers nothing while it is broken."""

    is_broken = False
    loses_responses = False

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        results = await super().multi(operations)
        if self.loses_responses:
            self.is_broken = True
            raise StoreUnavailable("the answer of the store was lost")
        return results

    async def _check_connection(self) -> None:
        await super()._check_connection()
        if self.is_broken:
            raise StoreUnavailable("the store does not answer")


class BreakableHarness(Harness):
    """Its brokers talk to the store through `store`, the newest session."""

    store: BreakableStore
    is_open = True

    async def _open_store(self) -> Store:
        if not self.is_open:
            raise StoreUnavailable("the store takes no sessions")
        self.store = BreakableStore(self.store_state)
        return self.store


async def create_one(client: Client) -> int:
    return (await create(client, topic("new")))[0].error_code


async def create_by_metadata(client: Client) -> int:
    return (await ask(client, by_name("new"))).topics[0].error_code


async def delete_one(client: Client) -> int:
    return (await delete(client, "t"))[0].error_code


async def grow_one(client: Client) -> int:
    return (await grow(client, more("t", 2)))[0].error_code


async def change_topic(client: Client) -> int:
    return await change(client, (2, "t"), ("retention.ms", SET, "1000"))


async def change_brokers(client: Client) -> int:
    return await change(client, (4, ""), ("log.retention.ms", SET, "1000"))


async def new_producer(client: Client) -> int:
    return (await init(client)).error_code


REQUESTS: list[tuple[Ask, int, int]] = [
    (create_one, RequestTimedOut.code, NotController.code),
    (create_by_metadata, LeaderNotAvailable.code, LeaderNotAvailable.code),
    (delete_one, RequestTimedOut.code, NotController.code),
    (grow_one, RequestTimedOut.code, NotController.code),
    (change_topic, RequestTimedOut.code, NotController.code),
    (change_brokers, RequestTimedOut.code, NotController.code),
    (new_producer, CoordinatorLoadInProgress.code, CoordinatorLoadInProgress.code),
]


@pytest.mark.parametrize(("request_", "error", "_"), REQUESTS)
def test_a_store_that_does_not_answer(request_: Ask, error: int, _: int) -> None:
    async def main() -> None:
        harness = BreakableHarness()
        async with harness.broker():
            client = await harness.connect()
            await client.create_topic("t")
            harness.store.is_broken = True
            assert await request_(client) == error
            assert ERRORS_BY_CODE[error].retriable
            assert client.closed_because is None
            assert await topic_names(client) == ["t"]
            assert (await client.produce("t", b"x")).error_code == 0
            harness.store.is_broken = False
            assert await request_(client) == 0

    run_virtually(main())


@pytest.mark.parametrize(("request_", "_", "error"), REQUESTS)
def test_a_session_that_ended(request_: Ask, _: int, error: int) -> None:
    async def main() -> None:
        harness = BreakableHarness()
        async with harness.broker():
            client = await harness.connect()
            await client.create_topic("t")
            harness.is_open = False
            harness.store_state.expire(harness.store.session_id)
            await asyncio.sleep(5)
            assert await request_(client) == error
            assert ERRORS_BY_CODE[error].retriable
            assert client.closed_because is None
            assert (await client.produce("t", b"x")).error_code == NotLeaderOrFollower.code
            harness.is_open = True
            await asyncio.sleep(5)
            assert await request_(client) == 0

    run_virtually(main())


@pytest.mark.parametrize("returns", [True, False])
def test_what_is_committed_can_be_read_while_the_session_may_have_ended(returns: bool) -> None:
    async def main() -> None:
        harness = BreakableHarness()
        async with harness.broker():
            client = await harness.connect()
            await client.create_topic("t")
            await client.produce("t", b"x")
            session_id = harness.store.session_id
            harness.store_state.cut_off(session_id)
            await asyncio.sleep(harness.store.session_timeout_s * (0.95 if returns else 2))
            assert (await client.produce("t", b"y")).error_code == NotLeaderOrFollower.code
            assert await client.values("t") == [b"x"]
            assert await look_up(client, EARLIEST) == (0, 0, -1, 0)
            assert await look_up(client, LATEST) == (0, 1, -1, 0)
            harness.store_state.reconnect(session_id)
            await asyncio.sleep(5)
            assert (await client.produce("t", b"z")).error_code == 0
            assert await client.values("t") == [b"x", b"z"]

    run_virtually(main())


def test_a_cluster_id_that_cannot_be_understood_is_reported_in_a_sentence() -> None:
    async def main() -> None:
        harness = Harness()
        store = MemoryStore(harness.store_state)
        await store.create("/cluster")
        await store.create("/cluster/id", b"?")
        with pytest.raises(CannotStart, match="/cluster/id: not JSON"):
            await harness.start()

    run_virtually(main())


def test_what_an_ended_session_held_is_given_back() -> None:
    class CountedStore(BreakableStore):
        closed: ClassVar[list[int]] = []

        async def close(self) -> None:
            self.closed.append(self.session_id)
            await super().close()

    class CountedHarness(BreakableHarness):
        async def _open_store(self) -> Store:
            self.store = CountedStore(self.store_state)
            return self.store

    async def main() -> None:
        harness = CountedHarness()
        async with harness.broker():
            for _ in range(3):
                harness.store_state.expire(harness.store.session_id)
                await asyncio.sleep(5)
            assert CountedStore.closed == [1, 2, 3]

    run_virtually(main())


Seen: TypeAlias = tuple[list[str], bool, tuple[str, int] | None]
"""The topics, whether `t` has grown, and its retention."""

CHANGES: list[tuple[Ask, Seen]] = [
    (create_one, (["t", "new"], False, DEFAULT_RETENTION)),
    (delete_one, ([], False, None)),
    (grow_one, (["t"], True, DEFAULT_RETENTION)),
    (change_topic, (["t"], False, ("1000", ConfigSource.DYNAMIC_TOPIC_CONFIG))),
    (change_brokers, (["t"], False, ("1000", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG))),
]


@pytest.mark.parametrize(("request_", "expected"), CHANGES)
def test_a_change_whose_answer_was_lost_is_seen_when_the_store_answers_again(request_: Ask, expected: Seen) -> None:
    async def main() -> None:
        harness = BreakableHarness()
        async with harness.broker():
            client = await harness.connect()
            await client.create_topic("t")
            harness.store.loses_responses = True
            assert await request_(client) == RequestTimedOut.code
            await asyncio.sleep(5)
            assert await topic_names(client) == ["t"]
            harness.store.loses_responses = harness.store.is_broken = False
            await asyncio.sleep(5)
            names = await topic_names(client)
            retention = await value(client, (2, "t"), "retention.ms") if "t" in names else None
            assert (names, harness.disk.exists("/logs/t-1"), retention) == expected

    run_virtually(main())


@pytest.mark.parametrize("steps", range(16))
def test_partitions_and_settings_that_change_together_are_both_seen(steps: int) -> None:
    async def main() -> None:
        harness = BreakableHarness()
        async with harness.broker():
            client, other = await harness.connect(), await harness.connect()
            await client.create_topic("t")
            growing = asyncio.ensure_future(grow_one(client))
            for _ in range(steps):
                await asyncio.sleep(0)
            assert await change_topic(other) == 0
            assert await growing == 0
            assert await value(client, (2, "t"), "retention.ms") == ("1000", ConfigSource.DYNAMIC_TOPIC_CONFIG)
            assert (await client.produce("t", b"x", partition=1)).error_code == 0

    run_virtually(main())
