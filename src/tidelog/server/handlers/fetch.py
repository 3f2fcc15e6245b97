"""Fetch: read from some partitions, at once or as soon as there is enough to read (R15)."""

import logging
from collections.abc import Coroutine
from typing import Any

from tidelog.errors import InvalidRequest, KafkaError, UnknownServerError
from tidelog.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse
from tidelog.replication.partition import ISOLATION_LEVELS
from tidelog.runtime.disk import FileSlice
from tidelog.runtime.purgatory import DelayedOperation, Watchers
from tidelog.server.dispatch import Call
from tidelog.server.fetch_sessions import FINAL_EPOCH
from tidelog.server.fetching import NO_SESSION, Fetch, Reader, SessionlessFetch, failed
from tidelog.server.leader_hints import add_leaders_to_fetch
from tidelog.server.many_parts import MANY
from tidelog.server.outcome import Deferred
from tidelog.server.services import Services
from tidelog.storage.segment import NotCached

logger = logging.getLogger(__name__)

MAX_CLIENT_PARTITIONS = 8192
"""Followers may ask for more at once."""

FetchOutcome = FetchResponse | Deferred[FetchResponse] | Coroutine[Any, Any, FetchResponse]


def handle_fetch(request: FetchRequest, call: Call) -> FetchOutcome:
    reader = Reader(request, call)
    if request.isolation_level not in ISOLATION_LEVELS:
        return _refused(request, reader, UnknownServerError.code)
    if not reader.is_follower and sum(len(topic.partitions) for topic in request.topics) > MAX_CLIENT_PARTITIONS:
        return _refused(request, reader, InvalidRequest.code)
    try:
        fetch = _begin(request, reader, call.services)
    except KafkaError as error:
        return FetchResponse(error_code=error.code)
    if reader.is_follower and not call.connection.is_privileged:
        call.trust_follower(reader.replica_id, reader.replica_epoch)
    if _is_divided(fetch):
        return _fetch_in_slices(request, fetch)
    fetch.prepare()
    if reader.is_follower:
        _count(fetch, call.services)
    try:
        fetch.read()
    except NotCached:
        return _read_in_worker(fetch)
    if _is_answerable(request, fetch):
        return _answer(fetch)
    return _wait(request, fetch)


def _is_divided(fetch: Fetch) -> bool:
    return not fetch.reader.call.connection.is_privileged and fetch.size > MANY


async def _fetch_in_slices(request: FetchRequest, fetch: Fetch) -> FetchResponse:
    services = fetch.reader.services
    counted_at_ms = None
    if fetch.reader.is_follower and not services.is_fenced:
        counted_at_ms = services.clock.now_ms()
        services.replicas.on_follower_request(fetch.reader.replica_id, counted_at_ms)
    response = await _read_in_slices(fetch, counted_at_ms)
    if response is None and not _is_answerable(request, fetch) and request.min_bytes <= 1 and fetch.finds_something():
        fetch.put_back()  # it came between two slices, and would wake nobody
        response = await _read_in_slices(fetch)
    if response is not None:
        return response
    if _is_answerable(request, fetch):
        return await _awaited(_answer(fetch))
    return await _wait(request, fetch, is_divided=True).wait()


async def _read_in_slices(fetch: Fetch, counted_at_ms: int | None = None) -> FetchResponse | None:
    """None, unless a worker had to read it, and it is answered with what there is."""
    turns = fetch.reader.services.turns
    try:
        for _ in fetch.steps(counted_at_ms):
            if turns.is_slice_over():
                await turns.wait(is_continued=True)
    except NotCached:
        return await _read_in_worker(fetch)
    except BaseException:
        fetch.put_back()
        raise
    return None


async def _answer_in_slices(fetch: Fetch) -> FetchResponse:
    await fetch.reader.services.turns.wait()
    response = await _read_in_slices(fetch)
    return await _awaited(_answer(fetch)) if response is None else response


async def _awaited(outcome: FetchResponse | Coroutine[Any, Any, FetchResponse]) -> FetchResponse:
    return outcome if isinstance(outcome, FetchResponse) else await outcome


def _refused(request: FetchRequest, reader: Reader, error_code: int) -> FetchResponse:
    """All of it. Each partition is told as well, as long as topics have names."""
    topics = [] if reader.uses_topic_ids else request.topics
    return FetchResponse(
        error_code=error_code,
        responses=[
            FetchableTopicResponse(
                topic=topic.topic, partitions=[failed(each.partition, error_code) for each in topic.partitions]
            )
            for topic in topics
        ],
    )


def _begin(request: FetchRequest, reader: Reader, services: Services) -> Fetch:
    if request.session_epoch == FINAL_EPOCH and request.session_id == NO_SESSION:
        return SessionlessFetch(request, reader)
    return services.fetch_sessions.begin(request, reader)


def _count(fetch: Fetch, services: Services) -> None:
    """R17: the leader learns how far its follower is, also when the answer will wait."""
    if not services.is_fenced:
        now_ms = services.clock.now_ms()
        services.replicas.on_follower_request(fetch.reader.replica_id, now_ms)
        fetch.count(now_ms)


def _is_answerable(request: FetchRequest, fetch: Fetch) -> bool:
    return (
        request.max_wait_ms <= 0 or fetch.bytes_read >= request.min_bytes or fetch.has_news or not fetch.wants_anything
    )


def _wait(request: FetchRequest, fetch: Fetch, *, is_divided: bool = False) -> Deferred[FetchResponse]:
    deferred: Deferred[FetchResponse] = Deferred()
    operation = DelayedFetch(fetch, request.min_bytes, deferred, is_divided=is_divided)
    deferred.on_abandoned = operation.abandon
    fetch.reader.services.purgatory.wait(operation, fetch.watched(), request.max_wait_ms / 1000)
    return deferred


class DelayedFetch(DelayedOperation):
    """Waits until `min_bytes` can be read, something happens to a partition, or time is up."""

    __slots__ = ("_available", "_deferred", "_fetch", "_is_divided", "_min_bytes", "_seen")

    kind = "Fetch"

    def __init__(self, fetch: Fetch, min_bytes: int, deferred: Deferred[FetchResponse], *, is_divided: bool) -> None:
        super().__init__()
        self._is_divided = is_divided
        self._fetch = fetch
        self._min_bytes = min_bytes
        self._deferred = deferred
        self._available = fetch.bytes_read
        self._seen = fetch.sizes

    def is_satisfied(self, changed: Watchers) -> bool:
        fetch = self._fetch
        if self._min_bytes <= 1:
            return any(map(fetch.reader.finds_something, fetch.changed(changed)))
        for wanted in fetch.changed(changed):
            try:
                readable = fetch.readable_bytes(wanted)
            except (KafkaError, NotCached):
                return True
            self._available += readable - self._seen.get(wanted, 0)
            self._seen[wanted] = readable
        return self._available >= self._min_bytes

    def on_completed(self) -> None:
        fetch = self._fetch
        outcome: FetchResponse | Coroutine[Any, Any, FetchResponse]
        if self._is_divided:
            fetch.reader.services.spawn(self._resolve_later(_answer_in_slices(fetch)))
            return
        fetch.prepare()
        try:
            fetch.read()
            outcome = _answer(fetch)
        except NotCached:
            outcome = _read_in_worker(fetch)
        if isinstance(outcome, FetchResponse):
            self._deferred.resolve(outcome)
        else:
            fetch.reader.services.spawn(self._resolve_later(outcome))

    async def _resolve_later(self, outcome: Coroutine[Any, Any, FetchResponse]) -> None:
        try:
            self._deferred.resolve(await outcome)
        except Exception:
            connection = self._fetch.reader.call.connection
            logger.exception("connection closed: records cannot be read peer=%s", connection.peer)
            connection.channel.close("records cannot be read")  # or whoever asked would wait for ever


def _answer(fetch: Fetch) -> FetchResponse | Coroutine[Any, Any, FetchResponse]:
    """What the page cache lacks is read by a worker first: the event loop never waits for a disk."""
    response = _response(fetch)
    cold = [part for part in fetch.slices if not part.file.is_cached(part.position, part.length)]
    return _warm(response, cold, fetch.reader.services) if cold else response


async def _warm(response: FetchResponse, cold: list[FileSlice], services: Services) -> FetchResponse:
    for part in cold:
        await services.workers.run(part.read)
    return response


async def _read_in_worker(fetch: Fetch) -> FetchResponse:
    """Even finding the place would have waited. What is there is answered, be it less than asked for."""
    services = fetch.reader.services
    try:
        await services.workers.run(fetch.read, may_block=True)
    except BaseException:
        fetch.put_back()
        raise
    return await _warm(_response(fetch), fetch.slices, services)


def _response(fetch: Fetch) -> FetchResponse:
    response = fetch.response()
    if fetch.sizes and not response.error_code:
        fetch.count_sent()
    if fetch.has_news:
        add_leaders_to_fetch(response, fetch.reader.call)
    return response
