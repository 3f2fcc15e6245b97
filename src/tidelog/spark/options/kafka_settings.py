"""Kafka client settings given as `kafka.*` options: supported ones, rejected ones, and ones without effect."""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import NamedTuple, TypeVar

from tidelog.client.consumer.consumer_settings import READ_COMMITTED, READ_UNCOMMITTED
from tidelog.client.network.bootstrap import BadBootstrap, parse_bootstrap
from tidelog.client.producer.producer_settings import ACKS_ALL
from tidelog.protocol.compression import Codec
from tidelog.spark.options.values import BadValue, milliseconds, non_empty_text, whole_number

T = TypeVar("T")

PREFIX = "kafka."
BOOTSTRAP = "bootstrap.servers"


class Side(Enum):
    READ = "read"
    WRITE = "write"
    BOTH = "read, write"


class KafkaSetting(NamedTuple):
    name: str
    """Kafka's name, without the prefix."""
    side: Side
    fields: tuple[str, ...]
    """Fields of ClientSettings."""
    parse: Callable[[str], object]
    allowed: str
    default: str
    documentation: str

    def is_for(self, side: Side) -> bool:
        return self.side in (side, Side.BOTH)


def _bootstrap(text: str) -> str:
    try:
        parse_bootstrap(text)
    except BadBootstrap as error:
        raise BadValue(f"must be a list of brokers: {error}") from None
    return text.strip()


def _isolation_level(text: str) -> int:
    return _one_of(text, {"read_uncommitted": READ_UNCOMMITTED, "read_committed": READ_COMMITTED})


def _acks(text: str) -> int:
    return _one_of(text, {"all": ACKS_ALL, "-1": ACKS_ALL, "1": 1, "0": 0})


def _compression(text: str) -> Codec:
    return _one_of(text, {"none": Codec.NONE} | {codec.setting: codec for codec in Codec if codec is not Codec.NONE})


def _one_of(text: str, meanings: Mapping[str, T]) -> T:
    found = meanings.get(text.strip().lower())
    if found is None:
        raise BadValue(f"must be one of {', '.join(meanings)}, not {text!r}")
    return found


def _transactional_id(text: str) -> str:
    if "#" in text:
        raise BadValue("must not contain '#'")
    return str(non_empty_text(text))


POSITIVE_INT = whole_number(at_least=1, at_most=2**31 - 1)

KAFKA_SETTINGS = (
    KafkaSetting(
        BOOTSTRAP, Side.BOTH, (), _bootstrap, "`HOST:PORT,HOST:PORT`", "required", "Addresses of the brokers."
    ),
    KafkaSetting(
        "client.id",
        Side.BOTH,
        ("client_id",),
        non_empty_text,
        "text",
        "`tidelog-spark`",
        "Client id, as seen in the logs of brokers.",
    ),
    KafkaSetting(
        "client.rack",
        Side.READ,
        ("client_rack",),
        str,
        "text",
        "none",
        "Rack of the tasks. Brokers with a rack-aware `replica.selector.class` let them read from a replica there.",
    ),
    KafkaSetting(
        "request.timeout.ms",
        Side.BOTH,
        ("request_timeout_s",),
        milliseconds,
        "milliseconds",
        "`30000`",
        "Timeout of one request.",
    ),
    KafkaSetting(
        "default.api.timeout.ms",
        Side.READ,
        ("timeout_s",),
        milliseconds,
        "milliseconds",
        "`120000`",
        "How long metadata and offset requests are retried while brokers are unavailable.",
    ),
    KafkaSetting(
        "isolation.level",
        Side.READ,
        ("isolation_level",),
        _isolation_level,
        "`read_uncommitted`, `read_committed`",
        "`read_uncommitted`",
        "Whether records of open and aborted transactions are read.",
    ),
    KafkaSetting(
        "max.partition.fetch.bytes",
        Side.READ,
        ("fetch_max_bytes",),
        POSITIVE_INT,
        "bytes",
        "see `fetchBytes`",
        "Same as `fetchBytes`, which takes precedence.",
    ),
    KafkaSetting(
        "fetch.max.wait.ms",
        Side.READ,
        ("fetch_max_wait_ms",),
        whole_number(at_least=0, at_most=2**31 - 1),
        "milliseconds",
        "`500`",
        "How long a broker may delay an empty response.",
    ),
    KafkaSetting(
        "group.id",
        Side.READ,
        ("group_id",),
        non_empty_text,
        "text",
        "none",
        "Consumer group under which the progress of a stream is published after each micro-batch, so that its lag"
        " can be "
        "monitored. Nothing is read from it, no group is joined, and a group with members is not changed.",
    ),
    KafkaSetting(
        "acks",
        Side.WRITE,
        ("acks",),
        _acks,
        "`all`, `1`, `0`",
        "`all`",
        "Acknowledgements required for a write; duplicates are prevented only with `all`.",
    ),
    KafkaSetting(
        "compression.type",
        Side.WRITE,
        ("compression",),
        _compression,
        "`none`, `gzip`, `snappy`, `lz4`, `zstd`",
        "`none`",
        "Compression of record batches.",
    ),
    KafkaSetting(
        "batch.size",
        Side.WRITE,
        ("batch_bytes",),
        POSITIVE_INT,
        "bytes",
        "`524288`",
        "Size of record batches before compression.",
    ),
    KafkaSetting(
        "delivery.timeout.ms",
        Side.WRITE,
        ("delivery_timeout_s",),
        milliseconds,
        "milliseconds",
        "`120000`",
        "Time limit for a record to be acknowledged, including retries.",
    ),
    KafkaSetting(
        "max.block.ms",
        Side.WRITE,
        ("timeout_s",),
        milliseconds,
        "milliseconds",
        "`120000`",
        "How long requests for the topic and the transaction coordinator are retried while brokers are unavailable.",
    ),
    KafkaSetting(
        "transactional.id",
        Side.WRITE,
        ("transactional_id",),
        _transactional_id,
        "text",
        "from the query's id",
        "Prefix of the transactional ids of the query. It belongs to one checkpoint: another query, or the same query "
        "with a new checkpoint, needs another one. Required if the sink cannot read the checkpoint, and for `batchId`.",
    ),
    KafkaSetting(
        "transaction.timeout.ms",
        Side.WRITE,
        ("transaction_timeout_ms",),
        POSITIVE_INT,
        "milliseconds",
        "`900000`",
        "Time limit of a batch before it is aborted, counted from the start of its last task (with Apache Kafka from"
        " its "
        "own start). Brokers allow at most their `transaction.max.timeout.ms`.",
    ),
)

_FOR_READING = "Spark tracks the offsets of a query itself"
_BYTES = "keys and values are bytes; convert them with DataFrame operations"

REJECTED = {
    "auto.offset.reset": f"{_FOR_READING}; set 'startingOffsets' instead",
    "enable.auto.commit": _FOR_READING,
    "auto.commit.interval.ms": _FOR_READING,
    "key.deserializer": _BYTES,
    "value.deserializer": _BYTES,
    "key.serializer": _BYTES,
    "value.serializer": _BYTES,
    "interceptor.classes": "interceptors could change records",
    "partitioner.class": "Java partitioners cannot run here; rows with a key go where Kafka's default partitioner puts "
    "them, and a column 'partition' chooses the partition of each row",
}
"""Rejected settings by name, with the reason."""

WITHOUT_EFFECT = frozenset(
    {
        "allow.auto.create.topics",
        "buffer.memory",
        "check.crcs",
        "client.dns.lookup",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.zstd.level",
        "config.providers",
        "connections.max.idle.ms",
        "enable.idempotence",
        "enable.metrics.push",
        "exclude.internal.topics",
        "fetch.max.bytes",
        "fetch.min.bytes",
        "group.instance.id",
        "group.protocol",
        "group.remote.assignor",
        "heartbeat.interval.ms",
        "linger.ms",
        "max.in.flight.requests.per.connection",
        "max.poll.interval.ms",
        "max.poll.records",
        "max.request.size",
        "metadata.max.age.ms",
        "metadata.max.idle.ms",
        "metadata.recovery.rebootstrap.trigger.ms",
        "metadata.recovery.strategy",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "partition.assignment.strategy",
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
        "partitioner.ignore.keys",
        "receive.buffer.bytes",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "retries",
        "retry.backoff.max.ms",
        "retry.backoff.ms",
        "send.buffer.bytes",
        "session.timeout.ms",
        "socket.connection.setup.timeout.max.ms",
        "socket.connection.setup.timeout.ms",
    }
)
"""Settings of Kafka's clients that have no effect here."""


def is_security_setting(name: str) -> bool:
    """TLS and SASL: `kafka.security.protocol`, `kafka.ssl.*`, `kafka.sasl.*`."""
    return name.startswith(("ssl.", "sasl.", "security."))
