"""Driver of a Kafka client: one small interface, so that every client runs the same features."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, Self

Acks = Literal["0", "1", "all"]
Compression = Literal["none", "gzip", "snappy", "lz4", "zstd"]
Isolation = Literal["read_uncommitted", "read_committed"]
Headers = tuple[tuple[str, bytes | None], ...]
NamedOffset = Literal["earliest", "latest", "max-timestamp"]

TIMEOUT_S = 30.0
POLL_S = 0.02
MAX_REQUEST_BYTES = 10_000_000
# A client that turns to another topic first waits for the answer to its last fetch: do not let that take long.
FETCH_WAIT_MS = 50
MEMBER_POLL_S = 0.05
MEMBER_HEARTBEAT_MS = 100
MEMBER_SESSION_MS = 10_000
# As a replication factor: default.replication.factor decides.
BROKERS_CHOICE = -1


class Capability(StrEnum):
    """What not every client offers; a feature names what it needs."""

    ADMINISTER_TOPICS = "administer topics"
    CREATE_PARTITIONS = "create partitions"
    DESCRIBE_CONFIGS = "describe configs"
    REPLACE_CONFIGS = "replace configs"
    INCREMENTAL_CONFIGS = "alter configs one by one"
    DELETE_RECORDS = "delete records"
    DESCRIBE_CLUSTER = "describe the cluster"
    DESCRIBE_LOG_DIRS = "describe log dirs"
    DESCRIBE_PRODUCERS = "describe producers"
    DESCRIBE_TOPIC_PARTITIONS = "describe topic partitions page by page"
    MAX_TIMESTAMP = "list the offset of the largest timestamp"
    REPORT_OFFSETS = "report the offsets of what was produced"
    SET_TIMESTAMPS = "set timestamps"
    TRANSACTIONS = "transactions"
    REPLACE_TRANSACTION_COORDINATOR = "turn to another coordinator in the middle of transactions"
    NULL_HEADER_VALUES = "null header values"
    NULL_KEY_AND_VALUE = "null key and null value in one record"
    READ_IN_RACK = "read from the replica in the client's rack (KIP-392)"
    READ_IN_GROUPS = "read in a group, commit and leave"
    JOIN_GROUPS = "join groups"
    JOIN_COOPERATIVELY = "give up only what others are to have"
    CONSUMER_PROTOCOL = "let the broker assign (KIP-848)"
    STATIC_MEMBERSHIP = "static membership"
    DESCRIBE_GROUPS = "describe groups"
    DELETE_GROUPS = "delete groups"


class Rejected(Exception):
    """The broker (or the client before it) refused: carries Kafka's error code."""

    def __init__(self, code: int, message: str = "") -> None:
        super().__init__(f"error {code}: {message}")
        self.code = code


@dataclass(frozen=True, slots=True)
class Record:
    """A record as it is given to a client."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Consumed:
    """A record as a client gave it back."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    leader: int
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    cluster_id: str | None
    controller: int
    brokers: Mapping[int, str]  # address by broker id


@dataclass(slots=True)
class ProducerOptions:
    compression: Compression = "none"
    acks: Acks = "all"
    idempotent: bool = False

    @property
    def key(self) -> tuple[str, str, bool]:
        return (self.compression, self.acks, self.idempotent)


@dataclass(slots=True)
class WriterReport:
    """Acknowledgements and errors of a writer that went on through a restart."""

    sent: list[bytes] = field(default_factory=list)
    acknowledged: list[bytes] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class MemberOptions:
    cooperative: bool = False
    is_assigned_by_broker: bool = False
    """It speaks the consumer protocol (KIP-848)."""
    instance_id: str | None = None
    """Of a static member: it comes back as the same member."""


@dataclass(frozen=True, slots=True)
class GroupDescription:
    state: str
    member_count: int


class GroupMember(ABC):
    """A consumer in a group, reading one topic from its beginning. It has to be polled to do its part in the group."""

    @abstractmethod
    def poll(self) -> list[tuple[int, Consumed]]:
        """What came within a moment, with its partition."""

    @abstractmethod
    def assignment(self) -> frozenset[int]:
        """The partitions that it has."""

    @abstractmethod
    def commit(self) -> None:
        """Everything that was polled is done with."""

    @abstractmethod
    def close(self) -> None:
        """Leaves the group, unless it is a static member."""


class Writer(ABC):
    """A producer that keeps on writing, whatever happens to the broker."""

    @abstractmethod
    def send(self, value: bytes) -> None: ...

    @abstractmethod
    def close(self) -> WriterReport:
        """Waits until everything sent was acknowledged or has failed."""


class Transactions(ABC):
    """A transactional producer. Whatever the broker refuses for good is Refused."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @abstractmethod
    def begin(self) -> None: ...

    @abstractmethod
    def send(self, topic: str, partition: int, records: Sequence[Record]) -> None:
        """Waits until they are acknowledged."""

    @abstractmethod
    def send_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        """The group has read so far, if the transaction is committed."""

    @abstractmethod
    def commit(self) -> None: ...

    @abstractmethod
    def abort(self) -> None: ...

    @abstractmethod
    def close(self) -> None: ...


class ClientDriver(ABC):
    """A client under test; methods that a client lacks are named in the registry and never called."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def close(self) -> None:
        """Lets go of everything; a client that holds nothing has nothing to do."""
        return

    @abstractmethod
    def produce(
        self, topic: str, records: Sequence[Record], options: ProducerOptions, partition: int = 0
    ) -> list[int | None]:
        """Sends the records, waits for their acknowledgement and returns their offsets where they are known."""

    @abstractmethod
    def consume(
        self, topic: str, partition: int, offset: int, count: int, isolation: Isolation = "read_committed"
    ) -> list[Consumed]:
        """Reads `count` records from `offset` on; an offset out of range means the earliest."""

    def consume_in_rack(self, topic: str, partition: int, count: int, rack: str) -> list[Consumed]:
        """Reads `count` records from the beginning on, as a new client in this rack."""
        raise NotImplementedError

    @abstractmethod
    def list_offset(self, topic: str, partition: int, at: NamedOffset | int) -> int | None:
        """The offset at a named place or at a timestamp; None where no record is that young."""

    @abstractmethod
    def list_topics(self) -> set[str]: ...

    @abstractmethod
    def describe_topic(self, topic: str) -> dict[int, PartitionDescription]: ...

    @abstractmethod
    def open_writer(self, topic: str, *, idempotent: bool) -> Writer: ...

    def open_transactions(self, transactional_id: str) -> Transactions:
        raise NotImplementedError

    def committed_offset(self, group: str, topic: str, partition: int) -> int | None:
        raise NotImplementedError

    def create_topic(
        self, topic: str, partitions: int, configs: Mapping[str, str], *, validate_only: bool = False
    ) -> None:
        raise NotImplementedError

    def delete_topic(self, topic: str) -> None:
        raise NotImplementedError

    def create_partitions(self, topic: str, total: int) -> None:
        raise NotImplementedError

    def describe_configs(self, kind: Literal["topic", "broker"], name: str) -> dict[str, str | None]:
        raise NotImplementedError

    def alter_configs(self, topic: str, changes: Mapping[str, str | None]) -> None:
        """Sets what has a value and gives the rest back to its default; leaves other settings alone."""
        raise NotImplementedError

    def replace_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        """Sets these and gives all others back to their defaults."""
        raise NotImplementedError

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        raise NotImplementedError

    def describe_cluster(self) -> ClusterDescription:
        raise NotImplementedError

    def log_dir_sizes(self) -> dict[tuple[str, int], int]:
        """Bytes on disk by topic and partition."""
        raise NotImplementedError

    def producer_ids(self, topic: str, partition: int) -> dict[int, int]:
        """The last sequence number by producer id."""
        raise NotImplementedError

    def page_of_topic_partitions(self, topic: str, limit: int) -> tuple[list[int], int | None]:
        """The first `limit` partitions, and the partition that the next page begins with."""
        raise NotImplementedError

    def join_group(self, group: str, topic: str, options: MemberOptions) -> GroupMember:
        raise NotImplementedError

    def read_in_group(self, group: str, topic: str, count: int) -> list[Consumed]:
        """As the only member: reads so many records, commits and leaves."""
        member = self.join_group(group, topic, MemberOptions())
        taken: list[Consumed] = []

        def has_taken() -> bool:
            taken.extend(record for _, record in member.poll())
            return len(taken) >= count

        try:
            wait_until(has_taken, f"{count} records are read in {group}")
            member.commit()
        finally:
            member.close()
        return taken

    def commit_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        """As somebody who assigns partitions by hand."""
        raise NotImplementedError

    def list_groups(self) -> set[str]:
        raise NotImplementedError

    def describe_group(self, group: str) -> GroupDescription:
        raise NotImplementedError

    def delete_group(self, group: str) -> None:
        raise NotImplementedError


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = TIMEOUT_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout_s:.0f} s in vain: {what}")
        time.sleep(POLL_S)
