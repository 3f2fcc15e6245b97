"""The asking side of a fetch session (KIP-227): what the next Fetch must say so that the broker knows what is wanted.

A full request names every partition and opens a session; after it each request names only what has changed.
"""

from typing import NamedTuple

from tidelog.errors import NO_ERROR, FetchSessionIdNotFound
from tidelog.protocol.messages.fetch import FetchPartition, FetchResponse, FetchTopic, ForgottenTopic
from tidelog.types import TopicPartition, Uuid

NO_SESSION = 0
FULL_EPOCH = 0
LAST_EPOCH = 2**31 - 1


class SessionRequest(NamedTuple):
    """The parts of a FetchRequest that belong to its session."""

    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    forgotten: list[ForgottenTopic]


class _Wanted(NamedTuple):
    topic_id: Uuid
    request: FetchPartition


class FetchSessionHandler:
    """One broker's. Every `build` is followed by `on_answer` or `on_lost` before the next `build`."""

    def __init__(self) -> None:
        self._wanted: dict[TopicPartition, _Wanted] = {}
        self._changed: dict[TopicPartition, None] = {}
        self._forgotten: dict[tuple[TopicPartition, Uuid], None] = {}
        self._known: dict[TopicPartition, Uuid] = {}
        """What the broker has in the session, under which topic id."""
        self._uses_topic_ids = True
        self._session_id = NO_SESSION
        self._epoch = FULL_EPOCH

    def __len__(self) -> int:
        return len(self._wanted)

    def __contains__(self, key: TopicPartition) -> bool:
        return key in self._wanted

    def set(self, key: TopicPartition, topic_id: Uuid, wanted: FetchPartition) -> None:
        """Fetch this from now on. A partition stays as it was set until it is set again."""
        known_id = self._known.get(key)
        if known_id is not None and known_id != topic_id:
            self._forget(key)
        self._wanted[key] = _Wanted(topic_id, wanted)
        self._changed[key] = None

    def remove(self, key: TopicPartition) -> None:
        self._wanted.pop(key, None)
        self._changed.pop(key, None)
        if key in self._known:
            self._forget(key)

    def _forget(self, key: TopicPartition) -> None:
        self._forgotten[key, self._known.pop(key)] = None

    def build(self, *, use_topic_ids: bool) -> SessionRequest:
        if use_topic_ids != self._uses_topic_ids:
            self._uses_topic_ids = use_topic_ids
            self._epoch = FULL_EPOCH  # a session speaks of topics in one way; the broker closes the old one
        if self._epoch == FULL_EPOCH:
            named, forgotten = list(self._wanted), []
            self._known = {}
        else:
            named, forgotten = list(self._changed), self._forgotten_topics()
        self._changed, self._forgotten = {}, {}
        self._known.update((key, self._wanted[key].topic_id) for key in named)
        return SessionRequest(self._session_id, self._epoch, self._topics(named), forgotten)

    def _topics(self, named: list[TopicPartition]) -> list[FetchTopic]:
        """By topic, in the order in which the first partition of each was set."""
        topics: dict[tuple[str, Uuid], FetchTopic] = {}
        for key in named:
            topic_id, request = self._wanted[key]
            topic = topics.get((key.topic, topic_id))
            if topic is None:
                topic = topics[key.topic, topic_id] = FetchTopic(key.topic, topic_id, [])
            topic.partitions.append(request)
        return list(topics.values())

    def _forgotten_topics(self) -> list[ForgottenTopic]:
        topics: dict[tuple[str, Uuid], list[int]] = {}
        for key, topic_id in self._forgotten:
            wanted = self._wanted.get(key)  # it may have been set again; brokers forget after they add
            if wanted is None or (self._uses_topic_ids and wanted.topic_id != topic_id):
                topics.setdefault((key.topic, topic_id), []).append(key.partition)
        return [ForgottenTopic(name, topic_id, partitions) for (name, topic_id), partitions in topics.items()]

    def behind(self) -> SessionRequest | None:
        """A request with nothing new, to be sent behind the one that is not answered yet: a broker that holds that
        one back then answers both. Each answer goes to `on_answer`. None while there is no session."""
        if self._epoch == FULL_EPOCH:
            return None
        return SessionRequest(self._session_id, _after(self._epoch), [], [])

    def on_answer(self, response: FetchResponse) -> bool:
        """False: the request brought nothing, and the next one starts over with everything."""
        if response.error_code != NO_ERROR:
            if response.error_code == FetchSessionIdNotFound.code:
                self._session_id = NO_SESSION
            self._epoch = FULL_EPOCH
            return False
        self._session_id = response.session_id
        if response.session_id == NO_SESSION:
            self._epoch = FULL_EPOCH  # the broker keeps no session for us: every request is a full one
        else:
            self._epoch = _after(self._epoch)
        return True

    def on_lost(self) -> None:
        """No answer came: whether the broker saw the request is unknown. The next full one closes its session."""
        self._epoch = FULL_EPOCH


def _after(epoch: int) -> int:
    return 1 if epoch == LAST_EPOCH else epoch + 1
