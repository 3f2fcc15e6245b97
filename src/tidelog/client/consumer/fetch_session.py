"""Client side of a fetch session (KIP-227): builds incremental Fetch requests.

A full request names every partition and opens a session. After it each request names only changed partitions.
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


class _RequestedPartition(NamedTuple):
    topic_id: Uuid
    request: FetchPartition


class FetchSessionHandler:
    """Session with one broker. Call `on_response` or `on_lost` after each `build`, before the next one."""

    def __init__(self) -> None:
        self._requested: dict[TopicPartition, _RequestedPartition] = {}
        self._changed: dict[TopicPartition, None] = {}
        self._forgotten: dict[tuple[TopicPartition, Uuid], None] = {}
        self._session_partitions: dict[TopicPartition, Uuid] = {}
        """Partitions that the broker has in the session, with their topic id."""
        self._uses_topic_ids = True
        self._session_id = NO_SESSION
        self._epoch = FULL_EPOCH

    def __len__(self) -> int:
        return len(self._requested)

    def __contains__(self, key: TopicPartition) -> bool:
        return key in self._requested

    def set(self, key: TopicPartition, topic_id: Uuid, requested: FetchPartition) -> None:
        """Add or change a partition."""
        session_topic_id = self._session_partitions.get(key)
        if session_topic_id is not None and session_topic_id != topic_id:
            self._forget(key)
        self._requested[key] = _RequestedPartition(topic_id, requested)
        self._changed[key] = None

    def remove(self, key: TopicPartition) -> None:
        self._requested.pop(key, None)
        self._changed.pop(key, None)
        if key in self._session_partitions:
            self._forget(key)

    def _forget(self, key: TopicPartition) -> None:
        self._forgotten[key, self._session_partitions.pop(key)] = None

    def build(self, *, use_topic_ids: bool) -> SessionRequest:
        if use_topic_ids != self._uses_topic_ids:
            self._uses_topic_ids = use_topic_ids
            self._epoch = FULL_EPOCH  # a session uses names or ids, not both; the full request closes the old session
        if self._epoch == FULL_EPOCH:
            named, forgotten = list(self._requested), []
            self._session_partitions = {}
        else:
            named, forgotten = list(self._changed), self._forgotten_topics()
        self._changed, self._forgotten = {}, {}
        self._session_partitions.update((key, self._requested[key].topic_id) for key in named)
        return SessionRequest(self._session_id, self._epoch, self._topics(named), forgotten)

    def _topics(self, named: list[TopicPartition]) -> list[FetchTopic]:
        """Grouped by topic, in the order of the first partition of each."""
        topics: dict[tuple[str, Uuid], FetchTopic] = {}
        for key in named:
            topic_id, request = self._requested[key]
            topic = topics.get((key.topic, topic_id))
            if topic is None:
                topic = topics[key.topic, topic_id] = FetchTopic(key.topic, topic_id, [])
            topic.partitions.append(request)
        return list(topics.values())

    def _forgotten_topics(self) -> list[ForgottenTopic]:
        topics: dict[tuple[str, Uuid], list[int]] = {}
        for key, topic_id in self._forgotten:
            # A partition that was added again must not be forgotten: brokers forget after they add.
            requested = self._requested.get(key)
            if requested is None or (self._uses_topic_ids and requested.topic_id != topic_id):
                topics.setdefault((key.topic, topic_id), []).append(key.partition)
        return [ForgottenTopic(name, topic_id, partitions) for (name, topic_id), partitions in topics.items()]

    def behind(self) -> SessionRequest | None:
        """An empty request to send behind a delayed one: the broker then completes both. Each response goes to
        `on_response`. None while there is no session."""
        if self._epoch == FULL_EPOCH:
            return None
        return SessionRequest(self._session_id, _after(self._epoch), [], [])

    def on_response(self, response: FetchResponse) -> bool:
        """False: the session is invalid, and the next request is a full one."""
        if response.error_code != NO_ERROR:
            if response.error_code == FetchSessionIdNotFound.code:
                self._session_id = NO_SESSION
            self._epoch = FULL_EPOCH
            return False
        self._session_id = response.session_id
        if response.session_id == NO_SESSION:
            self._epoch = FULL_EPOCH  # the broker created no session: every request is a full one
        else:
            self._epoch = _after(self._epoch)
        return True

    def on_lost(self) -> None:
        """No response: the state of the session is unknown. The next full request closes it."""
        self._epoch = FULL_EPOCH


def _after(epoch: int) -> int:
    return 1 if epoch == LAST_EPOCH else epoch + 1
