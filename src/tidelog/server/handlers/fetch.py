"""Fetch: read from some partitions, at once or as soon as there is enough to read (R15)."""

import logging
from collections.abc import Coroutine
from typing import Any

from tidelog.errors import InvalidRequest, KafkaError, UnknownServerError
from tidelog.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse
from tidelog.replication.fetch_reads import ISOLATION_LEVELS
from tidelog.runtime.deferred import Deferred
from tidelog.runtime.disk import FileSlice
from tidelog.runtime.purgatory import DelayedOperation, Watchers
from tidelog.server.dispatch import Call
from tidelog.server.fetch_sessions import FINAL_EPOCH
from tidelog.server.fetching import NO_SESSION, AnyFetch, Reader, SessionlessFetch, failed
from tidelog.server.leader_hints import add_leaders_to_fetch
from tidelog.server.services import Services
from tidelog.server.sliced_requests import MANY
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
    recorded_at_ms = _follower_request_ms(reader) if reader.is_follower else None
    if _is_divided(fetch):
        return _fetch_in_slices(request, fetch, recorded_at_ms)
    _read(fetch, recorded_at_ms)
    if fetch.is_cold:
        return _read_in_worker(fetch)
    if _is_answerable(request, fetch):
        return _answer(fetch)
    return _wait(request, fetch)


def _follower_request_ms(reader: Reader) -> int:
    """When it came: partitions record that, also where the answer will wait (R17)."""
    now_ms = reader.services.clock.now_ms()
    reader.services.replicas.on_follower_request(reader.replica_id, now_ms)
    return now_ms


def _read(fetch: AnyFetch, recorded_at_ms: int | None = None) -> None:
    for wanted in fetch.begin():
        fetch.find(wanted)
        fetch.read_one(wanted, recorded_at_ms)


def _is_divided(fetch: AnyFetch) -> bool:
    return not fetch.reader.call.connection.is_privileged and fetch.size > MANY


async def _fetch_in_slices(request: FetchRequest, fetch: AnyFetch, recorded_at_ms: int | None) -> FetchResponse:
    await _read_in_slices(fetch, recorded_at_ms)
    if not fetch.is_cold and not _is_answerable(request, fetch) and request.min_bytes <= 1 and fetch.is_ready():
        fetch.put_back()  # it came between two slices, and would wake nobody
        await _read_in_slices(fetch)
    if fetch.is_cold:
        return await _read_in_worker(fetch)
    if _is_answerable(request, fetch):
        return await _awaited(_answer(fetch))
    return await _wait(request, fetch, is_divided=True).wait()


async def _read_in_slices(fetch: AnyFetch, recorded_at_ms: int | None = None) -> None:
    turns = fetch.reader.services.turns
    try:
        for wanted in fetch.begin():
            fetch.find(wanted)
            fetch.read_one(wanted, recorded_at_ms)
            if turns.is_slice_over():
                await turns.wait(is_continued=True)
                if fetch.is_overtaken:
                    return
    except BaseException:
        fetch.put_back()
        raise


async def _answer_in_slices(fetch: AnyFetch) -> FetchResponse:
    await fetch.reader.services.turns.wait()
    await _read_in_slices(fetch)
    return await (_read_in_worker(fetch) if fetch.is_cold else _awaited(_answer(fetch)))


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


def _begin(request: FetchRequest, reader: Reader, services: Services) -> AnyFetch:
    if request.session_epoch == FINAL_EPOCH and request.session_id == NO_SESSION:
        return SessionlessFetch(request, reader)
    return services.fetch_sessions.begin(request, reader)


def _is_answerable(request: FetchRequest, fetch: AnyFetch) -> bool:
    return (
        request.max_wait_ms <= 0 or fetch.bytes_read >= request.min_bytes or fetch.has_news or not fetch.wants_anything
    )


def _wait(request: FetchRequest, fetch: AnyFetch, *, is_divided: bool = False) -> Deferred[FetchResponse]:
    deferred: Deferred[FetchResponse] = Deferred()
    operation = DelayedFetch(fetch, request.min_bytes, deferred, is_divided=is_divided)
    deferred.on_abandoned = operation.abandon
    fetch.reader.services.purgatory.wait(operation, fetch.watched(), request.max_wait_ms / 1000)
    return deferred


class DelayedFetch(DelayedOperation):
    """Waits until `min_bytes` can be read, something happens to a partition, or time is up."""

    __slots__ = ("_available", "_deferred", "_fetch", "_is_divided", "_min_bytes", "_seen")

    kind = "Fetch"

    def __init__(self, fetch: AnyFetch, min_bytes: int, deferred: Deferred[FetchResponse], *, is_divided: bool) -> None:
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
            return any(wanted.is_ready(fetch.reader) for wanted in fetch.changed(changed))
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
        _read(fetch)
        outcome = _read_in_worker(fetch) if fetch.is_cold else _answer(fetch)
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


def _answer(fetch: AnyFetch) -> FetchResponse | Coroutine[Any, Any, FetchResponse]:
    """What the page cache lacks is read by a worker first: the event loop never waits for a disk."""
    response = _response(fetch)
    cold = [part for part in fetch.slices if not part.file.is_cached(part.position, part.length)]
    return _warm(response, cold, fetch.reader.services) if cold else response


async def _warm(response: FetchResponse, cold: list[FileSlice], services: Services) -> FetchResponse:
    for part in cold:
        await services.workers.run(part.read)
    return response


async def _read_in_worker(fetch: AnyFetch) -> FetchResponse:
    """Even finding the place would have waited. What is there is answered, be it less than asked for."""
    services = fetch.reader.services
    try:
        await services.workers.run(fetch.read_in_worker)
    except BaseException:
        fetch.put_back()
        raise
    return await _warm(_response(fetch), fetch.slices, services)


def _response(fetch: AnyFetch) -> FetchResponse:
    response = fetch.response()
    if fetch.sizes and not response.error_code:
        fetch.count_sent()
    if fetch.has_news:
        add_leaders_to_fetch(response, fetch.reader.call)
    return response
