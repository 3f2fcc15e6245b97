"""State of one Fetch request (R15): collects the data of its partitions, and names the watchers to wait on.

Partitions decide what a reader gets (`Partition.fetch_records`).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

from tidelog.authorization.acls import Operation, ResourceType
from tidelog.config.broker import RACK_AWARE_SELECTOR
from tidelog.errors import (
    NO_ERROR,
    InconsistentTopicId,
    KafkaError,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
)
from tidelog.protocol.messages.fetch import (
    RACKS_FROM_VERSION,
    TOPIC_IDS_FROM_VERSION,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from tidelog.replication.fetch_reads import NO_BROKERS, FetchParams
from tidelog.replication.partition import Partition
from tidelog.runtime.disk import FileSlice
from tidelog.runtime.purgatory import Watchers
from tidelog.server.dispatch import RequestContext
from tidelog.storage.segment import NotCached
from tidelog.types import NO_BROKER, Uuid

NO_SESSION = 0

DEBUGGING_CONSUMER_ID = -2
"""Replica id of Kafka's ReplicaVerificationTool, which reads from all replicas. It reads as a consumer does."""


class RequestedPartition:
    """One partition of a Fetch request, found or not."""

    __slots__ = ("error_code", "partition", "request", "topic", "topic_id")

    def __init__(self, topic: str, topic_id: Uuid, request: FetchPartition) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.request = request
        self.partition: Partition | None = None
        self.error_code = NO_ERROR  # set if the partition was not found

    def is_ready(self, params: FetchParams) -> bool:
        """Whether reading now would return records or an error; decided without reading."""
        return self.partition is None or self.partition.is_ready_to_fetch(params, self.request)


class Reader(FetchParams):
    """The reader of a Fetch request: a follower or a consumer, with its request context."""

    __slots__ = ("context", "services", "uses_topic_ids")

    def __init__(self, request: FetchRequest, context: RequestContext) -> None:
        state, services, version = request.replica_state, context.services, context.version
        replica_id, replica_epoch = (
            (request.replica_id, -1) if state is None else (state.replica_id, state.replica_epoch)
        )
        is_follower = replica_id >= 0
        same_rack = NO_BROKERS
        if request.rack_id and not is_follower and services.settings.replica_selector_class == RACK_AWARE_SELECTOR:
            same_rack = services.cluster.image.brokers_in_rack(request.rack_id, context.session.listener)
        super().__init__(
            replica_id,
            replica_epoch,
            request.isolation_level,
            fetch_only_leader=is_follower or (version < RACKS_FROM_VERSION and replica_id != DEBUGGING_CONSUMER_ID),
            same_rack=same_rack,
        )
        self.context = context
        self.uses_topic_ids = version >= TOPIC_IDS_FROM_VERSION
        self.services = services

    def find(self, requested: RequestedPartition) -> Partition:
        services, index = self.services, requested.request.partition
        topic = services.cluster.topic_name(requested.topic_id) if self.uses_topic_ids else requested.topic
        if services.authorizer is not None and self._is_denied(topic):
            raise TopicAuthorizationFailed
        try:  # not `services.partition` at once: one call less for every partition of a fetch
            partition = services.replicas.get(topic, index)
        except UnknownTopicOrPartition:
            partition = services.partition(topic, index)  # raises what fits the cluster
        if self.uses_topic_ids and partition.topic_id != requested.topic_id:
            raise InconsistentTopicId
        partition.traffic.fetches += 1
        return partition

    def _is_denied(self, topic: str) -> bool:
        """Followers have shown that they may read everything."""
        return not self.is_follower and self.context.is_denied(Operation.READ, ResourceType.TOPIC, topic)

    def is_throttled(self, partition: Partition) -> bool:
        """Whether the records are left out because the leader's quota is exceeded (Kafka: shouldLeaderThrottle, R24).

        Never for consumers (KAFKA-13614), nor for a replica in sync, which would fall out of the ISR.
        """
        if not partition.throttled.as_leader or not self.is_follower:
            return False
        leader = partition.leader
        if leader is None or self.replica_id in leader.in_sync_replicas:
            return False
        return self.services.quotas.leader.is_exceeded(self.services.clock.monotonic())

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


def _max_bytes_of_quota(reader: Reader, unlimited: int) -> int:
    principal, client_id = reader.context.session.principal, reader.context.client_id or ""
    limit = reader.services.client_quotas.max_fetch_bytes(principal.name, client_id)
    return unlimited if limit is None else limit


W = TypeVar("W", bound=RequestedPartition)


class Fetch(ABC, Generic[W]):
    """One Fetch request. It is read in one pass; if that returns too little, in another pass later.

    A pass is `begin`, then `find` and `read_one` for each partition that `begin` returned, on the event loop. If the
    data is not in the page cache (`is_uncached`), a worker reads all of it again with `read_in_worker`.
    """

    __slots__ = (
        "bytes_read",
        "found",
        "has_error_or_divergence",
        "has_partitions",
        "is_uncached",
        "is_urgent",
        "max_bytes",
        "reader",
        "sizes",
        "slices",
        "unconfirmed",
    )

    def __init__(self, request: FetchRequest, reader: Reader) -> None:
        self.reader = reader
        self.has_partitions = bool(request.topics)
        self.max_bytes = min(request.max_bytes, reader.services.settings.fetch_max_bytes)
        if reader.services.client_quotas.table and not reader.is_follower:
            self.max_bytes = min(self.max_bytes, _max_bytes_of_quota(reader, self.max_bytes))
        self._clear()

    def _clear(self) -> None:
        self.bytes_read = 0
        self.has_error_or_divergence = False  # answered at once
        self.is_urgent = False  # answered at once: another replica is preferred, or a follower waits for its watermark
        self.is_uncached = False
        self.unconfirmed: list[tuple[Partition, PartitionData]] = []
        """Offsets beyond the log end. Consumers take that error for final: ask the store first who leads."""
        self.slices: list[FileSlice] = []
        self.sizes: dict[W, int] = {}
        self.found: list[tuple[W, PartitionData]] = []
        """Data of this pass, in order."""

    # ---- a pass

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of partitions that a pass visits."""

    @abstractmethod
    def begin(self) -> Sequence[W]:
        """Start a pass and return the partitions to visit."""

    @abstractmethod
    def find(self, requested: W) -> None:
        """Look up the partition, or record the error."""

    def read_in_worker(self) -> None:
        visited = [requested for requested, _ in self.found]
        self._clear()
        for requested in visited:
            self.read_one(requested, None, may_block=True)

    def read_one(self, requested: W, recorded_at_ms: int | None, *, may_block: bool = False) -> None:
        """Read up to the remaining bytes; the first partition returns at least one whole batch (KIP-74).

        `recorded_at_ms`: arrival of a follower's request; None for consumers and repeated passes (R17).
        """
        partition, request, bytes_read = requested.partition, requested.request, self.bytes_read
        if partition is None:
            self.has_error_or_divergence = True
            data = failed(request.partition, requested.error_code)
            if requested.error_code == TopicAuthorizationFailed.code:
                data.aborted_transactions = []  # as in Kafka; other errors have null
            self.found.append((requested, data))
            return
        # Errors, divergence, high watermark and progress are as ever; only the records are left out.
        is_throttled = self.reader.is_throttled(partition)
        if is_throttled and recorded_at_ms is not None:
            self.reader.services.quotas.leader.left_out += 1
        try:
            data = partition.fetch_records(
                self.reader,
                request,
                0 if is_throttled else self.max_bytes - bytes_read,
                at_least_one_batch=bytes_read == 0 and not is_throttled,
                may_block=may_block,
                recorded_at_ms=recorded_at_ms,
            )
        except KafkaError as error:
            self.has_error_or_divergence = True
            partition.traffic.count_failed_fetch(error)
            data = failed(request.partition, error.code)
            if isinstance(error, OffsetOutOfRange) and self._may_be_in_range(partition, request.fetch_offset):
                self.unconfirmed.append((partition, data))
        except NotCached:
            self.is_uncached = True
            data = failed(request.partition, NO_ERROR)
        else:
            records = data.records
            if isinstance(records, FileSlice):
                self.bytes_read += records.length
                self.slices.append(records)
                self.sizes[requested] = records.length
            elif data.diverging_epoch is not None:
                self.has_error_or_divergence = True
            if data.preferred_read_replica != NO_BROKER or request.high_watermark < data.high_watermark:
                self.is_urgent = True
        self.found.append((requested, data))

    def _may_be_in_range(self, partition: Partition, offset: int) -> bool:
        """Whether another broker that leads by now, unknown to this one, may have the offset."""
        return not self.reader.is_follower and partition.leader is not None and offset > partition.log.log_end_offset

    async def confirm_range(self) -> None:
        """An offset that is out of range here may be in range at another leader: answer NOT_LEADER_OR_FOLLOWER then."""
        unconfirmed, self.unconfirmed = self.unconfirmed, []
        confirmation = self.reader.services.replicas.leader_confirmation
        confirmed = await confirmation.ask_all(partition for partition, _ in unconfirmed)
        for (_, data), is_leader in zip(unconfirmed, confirmed, strict=True):
            if not is_leader:
                data.error_code = NotLeaderOrFollower.code

    @property
    def is_superseded(self) -> bool:
        """Whether the response is an error in any case, so that the pass can stop."""
        return False

    def is_ready(self) -> bool:
        """Whether data has arrived that this pass has not read."""
        return any(self.is_readable(requested) for requested, _ in self.found)

    def is_readable(self, requested: W) -> bool:
        """Whether a partition would now return records or an error. If it is throttled, the fetch waits (R24)."""
        partition = requested.partition
        return requested.is_ready(self.reader) and (partition is None or not self.reader.is_throttled(partition))

    # ---- the response

    @abstractmethod
    def response(self) -> FetchResponse:
        """The response with the data that was read."""

    @abstractmethod
    def requeue(self) -> None:
        """The data of this pass is not sent: keep its partitions for the next one."""

    @abstractmethod
    def watched(self) -> list[Watchers]:
        """The watchers to wait on."""

    @abstractmethod
    def changed(self, watchers: Watchers) -> Iterable[W]:
        """Partitions that may have changed when `watchers` fired."""

    def record_bytes_out(self) -> None:
        """Metrics of bytes out: only data that is sent counts."""
        if self.reader.is_follower:
            traffic, replica_id = self.reader.services.replicas.traffic, self.reader.replica_id
            traffic.replication_bytes_out += self.bytes_read
            for wanted, size in self.sizes.items():
                partition = wanted.partition
                if partition is not None and replica_id in partition.adding_replicas:
                    traffic.reassignment_bytes_out += size
                if partition is not None and partition.throttled.as_leader:
                    services = self.reader.services
                    services.quotas.leader.record(size, services.clock.monotonic())
            return
        for requested, size in self.sizes.items():
            if requested.partition is not None:
                requested.partition.traffic.bytes_out += size

    def is_high_watermark_due(self, requested: W) -> bool:
        """Whether a follower waits for a newer high watermark than the one it named (R23)."""
        partition = requested.partition
        return partition is not None and requested.request.high_watermark < partition.log.high_watermark

    def readable_bytes(self, requested: W) -> int:
        """Bytes that one partition has for this request now. Raises the errors of a read."""
        if requested.partition is None:
            raise NotLeaderOrFollower
        is_throttled = self.reader.is_throttled(requested.partition)
        data = requested.partition.fetch_records(
            self.reader,
            requested.request,
            0 if is_throttled else self.max_bytes,
            at_least_one_batch=not is_throttled,
        )
        return len(data.records or b"")


AnyFetch: TypeAlias = Fetch[Any]


class SessionlessFetch(Fetch[RequestedPartition]):
    """A full fetch without session: all requested partitions are in the response."""

    __slots__ = ("_by_watchers", "_requested", "_topics")

    def __init__(self, request: FetchRequest, reader: Reader) -> None:
        super().__init__(request, reader)
        self._topics = request.topics
        self._requested = [
            RequestedPartition(topic.topic, topic.topic_id, requested)
            for topic in request.topics
            for requested in topic.partitions
        ]
        self._by_watchers: dict[Watchers, RequestedPartition] = {}

    @property
    def size(self) -> int:
        return len(self._requested)

    def begin(self) -> Sequence[RequestedPartition]:
        if self.found:
            self._clear()
        return self._requested

    def find(self, requested: RequestedPartition) -> None:
        """Looked up once: a waiting fetch is woken by the partition that was found."""
        if requested.partition is None and requested.error_code == NO_ERROR:
            try:
                requested.partition = self.reader.find(requested)
            except KafkaError as error:
                requested.error_code = error.code

    def response(self) -> FetchResponse:
        read = iter(self.found)
        return FetchResponse(
            session_id=NO_SESSION,
            responses=[
                FetchableTopicResponse(topic.topic, topic.topic_id, [next(read)[1] for _ in topic.partitions])
                for topic in self._topics
            ],
        )

    def requeue(self) -> None:
        """No state outlives the request."""

    def watched(self) -> list[Watchers]:
        for requested in self._requested:
            partition = requested.partition
            if partition is not None:
                self._by_watchers[self.reader.watchers_of(partition)] = requested
                partition.on_consumer_waits()
        return list(self._by_watchers)

    def changed(self, watchers: Watchers) -> Iterable[RequestedPartition]:
        return (self._by_watchers[watchers],)
