"""Eviction of fetch sessions when all slots are taken: Kafka's rules."""

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from tidelog.errors import FetchSessionIdNotFound, InvalidFetchSessionEpoch, UnknownTopicOrPartition
from tidelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from tidelog.runtime.clock import ManualClock
from tidelog.runtime.deadlines import Deadlines
from tidelog.runtime.purgatory import Purgatory
from tidelog.runtime.randomness import SeededRandomness
from tidelog.server import fetch_sessions
from tidelog.server.dispatch import RequestContext
from tidelog.server.fetch_sessions import FetchSessionCache, SessionFetch
from tidelog.server.fetching import Reader
from tidelog.server.session import ANONYMOUS

FOLLOWER, CONSUMER = 5, -1
PAST_EVICTION_MS = 120_001


def no_partition(topic: str, index: int) -> object:
    raise UnknownTopicOrPartition


SERVICES = SimpleNamespace(
    settings=SimpleNamespace(fetch_max_bytes=1000), partition=no_partition, client_quotas=SimpleNamespace(table=None)
)


class Cache:
    """A cache with a clock of its own, and readers that are only counted."""

    def __init__(self, slots: int) -> None:
        loop = asyncio.new_event_loop()
        loop.close()
        self.clock = ManualClock()
        self.sessions = FetchSessionCache(
            Purgatory(loop, Deadlines(loop)), SeededRandomness(1), self.clock, lambda: slots
        )

    def open(self, size: int, replica_id: int = CONSUMER) -> int:
        """The id of the new session; 0 if there was no room."""
        return self._begin(FetchRequest(session_epoch=0, topics=[topic_of(size)]), replica_id)

    def use(self, session_id: int, epoch: int, *, grow_to: int = 0, replica_id: int = CONSUMER) -> None:
        topics = [topic_of(grow_to)] if grow_to else []
        self._begin(FetchRequest(session_id=session_id, session_epoch=epoch, topics=topics), replica_id)

    def knows(self, session_id: int) -> bool:
        return any(self._is_session_of(reader_of(replica_id), session_id) for replica_id in (CONSUMER, FOLLOWER))

    def _is_session_of(self, reader: Reader, session_id: int) -> bool:
        try:
            self.sessions.begin(FetchRequest(session_id=session_id, session_epoch=-5), reader)
        except FetchSessionIdNotFound:
            return False
        except InvalidFetchSessionEpoch:
            return True
        raise AssertionError

    def _begin(self, request: FetchRequest, replica_id: int) -> int:
        request.replica_id = replica_id
        fetch = self.sessions.begin(request, reader_of(replica_id))
        return fetch._session.id if isinstance(fetch, SessionFetch) else 0


def reader_of(replica_id: int) -> Reader:
    session = SimpleNamespace(principal=ANONYMOUS)
    call = cast("RequestContext", SimpleNamespace(version=12, services=SERVICES, session=session))
    return Reader(FetchRequest(replica_id=replica_id), call)


def topic_of(size: int) -> FetchTopic:
    return FetchTopic(topic="t", partitions=[FetchPartition(partition=index) for index in range(size)])


def test_a_full_cache_keeps_young_sessions_and_refuses_new_ones() -> None:
    cache = Cache(slots=2)
    first, second = cache.open(1), cache.open(1)
    assert first
    assert second
    assert first != second
    assert cache.open(100) == 0
    assert cache.knows(first)
    assert cache.knows(second)


def test_a_session_that_nobody_uses_gives_way_to_any_other() -> None:
    cache = Cache(slots=2)
    unused, used = cache.open(10), cache.open(10)
    cache.clock.advance(PAST_EVICTION_MS)
    cache.use(used, 1)
    assert cache.open(1)
    assert not cache.knows(unused)
    assert cache.knows(used)
    assert cache.sessions.statistics().evictions == 1


def test_a_session_that_is_used_gives_way_only_to_a_larger_one() -> None:
    cache = Cache(slots=2)
    small, large = cache.open(2), cache.open(5)
    cache.clock.advance(PAST_EVICTION_MS)
    cache.use(small, 1)
    cache.use(large, 1)
    assert cache.open(1) == 0
    assert cache.open(3)
    assert not cache.knows(small)
    assert cache.knows(large)


def test_a_session_is_as_large_as_it_has_become() -> None:
    cache = Cache(slots=2)
    growing, middle = cache.open(1), cache.open(3)
    cache.clock.advance(PAST_EVICTION_MS)
    cache.use(growing, 1, grow_to=10)
    cache.use(middle, 1)
    assert cache.open(5)
    assert cache.knows(growing)
    assert not cache.knows(middle)


def test_a_follower_takes_the_place_of_a_consumer_however_young_and_large() -> None:
    cache = Cache(slots=2)
    small, large = cache.open(10), cache.open(20)
    assert cache.open(1, FOLLOWER)
    assert not cache.knows(small)
    assert cache.knows(large)


def test_a_consumer_does_not_take_the_place_of_a_follower_in_use() -> None:
    cache = Cache(slots=1)
    follower = cache.open(1, FOLLOWER)
    cache.clock.advance(PAST_EVICTION_MS)
    cache.use(follower, 1, replica_id=FOLLOWER)
    assert cache.open(1000) == 0
    assert cache.knows(follower)


def test_a_follower_takes_the_place_of_a_smaller_follower_only_when_that_is_old() -> None:
    cache = Cache(slots=1)
    follower = cache.open(1, FOLLOWER)
    assert cache.open(10, FOLLOWER) == 0
    cache.clock.advance(PAST_EVICTION_MS)
    cache.use(follower, 1, replica_id=FOLLOWER)
    assert cache.open(10, FOLLOWER)
    assert not cache.knows(follower)


def test_sessions_that_nobody_uses_are_forgotten_though_there_is_room() -> None:
    cache = Cache(slots=100)
    abandoned = [cache.open(10) for _ in range(5)]
    used = cache.open(10)
    cache.clock.advance(PAST_EVICTION_MS)
    cache.use(used, 1)
    new = cache.open(1)
    assert cache.knows(used)
    assert cache.knows(new)
    assert not any(map(cache.knows, abandoned))
    assert cache.sessions.statistics().evictions == 5


def test_sessions_of_clients_hold_a_bounded_number_of_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "MAX_CLIENT_PARTITIONS", 10)
    cache = Cache(slots=100)
    first, second = cache.open(6), cache.open(4)
    assert first
    assert second
    assert cache.open(1) == 0, "as if there were no slot"
    assert cache.open(1000, FOLLOWER), "brokers are few, and need theirs"
    cache.use(first, 1)
    with pytest.raises(FetchSessionIdNotFound):
        cache.use(second, 1, grow_to=5)
    assert not cache.knows(second)
    assert cache.open(4), "its partitions count no more"
    assert cache.open(1) == 0


def test_partitions_that_a_client_forgets_count_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "MAX_CLIENT_PARTITIONS", 10)
    cache = Cache(slots=100)
    first = cache.open(10)
    forgotten = [ForgottenTopic(topic="t", partitions=list(range(4)))]
    request = FetchRequest(session_id=first, session_epoch=1, topics=[], forgotten_topics_data=forgotten)
    cache.sessions.begin(request, reader_of(CONSUMER))
    assert cache.open(5) == 0
    assert cache.open(4)
