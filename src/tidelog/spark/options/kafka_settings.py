"""The settings of Kafka's clients, given as `kafka.*` options: what they mean here, if anything."""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import NamedTuple, TypeVar

from tidelog.client.bootstrap import BadBootstrap, parse_bootstrap
from tidelog.client.consumer_settings import READ_COMMITTED, READ_UNCOMMITTED
from tidelog.client.producer_settings import ACKS_ALL
from tidelog.protocol.compression import Codec
from tidelog.spark.options.values import BadValue, milliseconds, whole_number, words

T = TypeVar("T")

PREFIX = "kafka."
BOOTSTRAP = "bootstrap.servers"
SECURITY_PROTOCOL = "security.protocol"


class Side(Enum):
    READ = "read"
    WRITE = "write"
    BOTH = "read, write"


class KafkaSetting(NamedTuple):
    name: str
    """Kafka's, without the prefix."""
    side: Side
    fields: tuple[str, ...]
    """Of ClientSettings."""
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
        raise BadValue(f"says where the brokers are: {error}") from None
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
        raise BadValue("must be without '#'")
    return str(words(text))


POSITIVE_INT = whole_number(at_least=1, at_most=2**31 - 1)

KAFKA_SETTINGS = (
    KafkaSetting(
        BOOTSTRAP, Side.BOTH, (), _bootstrap, "`HOST:PORT,HOST:PORT`", "must be given", "Where to find the brokers."
    ),
    KafkaSetting(
        "client.id", Side.BOTH, ("client_id",), words, "text", "`tidelog-spark`", "The name in brokers' logs."
    ),
    KafkaSetting(
        "request.timeout.ms",
        Side.BOTH,
        ("request_timeout_s",),
        milliseconds,
        "milliseconds",
        "`30000`",
        "How long to wait for one answer.",
    ),
    KafkaSetting(
        "default.api.timeout.ms",
        Side.READ,
        ("timeout_s",),
        milliseconds,
        "milliseconds",
        "`120000`",
        "How long to go on asking for topics and offsets while brokers are away.",
    ),
    KafkaSetting(
        "isolation.level",
        Side.READ,
        ("isolation_level",),
        _isolation_level,
        "`read_uncommitted`, `read_committed`",
        "`read_uncommitted`",
        "Whether records of transactions that are open or were aborted are read.",
    ),
    KafkaSetting(
        "max.partition.fetch.bytes",
        Side.READ,
        ("fetch_max_bytes",),
        POSITIVE_INT,
        "bytes",
        "see `fetchBytes`",
        "The same as `fetchBytes`, which wins if both are given.",
    ),
    KafkaSetting(
        "fetch.max.wait.ms",
        Side.READ,
        ("fetch_max_wait_ms",),
        whole_number(at_least=0, at_most=2**31 - 1),
        "milliseconds",
        "`500`",
        "How long a broker may hold back an answer that would be empty.",
    ),
    KafkaSetting(
        "group.id",
        Side.READ,
        ("group_id",),
        words,
        "text",
        "none",
        "The consumer group as which the progress of a stream is published after each micro-batch, for whoever watches "
        "its lag. Nothing is read from it, no group is joined, and a group that has members is left alone.",
    ),
    KafkaSetting(
        "acks",
        Side.WRITE,
        ("acks",),
        _acks,
        "`all`, `1`, `0`",
        "`all`",
        "Who must have a record before it counts as written; only with `all` are repeats kept out.",
    ),
    KafkaSetting(
        "compression.type",
        Side.WRITE,
        ("compression",),
        _compression,
        "`none`, `gzip`, `snappy`, `lz4`, `zstd`",
        "`none`",
        "How batches of records are compressed.",
    ),
    KafkaSetting(
        "batch.size",
        Side.WRITE,
        ("batch_bytes",),
        POSITIVE_INT,
        "bytes",
        "`524288`",
        "How large a batch of records grows, before compression.",
    ),
    KafkaSetting(
        "delivery.timeout.ms",
        Side.WRITE,
        ("delivery_timeout_s",),
        milliseconds,
        "milliseconds",
        "`120000`",
        "How long to go on trying to have a record acknowledged.",
    ),
    KafkaSetting(
        "max.block.ms",
        Side.WRITE,
        ("timeout_s",),
        milliseconds,
        "milliseconds",
        "`120000`",
        "How long to go on asking for the topic, and for the coordinator of the transaction, while brokers are away.",
    ),
    KafkaSetting(
        "transactional.id",
        Side.WRITE,
        ("transactional_id",),
        _transactional_id,
        "text",
        "from the query's id",
        "What the transactions of the query are named after. It stands for one checkpoint: another query, or the same "
        "with a new checkpoint, needs another. Needed where the sink cannot read the checkpoint, and for `batchId`.",
    ),
    KafkaSetting(
        "transaction.timeout.ms",
        Side.WRITE,
        ("transaction_timeout_ms",),
        POSITIVE_INT,
        "milliseconds",
        "`900000`",
        "How long a batch may take before it is aborted, counted from the start of its last task (with Apache Kafka "
        "from its own start). Brokers allow at most their `transaction.max.timeout.ms`.",
    ),
)

_FOR_READING = "Spark keeps the position of a query itself"
_BYTES = "keys and values are bytes; convert them with DataFrame operations"

REFUSED = {
    "auto.offset.reset": f"{_FOR_READING}; set 'startingOffsets' instead",
    "enable.auto.commit": _FOR_READING,
    "auto.commit.interval.ms": _FOR_READING,
    "key.deserializer": _BYTES,
    "value.deserializer": _BYTES,
    "key.serializer": _BYTES,
    "value.serializer": _BYTES,
    "interceptor.classes": "they could change records on their way",
    "partitioner.class": "there is no Java to run it; rows with a key go where Kafka's own partitioner puts them, "
    "and a column 'partition' says it for each row",
}
"""By name, why."""

SECURE = "connections with TLS or SASL are not supported"

WITHOUT_EFFECT = frozenset(
    {
        "allow.auto.create.topics",
        "buffer.memory",
        "check.crcs",
        "client.dns.lookup",
        "client.rack",
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
"""Kafka's clients know them; here nothing depends on them."""


def is_secure(name: str, value: str) -> bool:
    """Whether the setting asks for a connection that is not plain."""
    if name == SECURITY_PROTOCOL:
        return value.strip().upper() != "PLAINTEXT"
    return name.startswith(("ssl.", "sasl.", "security."))
