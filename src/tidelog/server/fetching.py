"""What a Fetch reads, before it is an answer (R15): consumers up to what is committed, followers up to the end."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator

from tidelog.errors import NO_ERROR, InconsistentTopicId, KafkaError, NotLeaderOrFollower
from tidelog.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from tidelog.replication.partition import READ_COMMITTED, Partition
from tidelog.runtime.disk import FileSlice
from tidelog.runtime.purgatory import Watchers
from tidelog.server.dispatch import Call
from tidelog.types import Uuid

TOPIC_IDS_FROM_VERSION = 13
NO_SESSION = 0


class Wanted:
    """One partition that is asked for, found or not."""

    __slots__ = ("error_code", "partition", "request")

    def __init__(self, request: FetchPartition) -> None:
        self.request = request
        self.partition: Partition | None = None
        self.error_code = NO_ERROR  # why it was not found


class Reader:
    """Who asks, and how: what all partitions of one Fetch have in common."""

    __slots__ = ("call", "is_follower", "isolation_level", "replica_epoch", "replica_id", "services", "uses_topic_ids")

    def __init__(self, request: FetchRequest, call: Call) -> None:
        state = request.replica_state
        self.replica_id = request.replica_id if state is None else state.replica_id
        self.replica_epoch = -1 if state is None else state.replica_epoch
        self.is_follower = self.replica_id >= 0
        self.isolation_level = request.isolation_level
        self.call = call
        self.uses_topic_ids = call.version >= TOPIC_IDS_FROM_VERSION
        self.services = call.services

    def find(self, topic: str, topic_id: Uuid, index: int) -> Partition:
        services = self.services
        if self.is_follower and services.is_fenced:
            raise NotLeaderOrFollower("this broker may have lost its leaderships without knowing")
        if not self.uses_topic_ids:
            partition = services.partition(topic, index)
        else:
            partition = services.partition(services.cluster.topic_name(topic_id), index)
            if partition.topic_id != topic_id:
                raise InconsistentTopicId
        partition.traffic.fetches += 1
        return partition

    def watchers_of(self, partition: Partition) -> Watchers:
        return partition.end_watchers if self.is_follower else partition.watchers

    def check(self, request: FetchPartition, partition: Partition) -> None:
        """R16, R39. Raises what the reader must be told before anything is read."""
        if self.is_follower:
            partition.require_leader(request.current_leader_epoch)
            partition.require_follower(self.replica_id, self.replica_epoch)
        else:
            partition.require_leader_for_reading(request.current_leader_epoch)

    def count(self, wanted: Wanted, now_ms: int) -> None:
        """R17: tell the leader how far its follower is, unless the follower has something else than the leader."""
        partition, request = wanted.partition, wanted.request
        if partition is None:
            return
        try:
            self.check(request, partition)
            if _divergence(partition, request) is not None:
                return
        except KafkaError:
            return  # reading meets it again, and tells
        if partition.log.log_start_offset <= request.fetch_offset <= partition.log.log_end_offset:
            partition.on_follower_fetch(self.replica_id, request.fetch_offset, request.log_start_offset, now_ms)

    def read(
        self, request: FetchPartition, partition: Partition, room: int, is_first: bool, may_block: bool
    ) -> PartitionData:
        """At most `room` bytes, unless nothing was read yet: then one whole batch in any case."""
        self.check(request, partition)
        log = partition.log
        data = PartitionData(
            partition_index=request.partition,
            high_watermark=log.high_watermark,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log.log_start_offset,
            records=b"",
        )
        if request.last_fetched_epoch >= 0:
            data.diverging_epoch = _divergence(partition, request)
            if data.diverging_epoch is not None:
                return data
        end = partition.readable_end(self.isolation_level, is_follower=self.is_follower)
        limit = min(request.partition_max_bytes, room)
        if limit <= 0 and not is_first and log.log_start_offset <= request.fetch_offset <= log.log_end_offset:
            return data
        found = log.read(request.fetch_offset, limit, end, at_least_one_batch=is_first, may_block=may_block).slice
        if found is not None:
            data.records = found
        if self.isolation_level == READ_COMMITTED and not self.is_follower:
            data.aborted_transactions = []
            if found is not None:
                end = log.end_of_slice(found, request.fetch_offset, end, may_block=may_block)
                data.aborted_transactions = _aborted(partition, request.fetch_offset, end)
        return data

    def finds_something(self, wanted: Wanted) -> bool:
        """Whether reading now would bring records or an error; found without reading."""
        partition, request = wanted.partition, wanted.request
        if partition is None:
            return True
        try:
            self.check(request, partition)
        except KafkaError:
            return True
        return request.fetch_offset < partition.readable_end(self.isolation_level, is_follower=self.is_follower)


def _aborted(partition: Partition, first_offset: int, end_offset: int) -> list[AbortedTransaction]:
    return [
        AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
        for aborted in partition.log.aborted_transactions(first_offset, end_offset)
    ]


def _divergence(partition: Partition, request: FetchPartition) -> EpochEndOffset | None:
    """KIP-595: the reader's last epoch ended, here, before the offset it asks for."""
    log = partition.log
    found = log.leader_epochs.diverging_epoch(request.last_fetched_epoch, request.fetch_offset, log.log_end_offset)
    return None if found is None else EpochEndOffset(epoch=found.epoch, end_offset=found.end_offset)


def failed(index: int, error_code: int) -> PartitionData:
    return PartitionData(
        partition_index=index,
        error_code=error_code,
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=-1,
        records=b"",
    )


class Fetch(ABC):
    """One request, which may be read several times until it has enough.

    `prepare` and `response` run on the event loop; `read` in between only reads, and may run in a worker.
    """

    __slots__ = ("bytes_read", "has_news", "max_bytes", "reader", "sizes", "slices", "wants_anything")

    def __init__(self, request: FetchRequest, reader: Reader) -> None:
        self.reader = reader
        self.wants_anything = bool(request.topics)
        self.max_bytes = min(request.max_bytes, reader.services.settings.fetch_max_bytes)

    def _clear(self) -> None:
        self.bytes_read = 0
        self.has_news = False  # an error or a diverging epoch: nothing to wait for
        self.slices: list[FileSlice] = []
        self.sizes: dict[Wanted, int] = {}

    @abstractmethod
    def prepare(self) -> None:
        """Choose what the next `read` looks at."""

    @abstractmethod
    def count(self, now_ms: int) -> None:
        """R17, once per request of a follower, also when its answer will wait."""

    @abstractmethod
    def read(self, *, may_block: bool = False) -> None:
        """Raises NotCached where it would have to wait for a disk and may not."""

    @property
    @abstractmethod
    def size(self) -> int:
        """How many partitions `prepare` and `read` look at."""

    @abstractmethod
    def steps(self, counted_at_ms: int | None) -> Iterator[None]:
        """`prepare`, `count` if there is a time, and `read`; others may have their turn between any two steps.

        Where it raises NotCached all is prepared.
        """

    @abstractmethod
    def finds_something(self) -> bool:
        """Whether there is anything to read by now."""

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
    def changed(self, watchers: Watchers) -> Iterable[Wanted]:
        """Which partitions may have moved when one of the watched has."""

    def read_one(self, wanted: Wanted, may_block: bool) -> PartitionData:
        if wanted.partition is None:
            self.has_news = True
            return failed(wanted.request.partition, wanted.error_code)
        bytes_read = self.bytes_read
        try:
            data = self.reader.read(
                wanted.request, wanted.partition, self.max_bytes - bytes_read, bytes_read == 0, may_block
            )
        except KafkaError as error:
            self.has_news = True
            wanted.partition.traffic.count_failed_fetch(error)
            return failed(wanted.request.partition, error.code)
        if isinstance(data.records, FileSlice):
            self.bytes_read += len(data.records)
            self.slices.append(data.records)
            self.sizes[wanted] = len(data.records)
        elif data.diverging_epoch is not None:
            self.has_news = True
        return data

    def count_sent(self) -> None:
        """For metrics; what is read and not answered does not count."""
        if self.reader.is_follower:
            self.reader.services.replicas.traffic.replication_bytes_out += self.bytes_read
            return
        for wanted, size in self.sizes.items():
            if wanted.partition is not None:
                wanted.partition.traffic.bytes_out += size

    def readable_bytes(self, wanted: Wanted) -> int:
        """How much one partition has for this request by now. Raises what reading it would raise."""
        if wanted.partition is None:
            raise NotLeaderOrFollower
        data = self.reader.read(wanted.request, wanted.partition, self.max_bytes, True, False)
        return len(data.records or b"")


class SessionlessFetch(Fetch):
    """Names all it wants, and is told of all of it."""

    __slots__ = ("_answers", "_by_watchers", "_is_found", "_topics")

    def __init__(self, request: FetchRequest, reader: Reader) -> None:
        super().__init__(request, reader)
        self._topics = [(topic, [Wanted(wanted) for wanted in topic.partitions]) for topic in request.topics]
        self._is_found = False
        self._answers: list[FetchableTopicResponse] = []
        self._by_watchers: dict[Watchers, Wanted] = {}

    def _find(self, topic: FetchTopic, wanted: Wanted) -> None:
        try:
            wanted.partition = self.reader.find(topic.topic, topic.topic_id, wanted.request.partition)
        except KafkaError as error:
            wanted.error_code = error.code

    def prepare(self) -> None:
        if not self._is_found:
            self._is_found = True
            for topic, partitions in self._topics:
                for wanted in partitions:
                    self._find(topic, wanted)

    @property
    def size(self) -> int:
        return sum(len(partitions) for _, partitions in self._topics)

    def steps(self, counted_at_ms: int | None) -> Iterator[None]:
        is_found, self._is_found = self._is_found, True
        for topic, partitions in self._topics:
            for wanted in partitions:
                if not is_found:
                    self._find(topic, wanted)
                if counted_at_ms is not None:
                    self.reader.count(wanted, counted_at_ms)
                yield
        self._clear()
        self._answers = []
        for topic, partitions in self._topics:
            answers: list[PartitionData] = []
            self._answers.append(FetchableTopicResponse(topic.topic, topic.topic_id, answers))
            for wanted in partitions:
                answers.append(self.read_one(wanted, may_block=False))
                yield

    def finds_something(self) -> bool:
        return any(self.reader.finds_something(wanted) for _, partitions in self._topics for wanted in partitions)

    def count(self, now_ms: int) -> None:
        for _, partitions in self._topics:
            for wanted in partitions:
                self.reader.count(wanted, now_ms)

    def read(self, *, may_block: bool = False) -> None:
        self._clear()
        self._answers = [
            FetchableTopicResponse(
                topic.topic, topic.topic_id, [self.read_one(wanted, may_block) for wanted in partitions]
            )
            for topic, partitions in self._topics
        ]

    def response(self) -> FetchResponse:
        return FetchResponse(session_id=NO_SESSION, responses=self._answers)

    def put_back(self) -> None:
        """Nothing is kept from one request to the next."""

    def watched(self) -> list[Watchers]:
        for _, partitions in self._topics:
            for wanted in partitions:
                if wanted.partition is not None:
                    self._by_watchers[self.reader.watchers_of(wanted.partition)] = wanted
        return list(self._by_watchers)

    def changed(self, watchers: Watchers) -> Iterable[Wanted]:
        return (self._by_watchers[watchers],)
