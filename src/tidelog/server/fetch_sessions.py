"""Fetch sessions on the serving side (R22, KIP-227): the broker remembers what a reader wants, and tells what changed.

Every partition of a session has an entry that observes it. An entry is dirty when it may have something to say;
a round of fetching looks only at dirty entries and at those the request names, so that a thousand partitions of
which one moves cost what one costs.
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
from tidelog.server.fetching import AnyFetch, Fetch, Reader, SessionlessFetch, Wanted
from tidelog.types import NO_OFFSET, Uuid

FINAL_EPOCH = -1
FULL_EPOCH = 0
LAST_EPOCH = 2**31 - 1

EVICTION_S = 120.0
"""A session unused for this long is forgotten; one that exists for this long gives way to a larger one."""

EntryKey: TypeAlias = tuple[str | Uuid, int]
Rank: TypeAlias = tuple[bool, int, int]
"""Privileged, size, id: the lowest is the first to go."""


class SessionEntry(Wanted):
    """One partition of a session, and what the reader was last told of it."""

    __slots__ = ("_quiet", "_watched", "high_watermark", "log_start_offset", "session")

    def __init__(self, session: "Session", topic: str, topic_id: Uuid, request: FetchPartition) -> None:
        super().__init__(topic, topic_id, request)
        self.session = session
        self.high_watermark = NO_OFFSET
        self.log_start_offset = NO_OFFSET
        self._watched: tuple[tuple[Watchers, Observer], ...] = ()
        self._quiet = _QuietObserver(self)

    def ask(self, request: FetchPartition) -> None:
        """Whoever names a partition again and has not moved on may not have taken what it was told."""
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

    def find(self, reader: Reader) -> None:
        """The partition may have come, gone or been made anew since the last look."""
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
            # A new high watermark is told with the next answer, and is no reason to give one.
            self._watched = ((partition.end_watchers, self), (partition.watchers, self._quiet))
        else:
            self._watched = ((partition.watchers, self),)
        for watchers, observer in self._watched:
            watchers.observers[observer] = None

    def leave(self) -> None:
        for watchers, observer in self._watched:
            watchers.observers.pop(observer, None)
        self.partition, self._watched = None, ()

    def is_told_by(self, data: PartitionData) -> bool:
        """Whether there is anything in it that the reader does not know."""
        return (
            bool(data.records)
            or data.error_code != NO_ERROR
            or data.diverging_epoch is not None
            or data.high_watermark != self.high_watermark
            or data.log_start_offset != self.log_start_offset
        )

    def on_told(self, data: PartitionData) -> None:
        # After an error or a divergence the reader is told again as soon as all is well.
        self.high_watermark = data.high_watermark if data.diverging_epoch is None else NO_OFFSET
        self.log_start_offset = data.log_start_offset


class _QuietObserver:
    """Marks an entry without waking its reader."""

    __slots__ = ("_entry",)

    def __init__(self, entry: SessionEntry) -> None:
        self._entry = entry

    def on_changed(self) -> None:
        self._entry.session.dirty[self._entry] = None


class Session:
    """What one reader wants, and which of it may have something to say, first in line first."""

    __slots__ = (
        "created_at",
        "dirty",
        "entries",
        "epoch",
        "id",
        "is_closed",
        "is_privileged",
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
        self.uses_topic_ids = reader.uses_topic_ids
        self.epoch = FULL_EPOCH
        self.created_at = self.used_at = now
        self.is_closed = False
        self.rank: tuple[Rank, bool] | None = None
        self.entries: dict[EntryKey, SessionEntry] = {}
        self.dirty: dict[SessionEntry, None] = {}
        self.woken: dict[SessionEntry, None] = {}
        """What changed while a request waits."""
        self.watchers = Watchers()
        self.purgatory = purgatory

    def update(self, request: FetchRequest) -> None:
        for topic in request.topics:
            name = topic.topic_id if self.uses_topic_ids else topic.topic
            for wanted in topic.partitions:
                entry = self.entries.get((name, wanted.partition))
                if entry is None:
                    entry = SessionEntry(self, topic.topic, topic.topic_id, wanted)
                    self.entries[name, wanted.partition] = entry
                entry.ask(wanted)
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

    def give_up_waiting(self) -> None:
        """Whoever waits with an earlier request is answered with what there is."""
        for operation in list(self.watchers.operations):
            operation.complete()

    def close(self) -> None:
        self.is_closed = True
        for entry in self.entries.values():
            entry.leave()
        self.entries.clear()
        self.dirty.clear()
        self.give_up_waiting()


class SessionFetch(Fetch[SessionEntry]):
    """One request of a session. It waits for the session, not for each of its partitions."""

    __slots__ = ("_epoch", "_is_full", "_looked_at", "_session")

    def __init__(self, request: FetchRequest, reader: Reader, session: Session, *, is_full: bool) -> None:
        super().__init__(request, reader)
        self.wants_anything = True
        self._session = session
        self._epoch = session.epoch
        self._is_full = is_full
        self._looked_at: list[SessionEntry] = []

    @property
    def size(self) -> int:
        return len(self._session.entries if self._is_full else self._session.dirty)

    def begin(self) -> Sequence[SessionEntry]:
        """What is taken off the dirty ones returns to them if it changes meanwhile or still has something to say."""
        if self.found:
            self._clear()
        session = self._session
        self._looked_at = list(session.entries.values() if self._is_full else session.dirty)
        session.dirty.clear()
        return self._looked_at

    def find(self, wanted: SessionEntry) -> None:
        wanted.find(self.reader)

    @property
    def is_overtaken(self) -> bool:
        """`response` says so then. An entry that was removed meanwhile must not be found again."""
        return self._session.is_closed or self._session.epoch != self._epoch

    def response(self) -> FetchResponse:
        session = self._session
        if session.is_closed:
            return FetchResponse(error_code=FetchSessionIdNotFound.code)
        if session.epoch != self._epoch:  # a later request of the session came while this one waited
            self.put_back()
            return FetchResponse(error_code=InvalidFetchSessionEpoch.code)
        topics: dict[str | Uuid, FetchableTopicResponse] = {}
        for entry, data in self.found:
            if self._is_full or entry.is_told_by(data):
                name = entry.topic_id if session.uses_topic_ids else entry.topic
                topic = topics.get(name)
                if topic is None:
                    topic = topics[name] = FetchableTopicResponse(entry.topic, entry.topic_id, [])
                topic.partitions.append(data)
                entry.on_told(data)
        self._mark_what_may_have_more()
        return FetchResponse(session_id=session.id, responses=list(topics.values()))

    def _mark_what_may_have_more(self) -> None:
        """Those that were given records go to the end of the line, so that none starves."""
        dirty = self._session.dirty
        for entry, data in self.found:
            if data.error_code != NO_ERROR:
                entry.leave()  # the next request finds it again; of a session left behind nothing stays
            if not data.records and (_is_news(data) or entry.is_ready(self.reader)):
                dirty[entry] = None
        for entry, data in self.found:
            if data.records:
                dirty[entry] = None

    def put_back(self) -> None:
        self._session.dirty.update(dict.fromkeys(self._looked_at))

    def watched(self) -> list[Watchers]:
        session = self._session
        for entry, data in self.found:
            if entry.is_told_by(data) or entry.is_ready(self.reader):
                session.dirty[entry] = None
        session.woken.clear()
        return [session.watchers]

    def changed(self, watchers: Watchers) -> Iterable[SessionEntry]:
        woken, self._session.woken = self._session.woken, {}
        return woken


def _is_news(data: PartitionData) -> bool:
    return data.error_code != NO_ERROR or data.diverging_epoch is not None


class FetchSessionStatistics(NamedTuple):
    sessions: int
    partitions: int
    evictions: int


class FetchSessions:
    """The sessions of one broker, as many as there are slots; who must give way to whom is as in Kafka."""

    def __init__(
        self, purgatory: Purgatory, randomness: Randomness, clock: Clock, max_sessions: Callable[[], int]
    ) -> None:
        self._purgatory = purgatory
        self._randomness = randomness
        self._clock = clock
        self._max_sessions = max_sessions
        self._sessions: OrderedDict[int, Session] = OrderedDict()
        """The one unused the longest first."""
        self._giving_way_to_all: list[Rank] = []
        self._giving_way_to_followers: list[Rank] = []
        self._evictions = 0

    def statistics(self) -> FetchSessionStatistics:
        return FetchSessionStatistics(
            sessions=len(self._sessions),
            partitions=sum(len(session.entries) for session in self._sessions.values()),
            evictions=self._evictions,
        )

    def begin(self, request: FetchRequest, reader: Reader) -> AnyFetch:
        """The fetch that the request is a part of. Raises what sends the reader back to a full request."""
        if request.session_epoch in (FULL_EPOCH, FINAL_EPOCH):
            return self._begin_full(request, reader)
        session = self._sessions.get(request.session_id)
        if session is None:
            raise FetchSessionIdNotFound
        if request.session_epoch != session.epoch:
            raise InvalidFetchSessionEpoch
        if reader.uses_topic_ids != session.uses_topic_ids:
            raise FetchSessionTopicIdError
        # Whoever asks again has something new to ask, and gets the answer to this only after the one that waits.
        session.give_up_waiting()
        session.advance()
        session.update(request)
        if not session.entries:
            self._remove(session)
            return SessionlessFetch(request, reader)
        self._touch(session)
        return SessionFetch(request, reader, session, is_full=False)

    def _begin_full(self, request: FetchRequest, reader: Reader) -> AnyFetch:
        earlier = self._sessions.get(request.session_id)
        if earlier is not None:
            self._remove(earlier)
        self._remove_abandoned()
        size = sum(len(topic.partitions) for topic in request.topics)
        if request.session_epoch == FINAL_EPOCH or not size or not self._make_room(reader.is_follower, size):
            return SessionlessFetch(request, reader)
        session = Session(self._new_id(), reader, self._purgatory, self._clock.monotonic())
        session.advance()
        session.update(request)
        self._sessions[session.id] = session
        self._touch(session)
        return SessionFetch(request, reader, session, is_full=True)

    def _new_id(self) -> int:
        while True:
            session_id = self._randomness.below(2**31 - 1) + 1
            if session_id not in self._sessions:
                return session_id

    # -- eviction

    def _make_room(self, is_privileged: bool, size: int) -> bool:
        if len(self._sessions) < self._max_sessions():
            return True
        ranks = self._giving_way_to_followers if is_privileged else self._giving_way_to_all
        if not ranks or (is_privileged, size, 0) < ranks[0]:
            return False
        self._evict(self._sessions[ranks[0][2]])
        return True

    def _remove_abandoned(self) -> None:
        """Kafka leaves them until there is no room; here each costs a little whenever one of its partitions moves."""
        limit = self._clock.monotonic() - EVICTION_S
        while self._sessions and (stalest := next(iter(self._sessions.values()))).used_at < limit:
            self._evict(stalest)

    def _evict(self, session: Session) -> None:
        self._remove(session)
        self._evictions += 1

    def _touch(self, session: Session) -> None:
        now = self._clock.monotonic()
        session.used_at = now
        self._sessions.move_to_end(session.id)
        rank = (session.is_privileged, len(session.entries), session.id)
        is_old = now - session.created_at > EVICTION_S
        if session.rank != (rank, is_old):
            self._forget_rank(session)
            session.rank = (rank, is_old)
            if is_old:
                insort(self._giving_way_to_all, rank)
            if is_old or not session.is_privileged:
                insort(self._giving_way_to_followers, rank)

    def _forget_rank(self, session: Session) -> None:
        if session.rank is not None:
            rank, _ = session.rank
            for ranks in (self._giving_way_to_all, self._giving_way_to_followers):
                position = bisect_left(ranks, rank)
                if position < len(ranks) and ranks[position] == rank:
                    del ranks[position]

    def _remove(self, session: Session) -> None:
        del self._sessions[session.id]
        self._forget_rank(session)
        session.close()
