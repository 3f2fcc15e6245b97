"""Fetch session cache (R22, KIP-227): the broker remembers the partitions of a reader, and answers with changes only.

Every partition of a session has a CachedPartition that observes it, and marks itself dirty when its response may have
changed. A fetch visits only dirty partitions and those that the request names: a session of a thousand partitions,
one of them active, costs what a session of one partition costs.
"""

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeAlias

from tidelog.errors import (
    NO_ERROR,
    FetchSessionIdNotFound,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpoch,
    KafkaError,
)
from tidelog.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from tidelog.replication.partition import Partition
from tidelog.runtime.clock import Clock
from tidelog.runtime.purgatory import Observer, Purgatory, Watchers
from tidelog.runtime.randomness import Randomness
from tidelog.server.fetching import AnyFetch, Fetch, Reader, RequestedPartition, SessionlessFetch
from tidelog.types import NO_BROKER, NO_OFFSET, Uuid

FINAL_EPOCH = -1
FULL_EPOCH = 0
LAST_EPOCH = 2**31 - 1

EVICTION_S = 120.0
"""Age without use at which a session is evicted, and age at which a larger session may evict it."""

MAX_CLIENT_PARTITIONS = 2**16
"""Partitions in all sessions of clients together, about 40 MB. The slots alone would allow gigabytes. Above this a
client gets no session, as if there were no slot: its fetches name all partitions."""

CachedPartitionKey: TypeAlias = tuple[str | Uuid, int]
EvictableKey: TypeAlias = tuple[bool, int, int]
"""Privileged, number of partitions, session id: the lowest key is evicted first."""


class CachedPartition(RequestedPartition):
    """One partition of a session, with the offsets of its last response."""

    __slots__ = ("_quiet", "_watched", "high_watermark", "log_start_offset", "session")

    def __init__(self, session: "FetchSession", topic: str, topic_id: Uuid, request: FetchPartition) -> None:
        super().__init__(topic, topic_id, request)
        self.session = session
        self.high_watermark = NO_OFFSET
        self.log_start_offset = NO_OFFSET
        self._watched: tuple[tuple[Watchers, Observer], ...] = ()
        self._quiet = _QuietObserver(self)

    def ask(self, request: FetchPartition) -> None:
        """Update the request parameters. A reader that has not advanced may have missed the last response."""
        known, self.request = self.request, request
        is_new_epoch = request.current_leader_epoch != known.current_leader_epoch
        if is_new_epoch or request.fetch_offset <= known.fetch_offset:
            self.high_watermark = self.log_start_offset = NO_OFFSET

    def on_changed(self) -> None:
        session = self.session
        session.dirty[self] = None
        if session.watchers.operations:
            session.woken[self] = None
            session.purgatory.changed(session.watchers)

    @property
    def is_waiting(self) -> bool:
        return bool(self.session.watchers.operations)

    def find(self, reader: Reader) -> None:
        """Look up the partition: it may have been created, deleted or recreated since the last fetch."""
        try:
            partition = reader.find(self)
        except KafkaError as error:
            self.error_code = error.code
            self.leave()
            return
        if partition is not self.partition:
            self.leave()
            self._observe(partition, reader)

    def _observe(self, partition: Partition, reader: Reader) -> None:
        self.partition, self.error_code = partition, NO_ERROR
        if reader.is_follower:
            # A new high watermark goes out with the next response. It completes a waiting fetch only if the follower
            # named its own: then consumers wait there (R23).
            self._watched = ((partition.end_watchers, self), (partition.watchers, self._quiet))
        else:
            self._watched = ((partition.watchers, self),)
        for watchers, observer in self._watched:
            watchers.observers[observer] = None

    def leave(self) -> None:
        for watchers, observer in self._watched:
            watchers.observers.pop(observer, None)
        self.partition, self._watched = None, ()

    def must_respond(self, data: PartitionData) -> bool:
        """Whether `data` contains anything that the reader does not have."""
        return (
            bool(data.records)
            or data.error_code != NO_ERROR
            or data.diverging_epoch is not None
            or data.preferred_read_replica != NO_BROKER
            or data.high_watermark != self.high_watermark
            or data.log_start_offset != self.log_start_offset
        )

    def record_response(self, data: PartitionData) -> None:
        # After an error or a divergence the next good response must be sent in any case.
        self.high_watermark = data.high_watermark if data.diverging_epoch is None else NO_OFFSET
        self.log_start_offset = data.log_start_offset
        if self.request.high_watermark < data.high_watermark and data.diverging_epoch is None:
            self.request.high_watermark = data.high_watermark


class _QuietObserver:
    """Marks a cached partition dirty without completing the waiting fetch, unless the follower waits for this."""

    __slots__ = ("_entry",)

    def __init__(self, entry: CachedPartition) -> None:
        self._entry = entry

    @property
    def is_waiting(self) -> bool:
        return False  # followers wait for records

    def on_changed(self) -> None:
        entry = self._entry
        partition = entry.partition
        if partition is not None and entry.request.high_watermark < partition.log.high_watermark:
            entry.on_changed()
        else:
            entry.session.dirty[entry] = None


class FetchSession:
    """The partitions of one reader, and the dirty ones among them in order."""

    __slots__ = (
        "counted_partitions",
        "created_at",
        "dirty",
        "entries",
        "epoch",
        "id",
        "is_closed",
        "is_privileged",
        "principal",
        "purgatory",
        "rank",
        "used_at",
        "uses_topic_ids",
        "watchers",
        "woken",
    )

    def __init__(self, session_id: int, reader: Reader, purgatory: Purgatory, now: float) -> None:
        self.id = session_id
        self.is_privileged = reader.is_follower
        self.principal = reader.context.session.principal
        self.uses_topic_ids = reader.uses_topic_ids
        self.epoch = FULL_EPOCH
        self.created_at = self.used_at = now
        self.is_closed = False
        self.counted_partitions = 0
        self.rank: tuple[EvictableKey, bool] | None = None
        self.entries: dict[CachedPartitionKey, CachedPartition] = {}
        self.dirty: dict[CachedPartition, None] = {}
        self.woken: dict[CachedPartition, None] = {}
        """Partitions that changed while a fetch waits."""
        self.watchers = Watchers()
        self.purgatory = purgatory

    def belongs_to(self, reader: Reader) -> bool:
        """Session ids can be guessed: nobody else may use or close the session, nor learn its topics."""
        return self.principal == reader.context.session.principal and self.is_privileged == reader.is_follower

    def update(self, request: FetchRequest) -> None:
        for topic in request.topics:
            name = topic.topic_id if self.uses_topic_ids else topic.topic
            for requested in topic.partitions:
                entry = self.entries.get((name, requested.partition))
                if entry is None:
                    entry = CachedPartition(self, topic.topic, topic.topic_id, requested)
                    self.entries[name, requested.partition] = entry
                entry.ask(requested)
                self.dirty[entry] = None
        for forgotten in request.forgotten_topics_data:
            name = forgotten.topic_id if self.uses_topic_ids else forgotten.topic
            for index in forgotten.partitions:
                entry = self.entries.pop((name, index), None)
                if entry is not None:
                    entry.leave()
                    self.dirty.pop(entry, None)

    def advance(self) -> None:
        self.epoch = 1 if self.epoch == LAST_EPOCH else self.epoch + 1

    def complete_waiting_fetches(self) -> None:
        """Complete waiting fetches of the session with the data available now."""
        for operation in list(self.watchers.operations):
            operation.complete()

    def close(self) -> None:
        self.is_closed = True
        for entry in self.entries.values():
            entry.leave()
        self.entries.clear()
        self.dirty.clear()
        self.complete_waiting_fetches()


class SessionFetch(Fetch[CachedPartition]):
    """One fetch of a session. It waits on the watchers of the session, not of each partition."""

    __slots__ = ("_epoch", "_is_full", "_session", "_visited")

    def __init__(self, request: FetchRequest, reader: Reader, session: FetchSession, *, is_full: bool) -> None:
        super().__init__(request, reader)
        self.has_partitions = True
        self._session = session
        self._epoch = session.epoch
        self._is_full = is_full
        self._visited: list[CachedPartition] = []

    @property
    def size(self) -> int:
        return len(self._session.entries if self._is_full else self._session.dirty)

    def begin(self) -> Sequence[CachedPartition]:
        """Start a pass over the dirty partitions. A partition becomes dirty again if it changes, or has more data."""
        if self.found:
            self._clear()
        session = self._session
        self._visited = list(session.entries.values() if self._is_full else session.dirty)
        session.dirty.clear()
        return self._visited

    def find(self, requested: CachedPartition) -> None:
        requested.find(self.reader)

    @property
    def is_superseded(self) -> bool:
        """A later request closed or advanced the session. Removed partitions must not be looked up again."""
        return self._session.is_closed or self._session.epoch != self._epoch

    def response(self) -> FetchResponse:
        session = self._session
        if session.is_closed:
            return FetchResponse(error_code=FetchSessionIdNotFound.code)
        if session.epoch != self._epoch:  # a later request of the session came while this one waited
            self.requeue()
            return FetchResponse(error_code=InvalidFetchSessionEpoch.code)
        topics: dict[str | Uuid, FetchableTopicResponse] = {}
        sizes = self.sizes
        for entry, data in self.found:
            if self._is_full or entry in sizes or entry.must_respond(data):
                name = entry.topic_id if session.uses_topic_ids else entry.topic
                topic = topics.get(name)
                if topic is None:
                    topic = topics[name] = FetchableTopicResponse(entry.topic, entry.topic_id, [])
                topic.partitions.append(data)
                entry.record_response(data)
        self._mark_dirty()
        return FetchResponse(session_id=session.id, responses=list(topics.values()))

    def _mark_dirty(self) -> None:
        """Partitions that returned records move to the end of the order, so that none starves."""
        dirty, sizes = self._session.dirty, self.sizes
        for entry, data in self.found:
            if data.error_code != NO_ERROR:
                entry.leave()  # the next fetch looks it up again; an abandoned session observes nothing
            if entry not in sizes and (_is_error_or_divergence(data) or entry.is_ready(self.reader)):
                dirty[entry] = None
        for entry in sizes:
            dirty[entry] = None

    def requeue(self) -> None:
        self._session.dirty.update(dict.fromkeys(self._visited))

    def watched(self) -> list[Watchers]:
        session, is_follower = self._session, self.reader.is_follower
        for entry, data in self.found:
            if entry.must_respond(data) or entry.is_ready(self.reader):
                session.dirty[entry] = None
            if not is_follower and entry.partition is not None:
                entry.partition.on_consumer_waits()
        session.woken.clear()
        return [session.watchers]

    def changed(self, watchers: Watchers) -> Iterable[CachedPartition]:
        woken, self._session.woken = self._session.woken, {}
        return woken


def _is_error_or_divergence(data: PartitionData) -> bool:
    return data.error_code != NO_ERROR or data.diverging_epoch is not None


def _partition_count(request: FetchRequest) -> int:
    return sum(len(topic.partitions) for topic in request.topics)


class FetchSessionStatistics(NamedTuple):
    sessions: int
    partitions: int
    evictions: int


class FetchSessionCache:
    """The sessions of one broker, limited by slots; evicted by Kafka's rules."""

    def __init__(
        self, purgatory: Purgatory, randomness: Randomness, clock: Clock, max_sessions: Callable[[], int]
    ) -> None:
        self._purgatory = purgatory
        self._randomness = randomness
        self._clock = clock
        self._max_sessions = max_sessions
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        """Least recently used first."""
        self._evictable_by_all: list[EvictableKey] = []
        self._evictable_by_privileged: list[EvictableKey] = []
        self._evictions = 0
        self._client_partitions = 0

    def statistics(self) -> FetchSessionStatistics:
        return FetchSessionStatistics(
            sessions=len(self._sessions),
            partitions=sum(len(session.entries) for session in self._sessions.values()),
            evictions=self._evictions,
        )

    def partitions_of(self, session_id: int) -> list[CachedPartition]:
        """What an incremental fetch of this session asks for without naming it; empty if there is no such session."""
        session = self._sessions.get(session_id)
        return [] if session is None else list(session.entries.values())

    def begin(self, request: FetchRequest, reader: Reader) -> AnyFetch:
        """Create the fetch of a request. Raises an error that makes the reader send a full fetch request."""
        if request.session_epoch in (FULL_EPOCH, FINAL_EPOCH):
            return self._begin_full(request, reader)
        session = self._sessions.get(request.session_id)
        if session is None or not session.belongs_to(reader):
            raise FetchSessionIdNotFound
        if request.session_epoch != session.epoch:
            raise InvalidFetchSessionEpoch
        if reader.uses_topic_ids != session.uses_topic_ids:
            raise FetchSessionTopicIdError
        if request.topics and not self._has_room(reader, request):
            self._remove(session)
            raise FetchSessionIdNotFound
        # Responses leave in order: the waiting fetch must complete before this one can be answered.
        session.complete_waiting_fetches()
        session.advance()
        session.update(request)
        if not session.entries:
            self._remove(session)
            return SessionlessFetch(request, reader)
        self._touch(session)
        return SessionFetch(request, reader, session, is_full=False)

    def _begin_full(self, request: FetchRequest, reader: Reader) -> AnyFetch:
        earlier = self._sessions.get(request.session_id)
        if earlier is not None and earlier.belongs_to(reader):
            self._remove(earlier)
        self._remove_abandoned()
        size = _partition_count(request)
        if request.session_epoch == FINAL_EPOCH or not size or not self._has_room(reader, request):
            return SessionlessFetch(request, reader)
        if not self._try_evict(reader.is_follower, size):
            return SessionlessFetch(request, reader)
        session = FetchSession(self._new_id(), reader, self._purgatory, self._clock.monotonic())
        session.advance()
        session.update(request)
        self._sessions[session.id] = session
        self._touch(session)
        return SessionFetch(request, reader, session, is_full=True)

    def _has_room(self, reader: Reader, request: FetchRequest) -> bool:
        """Brokers are few, and need their sessions."""
        return reader.is_follower or self._client_partitions + _partition_count(request) <= MAX_CLIENT_PARTITIONS

    def _new_id(self) -> int:
        while True:
            session_id = self._randomness.below(2**31 - 1) + 1
            if session_id not in self._sessions:
                return session_id

    # ---- eviction

    def _try_evict(self, is_privileged: bool, size: int) -> bool:
        if len(self._sessions) < self._max_sessions():
            return True
        ranks = self._evictable_by_privileged if is_privileged else self._evictable_by_all
        if not ranks or (is_privileged, size, 0) < ranks[0]:
            return False
        self._evict(self._sessions[ranks[0][2]])
        return True

    def _remove_abandoned(self) -> None:
        """Kafka keeps them until slots run out. Here each costs a little whenever one of its partitions changes."""
        limit = self._clock.monotonic() - EVICTION_S
        while self._sessions and (stalest := next(iter(self._sessions.values()))).used_at < limit:
            self._evict(stalest)

    def _evict(self, session: FetchSession) -> None:
        self._remove(session)
        self._evictions += 1

    def _touch(self, session: FetchSession) -> None:
        now = self._clock.monotonic()
        self._count(session)
        session.used_at = now
        self._sessions.move_to_end(session.id)
        rank = (session.is_privileged, len(session.entries), session.id)
        is_old = now - session.created_at > EVICTION_S
        if session.rank != (rank, is_old):
            self._forget_rank(session)
            session.rank = (rank, is_old)
            if is_old:
                insort(self._evictable_by_all, rank)
            if is_old or not session.is_privileged:
                insort(self._evictable_by_privileged, rank)

    def _forget_rank(self, session: FetchSession) -> None:
        if session.rank is not None:
            rank, _ = session.rank
            for ranks in (self._evictable_by_all, self._evictable_by_privileged):
                position = bisect_left(ranks, rank)
                if position < len(ranks) and ranks[position] == rank:
                    del ranks[position]

    def _remove(self, session: FetchSession) -> None:
        del self._sessions[session.id]
        self._forget_rank(session)
        session.close()
        self._count(session)

    def _count(self, session: FetchSession) -> None:
        if not session.is_privileged:
            self._client_partitions += len(session.entries) - session.counted_partitions
            session.counted_partitions = len(session.entries)
