"""Fetch: read from some partitions, at once or as soon as there is enough to read (R15)."""

from collections.abc import Coroutine
from typing import Any, NamedTuple

from tidelog.errors import FetchSessionIdNotFound, KafkaError, NotLeaderOrFollower, OffsetOutOfRange
from tidelog.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from tidelog.replication.partition import READ_COMMITTED, Partition
from tidelog.runtime.disk import FileSlice
from tidelog.runtime.purgatory import DelayedOperation, Watchers
from tidelog.server.dispatch import Call
from tidelog.server.outcome import Deferred
from tidelog.server.services import Services
from tidelog.storage.segment import NotCached
from tidelog.types import NO_LEADER_EPOCH

TOPIC_IDS_FROM_VERSION = 13
NO_SESSION = 0
CONSUMER = -1

FetchOutcome = FetchResponse | Deferred[FetchResponse] | Coroutine[Any, Any, FetchResponse]


def handle_fetch(request: FetchRequest, call: Call) -> FetchOutcome:
    if request.session_id != NO_SESSION:
        return FetchResponse(error_code=FetchSessionIdNotFound.code)
    fetch = Fetch(request, call)
    try:
        response = fetch.read()
    except NotCached:
        return _read_in_worker(fetch)
    if fetch.is_answerable(request):
        return _with_warm_files(response, fetch.slices, call.services)
    deferred: Deferred[FetchResponse] = Deferred()
    operation = DelayedFetch(fetch, request.min_bytes, deferred)
    deferred.on_abandoned = operation.abandon
    call.services.purgatory.wait(operation, fetch.watched(), request.max_wait_ms / 1000)
    return deferred


class _Wanted(NamedTuple):
    """One partition of the request, found or not."""

    request: FetchPartition
    partition: Partition | None
    error: KafkaError | None


class Fetch:
    """One request, which may be read several times until it has enough."""

    def __init__(self, request: FetchRequest, call: Call) -> None:
        self.services = call.services
        self._max_bytes = min(request.max_bytes, call.services.settings.fetch_max_bytes)
        self._isolation_level = request.isolation_level
        self._topics = [
            (topic, [self._find(request, call, topic.topic, topic.topic_id, wanted) for wanted in topic.partitions])
            for topic in request.topics
        ]
        self._may_block = False
        self.bytes_read = 0
        self.has_news = False  # an error or a diverging epoch: nothing to wait for
        self.slices: list[FileSlice] = []
        self.sizes: dict[Watchers, int] = {}

    def _find(self, request: FetchRequest, call: Call, topic: str, topic_id: bytes, wanted: FetchPartition) -> _Wanted:
        replica_id = request.replica_state.replica_id if request.replica_state else request.replica_id
        try:
            if replica_id != CONSUMER:
                raise NotLeaderOrFollower(f"broker {replica_id} is not a replica of this partition")
            if call.version >= TOPIC_IDS_FROM_VERSION:
                topic = self.services.cluster.topic_name(topic_id)
            return _Wanted(wanted, self.services.replicas.get(topic, wanted.partition), None)
        except KafkaError as error:
            return _Wanted(wanted, None, error)

    def is_answerable(self, request: FetchRequest) -> bool:
        return request.max_wait_ms <= 0 or not request.topics or self.has_news or self.bytes_read >= request.min_bytes

    def watched(self) -> list[Watchers]:
        return [
            wanted.partition.watchers for _, partitions in self._topics for wanted in partitions if wanted.partition
        ]

    def readable_bytes(self, watchers: Watchers) -> int:
        """How much one partition has for this request by now. Raises what reading it would raise."""
        for _, partitions in self._topics:
            for wanted in partitions:
                if wanted.partition is not None and wanted.partition.watchers is watchers:
                    data = self._read_partition(wanted, wanted.partition, self._max_bytes, is_first=True)
                    return len(data.records or b"")
        return 0

    def read(self, *, may_block: bool = False) -> FetchResponse:
        """Raises NotCached where it would have to wait for a disk and may not."""
        self._may_block = may_block
        self.bytes_read, self.has_news, self.slices, self.sizes = 0, False, [], {}
        return FetchResponse(
            session_id=NO_SESSION,
            responses=[
                FetchableTopicResponse(
                    topic=topic.topic,
                    topic_id=topic.topic_id,
                    partitions=[self._read(wanted) for wanted in partitions],
                )
                for topic, partitions in self._topics
            ],
        )

    def _read(self, wanted: _Wanted) -> PartitionData:
        try:
            if wanted.partition is None:
                raise wanted.error or NotLeaderOrFollower()
            room = self._max_bytes - self.bytes_read
            data = self._read_partition(wanted, wanted.partition, room, is_first=self.bytes_read == 0)
        except KafkaError as error:
            self.has_news = True
            return _failed(wanted.request.partition, error)
        if isinstance(data.records, FileSlice):
            self.bytes_read += len(data.records)
            self.slices.append(data.records)
            self.sizes[wanted.partition.watchers] = len(data.records)
        elif data.diverging_epoch is not None:
            self.has_news = True
        return data

    def _read_partition(self, wanted: _Wanted, partition: Partition, room: int, *, is_first: bool) -> PartitionData:
        request = wanted.request
        partition.require_leader(request.current_leader_epoch)
        log = partition.log
        data = PartitionData(
            partition_index=request.partition,
            high_watermark=log.high_watermark,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log.log_start_offset,
            records=b"",
        )
        diverging = _divergence(partition, request)
        if diverging is not None:
            data.diverging_epoch = diverging
            return data
        end = partition.readable_end(self._isolation_level)
        limit = min(request.partition_max_bytes, room)
        found = log.read(request.fetch_offset, limit, end, at_least_one_batch=is_first, may_block=self._may_block)
        if self._isolation_level == READ_COMMITTED:
            data.aborted_transactions = []
        if found.slice is not None:
            data.records = found.slice
            if self._isolation_level == READ_COMMITTED:
                data.aborted_transactions = [
                    AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
                    for aborted in log.aborted_transactions(request.fetch_offset, end)
                ]
        return data


def _divergence(partition: Partition, request: FetchPartition) -> EpochEndOffset | None:
    """KIP-595: the reader's last epoch ended, here, before the offset it asks for."""
    if request.last_fetched_epoch < 0:
        return None
    epoch, end_offset = partition.log.end_offset_for_epoch(request.last_fetched_epoch)
    if epoch == NO_LEADER_EPOCH:
        raise OffsetOutOfRange(f"leader epoch {request.last_fetched_epoch} is newer than all that is known here")
    if epoch < request.last_fetched_epoch or end_offset < request.fetch_offset:
        return EpochEndOffset(epoch=epoch, end_offset=end_offset)
    return None


def _failed(index: int, error: KafkaError) -> PartitionData:
    return PartitionData(
        partition_index=index,
        error_code=error.code,
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=-1,
        records=b"",
    )


class DelayedFetch(DelayedOperation):
    """Waits until `min_bytes` can be read, something happens to a partition, or time is up."""

    __slots__ = ("_available", "_deferred", "_fetch", "_min_bytes", "_seen")

    def __init__(self, fetch: Fetch, min_bytes: int, deferred: Deferred[FetchResponse]) -> None:
        super().__init__()
        self._fetch = fetch
        self._min_bytes = min_bytes
        self._deferred = deferred
        self._available = fetch.bytes_read
        self._seen = fetch.sizes

    def is_satisfied(self, changed: Watchers) -> bool:
        if self._min_bytes <= 1:
            return True
        try:
            readable = self._fetch.readable_bytes(changed)
        except (KafkaError, NotCached):
            return True
        self._available += readable - self._seen.get(changed, 0)
        self._seen[changed] = readable
        return self._available >= self._min_bytes

    def on_completed(self) -> None:
        outcome: FetchResponse | Coroutine[Any, Any, FetchResponse]
        try:
            outcome = _with_warm_files(self._fetch.read(), self._fetch.slices, self._fetch.services)
        except NotCached:
            outcome = _read_in_worker(self._fetch)
        if isinstance(outcome, FetchResponse):
            self._deferred.resolve(outcome)
        else:
            self._fetch.services.spawn(self._resolve_later(outcome))

    async def _resolve_later(self, outcome: Coroutine[Any, Any, FetchResponse]) -> None:
        self._deferred.resolve(await outcome)


def _with_warm_files(
    response: FetchResponse, slices: list[FileSlice], services: Services
) -> FetchResponse | Coroutine[Any, Any, FetchResponse]:
    """What the page cache lacks is read by a worker first: the event loop never waits for a disk."""
    cold = [part for part in slices if not part.file.is_cached(part.position, part.length)]
    return _warm(response, cold, services) if cold else response


async def _warm(response: FetchResponse, cold: list[FileSlice], services: Services) -> FetchResponse:
    for part in cold:
        await services.workers.run(part.read)
    return response


async def _read_in_worker(fetch: Fetch) -> FetchResponse:
    """Even finding the place would have waited. What is there is answered, be it less than asked for."""
    response = await fetch.services.workers.run(fetch.read, may_block=True)
    return await _warm(response, fetch.slices, fetch.services)
