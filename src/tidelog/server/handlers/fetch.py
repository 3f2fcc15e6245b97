"""Fetch (API key 1): reads records of partitions, at once or as soon as fetch.min.bytes are available (R15)."""

import logging
from collections.abc import Coroutine
from typing import Any

from tidelog.authorization.acls import Operation, ResourceType
from tidelog.cluster.znodes import broker_path
from tidelog.errors import (
    ClusterAuthorizationFailed,
    InvalidRequest,
    KafkaError,
    TopicAuthorizationFailed,
    UnknownServerError,
)
from tidelog.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse
from tidelog.replication.fetch_reads import ISOLATION_LEVELS
from tidelog.runtime.deferred import Deferred, awaited
from tidelog.runtime.delayed_reply import DelayedReply
from tidelog.runtime.disk import FileSlice
from tidelog.runtime.purgatory import Watchers
from tidelog.runtime.socket_writer import SENDFILE_FROM_BYTES
from tidelog.server.dispatch import RequestContext
from tidelog.server.fetch_sessions import FINAL_EPOCH
from tidelog.server.fetching import NO_SESSION, AnyFetch, Reader, SessionlessFetch, failed
from tidelog.server.leader_hints import add_leaders_to_fetch
from tidelog.server.services import Services
from tidelog.server.sliced_requests import MANY
from tidelog.storage.segment import NotCached
from tidelog.store.interface import StoreError
from tidelog.types import BrokerId

logger = logging.getLogger(__name__)

MAX_CLIENT_PARTITIONS = 8192
"""Limit for consumers. Followers may request more."""

MAX_LOADED_BYTES = 64 * 1024
"""A response with at most so many bytes of records is sent from memory, as far as its records are small."""

FetchOutcome = FetchResponse | Deferred[FetchResponse] | Coroutine[Any, Any, FetchResponse]


def handle_fetch(request: FetchRequest, context: RequestContext) -> FetchOutcome:
    reader = Reader(request, context)
    if reader.is_follower and context.is_denied(Operation.CLUSTER_ACTION, ResourceType.CLUSTER):
        return _denied(request)
    if reader.is_follower and not context.trust_broker(reader.replica_id, reader.replica_epoch):
        return _fetch_of_unknown_follower(request, reader)
    return _fetch(request, reader)


async def _fetch_of_unknown_follower(request: FetchRequest, reader: Reader) -> FetchResponse:
    """The epoch is not the one in the image. A follower may be faster than UpdateMetadata: ask the store."""
    context, replica_id, epoch = reader.context, reader.replica_id, reader.replica_epoch
    if context.session.is_inter_broker and await _is_registered(context.services, replica_id, epoch):
        context.connection.trust()
    if not context.connection.is_privileged:
        return _rejected(request, reader, ClusterAuthorizationFailed.code)
    return await awaited(_fetch(request, reader))


async def _is_registered(services: Services, broker_id: BrokerId, epoch: int) -> bool:
    known = services.cluster.image.brokers.get(broker_id)
    if epoch < 0 or (known is not None and epoch < known.epoch):
        return False
    try:
        node = await services.membership.store.get(broker_path(broker_id))
    except StoreError:
        return False
    return node.created_id == epoch


def _fetch(request: FetchRequest, reader: Reader) -> FetchOutcome:
    context = reader.context
    if request.isolation_level not in ISOLATION_LEVELS:
        return _rejected(request, reader, UnknownServerError.code)
    if not reader.is_follower and sum([len(topic.partitions) for topic in request.topics]) > MAX_CLIENT_PARTITIONS:
        return _rejected(request, reader, InvalidRequest.code)
    try:
        fetch = _begin(request, reader, context.services)
    except KafkaError as error:
        return FetchResponse(error_code=error.code)
    # Partitions record the arrival of a follower's request even if the response waits (R17).
    recorded_at_ms = reader.services.replicas.on_follower_request(reader.replica_id) if reader.is_follower else None
    if fetch.size > MANY and not context.connection.is_privileged:
        return _fetch_in_slices(request, fetch, recorded_at_ms)
    _read(fetch, recorded_at_ms)
    if fetch.is_uncached:
        return _read_in_worker(fetch)
    if _is_answerable(request, fetch):
        return _answer(fetch)
    return _wait(request, fetch)


def _read(fetch: AnyFetch, recorded_at_ms: int | None = None) -> None:
    for requested in fetch.begin():
        fetch.find(requested)
        fetch.read_one(requested, recorded_at_ms)


async def _fetch_in_slices(request: FetchRequest, fetch: AnyFetch, recorded_at_ms: int | None) -> FetchResponse:
    await _read_in_slices(fetch, recorded_at_ms)
    if not fetch.is_uncached and not _is_answerable(request, fetch) and request.min_bytes <= 1 and fetch.is_ready():
        fetch.requeue()  # records arrived between two slices, before any watcher was registered
        await _read_in_slices(fetch)
    if fetch.is_uncached:
        return await _read_in_worker(fetch)
    if _is_answerable(request, fetch):
        return await awaited(_answer(fetch))
    return await _wait(request, fetch, is_divided=True).wait()


async def _read_in_slices(fetch: AnyFetch, recorded_at_ms: int | None = None) -> None:
    turns = fetch.reader.services.turns
    try:
        for requested in fetch.begin():
            fetch.find(requested)
            fetch.read_one(requested, recorded_at_ms)
            if turns.is_slice_over():
                await turns.wait(is_continued=True)
                if fetch.is_superseded:
                    return
    except BaseException:
        fetch.requeue()
        raise


async def _answer_in_slices(fetch: AnyFetch) -> FetchResponse:
    await fetch.reader.services.turns.wait()
    await _read_in_slices(fetch)
    return await (_read_in_worker(fetch) if fetch.is_uncached else awaited(_answer(fetch)))


def _rejected(request: FetchRequest, reader: Reader, error_code: int) -> FetchResponse:
    """Refuse the whole request; before topic ids also each partition, as in Kafka."""
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


def _denied(request: FetchRequest) -> FetchResponse:
    """The answer to a follower without permission, as in Kafka."""
    code = TopicAuthorizationFailed.code
    return FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic.topic, topic.topic_id, [failed(each.partition, code) for each in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _begin(request: FetchRequest, reader: Reader, services: Services) -> AnyFetch:
    if request.session_epoch == FINAL_EPOCH and request.session_id == NO_SESSION:
        return SessionlessFetch(request, reader)
    return services.fetch_sessions.begin(request, reader)


def _is_answerable(request: FetchRequest, fetch: AnyFetch) -> bool:
    return (
        request.max_wait_ms <= 0
        or fetch.bytes_read >= request.min_bytes
        or fetch.has_error_or_divergence
        or fetch.is_urgent
        or not fetch.has_partitions
    )


def _wait(request: FetchRequest, fetch: AnyFetch, *, is_divided: bool = False) -> Deferred[FetchResponse]:
    operation = DelayedFetch(fetch, request.min_bytes, is_divided=is_divided)
    return operation.wait_in(fetch.reader.services.purgatory, fetch.watched(), request.max_wait_ms / 1000)


class DelayedFetch(DelayedReply[FetchResponse]):
    """Waits until `min_bytes` can be read, the state of a partition changes, or the time is up."""

    __slots__ = ("_available", "_fetch", "_is_divided", "_min_bytes", "_seen")

    kind = "Fetch"

    def __init__(self, fetch: AnyFetch, min_bytes: int, *, is_divided: bool) -> None:
        super().__init__()
        self._is_divided = is_divided
        self._fetch = fetch
        self._min_bytes = min_bytes
        self._available = fetch.bytes_read
        self._seen = fetch.sizes

    def is_satisfied(self, changed: Watchers) -> bool:
        fetch = self._fetch
        if self._min_bytes <= 1:
            return any(fetch.is_readable(requested) for requested in fetch.changed(changed))
        for requested in fetch.changed(changed):
            if fetch.is_high_watermark_due(requested):
                return True
            try:
                readable = fetch.readable_bytes(requested)
            except (KafkaError, NotCached):
                return True
            self._available += readable - self._seen.get(requested, 0)
            self._seen[requested] = readable
        return self._available >= self._min_bytes

    def on_completed(self) -> None:
        fetch, services = self._fetch, self._fetch.reader.services
        if self._is_divided:
            services.spawn(self._resolve_later(_answer_in_slices(fetch)))
            return
        _read(fetch)
        if fetch.is_uncached:
            services.spawn(self._resolve_later(_read_in_worker(fetch)))
        elif fetch.unconfirmed:
            services.spawn(self._resolve_later(_confirm_and_answer(fetch)))
        elif cold := _cold_slices(fetch):
            services.spawn(self._resolve_later(_warm(_response(fetch), cold, services)))
        else:
            self.reply.resolve(_response(fetch))

    async def _resolve_later(self, answering: Coroutine[Any, Any, FetchResponse]) -> None:
        try:
            self.reply.resolve(await answering)
        except Exception:
            connection = self._fetch.reader.context.connection
            logger.exception("connection closed: records cannot be read peer=%s", connection.peer)
            connection.channel.close("records cannot be read")  # else the client would wait forever


def _answer(fetch: AnyFetch) -> FetchResponse | Coroutine[Any, Any, FetchResponse]:
    """A worker reads what is not in the page cache first: the event loop never waits for a disk."""
    if fetch.unconfirmed:
        return _confirm_and_answer(fetch)
    cold = _cold_slices(fetch)
    response = _response(fetch)
    return _warm(response, cold, fetch.reader.services) if cold else response


async def _confirm_and_answer(fetch: AnyFetch) -> FetchResponse:
    try:
        await fetch.confirm_range()
    except BaseException:
        fetch.requeue()
        raise
    return await awaited(_answer(fetch))


def _cold_slices(fetch: AnyFetch) -> list[FileSlice]:
    """Slices that are not in the page cache. Small ones that are in it are replaced by their bytes."""
    slices = _load_small(fetch) if fetch.bytes_read <= MAX_LOADED_BYTES else fetch.slices
    return [part for part in slices if not part.file.is_cached(part.position, part.length)]


def _load_small(fetch: AnyFetch) -> list[FileSlice]:
    """Read small slices now, in one system call each. Returns the others: connections send them from their files."""
    others: list[FileSlice] = []
    for _, data in fetch.found:
        part = data.records
        if isinstance(part, FileSlice):
            records = part.read_cached() if part.length < SENDFILE_FROM_BYTES else None
            if records is None:
                others.append(part)
            else:
                data.records = records
    return others


async def _warm(response: FetchResponse, cold: list[FileSlice], services: Services) -> FetchResponse:
    for part in cold:
        await services.workers.run(part.read)
    return response


async def _read_in_worker(fetch: AnyFetch) -> FetchResponse:
    """Used where even the index lookup would wait for a disk. Answers with the data found, even below min_bytes."""
    services = fetch.reader.services
    try:
        await services.workers.run(fetch.read_in_worker)
        await fetch.confirm_range()
    except BaseException:
        fetch.requeue()
        raise
    return await _warm(_response(fetch), fetch.slices, services)


def _response(fetch: AnyFetch) -> FetchResponse:
    response = fetch.response()
    if fetch.sizes and not response.error_code:
        fetch.record_bytes_out()
    if fetch.has_error_or_divergence:
        add_leaders_to_fetch(response, fetch.reader.context)
    return response
