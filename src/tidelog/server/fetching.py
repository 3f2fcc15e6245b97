"""One Fetch on its way to an answer (R15): collects what partitions decide to give, and says what to wait for."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

from tidelog.errors import NO_ERROR, InconsistentTopicId, KafkaError, NotLeaderOrFollower
from tidelog.protocol.messages.fetch import (
    TOPIC_IDS_FROM_VERSION,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from tidelog.replication.fetch_reads import FetchParams
from tidelog.replication.partition import Partition
from tidelog.runtime.disk import FileSlice
from tidelog.runtime.purgatory import Watchers
from tidelog.server.dispatch import Call
from tidelog.storage.segment import NotCached
from tidelog.types import Uuid

NO_SESSION = 0


class Wanted:
    """One partition that is asked for, found or not."""

    __slots__ = ("error_code", "partition", "request", "topic", "topic_id")

    def __init__(self, topic: str, topic_id: Uuid, request: FetchPartition) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.request = request
        self.partition: Partition | None = None
        self.error_code = NO_ERROR  # why it was not found

    def is_ready(self, params: FetchParams) -> bool:
        """Whether reading now would bring records or an error; found without reading."""
        return self.partition is None or self.partition.is_ready_to_fetch(params, self.request)


class Reader(FetchParams):
    """Who asks, and by which call."""

    __slots__ = ("call", "services", "uses_topic_ids")

    def __init__(self, request: FetchRequest, call: Call) -> None:
        state = request.replica_state
        if state is None:
            super().__init__(request.replica_id, -1, request.isolation_level)
        else:
            super().__init__(state.replica_id, state.replica_epoch, request.isolation_level)
        self.call = call
        self.uses_topic_ids = call.version >= TOPIC_IDS_FROM_VERSION
        self.services = call.services

    def find(self, wanted: Wanted) -> Partition:
        services, index = self.services, wanted.request.partition
        if not self.uses_topic_ids:
            partition = services.partition(wanted.topic, index)
        else:
            partition = services.partition(services.cluster.topic_name(wanted.topic_id), index)
            if partition.topic_id != wanted.topic_id:
                raise InconsistentTopicId
        partition.traffic.fetches += 1
        return partition

    def watchers_of(self, partition: Partition) -> Watchers:
        return partition.end_watchers if self.is_follower else partition.watchers


def failed(index: int, error_code: int) -> PartitionData:
    return PartitionData(
        partition_index=index,
        error_code=error_code,
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=-1,
        records=b"",
    )


W = TypeVar("W", bound=Wanted)


class Fetch(ABC, Generic[W]):
    """One request. It is read in one pass or, while it does not have enough, in several.

    A pass is `begin`, then `find` and `read_one` for each partition that this named, on the event loop. Where a disk
    would have to be waited for (`is_cold`) a worker reads all of it once more: `read_in_worker` changes nothing else.
    """

    __slots__ = (
        "bytes_read",
        "found",
        "has_news",
        "is_cold",
        "max_bytes",
        "reader",
        "sizes",
        "slices",
        "wants_anything",
    )

    def __init__(self, request: FetchRequest, reader: Reader) -> None:
        self.reader = reader
        self.wants_anything = bool(request.topics)
        self.max_bytes = min(request.max_bytes, reader.services.settings.fetch_max_bytes)
        self._clear()

    def _clear(self) -> None:
        self.bytes_read = 0
        self.has_news = False  # an error or a diverging epoch: nothing to wait for
        self.is_cold = False
        self.slices: list[FileSlice] = []
        self.sizes: dict[W, int] = {}
        self.found: list[tuple[W, PartitionData]] = []
        """What this pass has read, in order."""

    # ---- a pass

    @property
    @abstractmethod
    def size(self) -> int:
        """How many partitions a pass looks at."""

    @abstractmethod
    def begin(self) -> Sequence[W]:
        """Start a pass: the partitions that it looks at."""

    @abstractmethod
    def find(self, wanted: W) -> None:
        """Look up the partition, or note why there is none."""

    def read_in_worker(self) -> None:
        looked_at = [wanted for wanted, _ in self.found]
        self._clear()
        for wanted in looked_at:
            self.read_one(wanted, None, may_block=True)

    def read_one(self, wanted: W, recorded_at_ms: int | None, *, may_block: bool = False) -> None:
        """At most as many bytes as are left, unless nothing was read yet: then one whole batch in any case.

        `recorded_at_ms`: when the request of a follower came; None if it was recorded before (R17).
        """
        partition, request, bytes_read = wanted.partition, wanted.request, self.bytes_read
        if partition is None:
            self.has_news = True
            self.found.append((wanted, failed(request.partition, wanted.error_code)))
            return
        try:
            data = partition.fetch_records(
                self.reader,
                request,
                self.max_bytes - bytes_read,
                at_least_one_batch=bytes_read == 0,
                may_block=may_block,
                recorded_at_ms=recorded_at_ms,
            )
        except KafkaError as error:
            self.has_news = True
            partition.traffic.count_failed_fetch(error)
            data = failed(request.partition, error.code)
        except NotCached:
            self.is_cold = True
            data = failed(request.partition, NO_ERROR)
        else:
            records = data.records
            if isinstance(records, FileSlice):
                self.bytes_read += len(records)
                self.slices.append(records)
                self.sizes[wanted] = len(records)
            elif data.diverging_epoch is not None:
                self.has_news = True
        self.found.append((wanted, data))

    @property
    def is_overtaken(self) -> bool:
        """Whether the answer will be an error, whatever is read: no use to go on with the pass."""
        return False

    def is_ready(self) -> bool:
        """Whether something can be read by now that this pass has not found."""
        return any(wanted.is_ready(self.reader) for wanted, _ in self.found)

    # ---- the answer

    @abstractmethod
    def response(self) -> FetchResponse:
        """What was read."""

    @abstractmethod
    def put_back(self) -> None:
        """What was read is not answered now."""

    @abstractmethod
    def watched(self) -> list[Watchers]:
        """What to wait for."""

    @abstractmethod
    def changed(self, watchers: Watchers) -> Iterable[W]:
        """Which partitions may have moved when one of the watched has."""

    def count_sent(self) -> None:
        """For metrics; what is read and not answered does not count."""
        if self.reader.is_follower:
            self.reader.services.replicas.traffic.replication_bytes_out += self.bytes_read
            return
        for wanted, size in self.sizes.items():
            if wanted.partition is not None:
                wanted.partition.traffic.bytes_out += size

    def readable_bytes(self, wanted: W) -> int:
        """How much one partition has for this request by now. Raises what reading it would raise."""
        if wanted.partition is None:
            raise NotLeaderOrFollower
        data = wanted.partition.fetch_records(self.reader, wanted.request, self.max_bytes)
        return len(data.records or b"")


AnyFetch: TypeAlias = Fetch[Any]


class SessionlessFetch(Fetch[Wanted]):
    """Names all it wants, and is told of all of it."""

    __slots__ = ("_by_watchers", "_topics", "_wanted")

    def __init__(self, request: FetchRequest, reader: Reader) -> None:
        super().__init__(request, reader)
        self._topics = request.topics
        self._wanted = [
            Wanted(topic.topic, topic.topic_id, wanted) for topic in request.topics for wanted in topic.partitions
        ]
        self._by_watchers: dict[Watchers, Wanted] = {}

    @property
    def size(self) -> int:
        return len(self._wanted)

    def begin(self) -> Sequence[Wanted]:
        if self.found:
            self._clear()
        return self._wanted

    def find(self, wanted: Wanted) -> None:
        """Once: whoever waits is told when something happens to the partition that was found."""
        if wanted.partition is None and wanted.error_code == NO_ERROR:
            try:
                wanted.partition = self.reader.find(wanted)
            except KafkaError as error:
                wanted.error_code = error.code

    def response(self) -> FetchResponse:
        read = iter(self.found)
        return FetchResponse(
            session_id=NO_SESSION,
            responses=[
                FetchableTopicResponse(topic.topic, topic.topic_id, [next(read)[1] for _ in topic.partitions])
                for topic in self._topics
            ],
        )

    def put_back(self) -> None:
        """Nothing is kept from one request to the next."""

    def watched(self) -> list[Watchers]:
        for wanted in self._wanted:
            if wanted.partition is not None:
                self._by_watchers[self.reader.watchers_of(wanted.partition)] = wanted
        return list(self._by_watchers)

    def changed(self, watchers: Watchers) -> Iterable[Wanted]:
        return (self._by_watchers[watchers],)
