"""Validated options of a query: ReadOptions and WriteOptions."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidelog.client.producer.producer_settings import ACKS_ALL
from tidelog.runtime.cluster_choice import NoCluster, choose_cluster
from tidelog.spark.offset_json import EARLIEST, LATEST, partitions_text
from tidelog.spark.options.client_settings import ClientSettings, client_settings
from tidelog.spark.options.delivery_guarantee import Guarantee
from tidelog.spark.options.kafka_settings import BOOTSTRAP, PREFIX, Side
from tidelog.spark.options.option_parsing import ParsedOptions
from tidelog.spark.options.option_table import BY_LOWER_NAME, SUBSCRIPTIONS, Query
from tidelog.spark.options.values import (
    AtOffsets,
    AtTimes,
    Edge,
    OffsetBound,
    OptionError,
    Subscription,
    TimestampStrategy,
    parsed,
)
from tidelog.spark.source.batch_planning import Limits
from tidelog.types import TopicPartition

__all__ = [
    "OptionError",
    "ReadOptions",
    "WriteOptions",
    "read_options",
    "wants_headers",
    "without_effect_in_sink",
    "without_effect_in_stream",
    "write_options",
]

DRIVER_READ_ROWS = 20_000


@dataclass(frozen=True, slots=True)
class ReadOptions:
    bootstrap: str
    subscription: Subscription
    starting: OffsetBound = Edge.EARLIEST
    ending: OffsetBound = Edge.LATEST
    """End of a batch query; a stream has none."""
    timestamp_strategy: TimestampStrategy = TimestampStrategy.ERROR
    fail_on_data_loss: bool = True
    include_headers: bool = False
    limits: Limits = field(default_factory=Limits)
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    driver_read_rows: int = DRIVER_READ_ROWS
    """Micro-batches of at most this many rows are read on the driver."""
    client: ClientSettings = field(default_factory=ClientSettings)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    bootstrap: str
    topic: str | None = None
    """Topic of all rows; None: each row has a column `topic`."""
    include_headers: bool = False
    guarantee: Guarantee = Guarantee.AT_LEAST_ONCE
    checkpoint: str | None = None
    batch_id: int | None = None
    """Number of a batch that may run again, as in `foreachBatch`; None in a stream, where Spark numbers the batches."""
    client: ClientSettings = field(default_factory=ClientSettings)

    @property
    def uses_transactions(self) -> bool:
        return self.guarantee is not Guarantee.AT_LEAST_ONCE

    @property
    def is_best_effort(self) -> bool:
        """Exactly once if the brokers can do it, else at least once."""
        return self.guarantee is Guarantee.AUTO

    @property
    def transactional_id(self) -> str | None:
        return self.client.transactional_id


def read_options(options: Mapping[str, str], *, is_stream: bool) -> ReadOptions:
    """Raises OptionError. Names are case-insensitive."""
    given = ParsedOptions(options, Query.STREAM if is_stream else Query.BATCH)
    found = _read_options(given, is_stream=is_stream)
    given.warn()
    return found


def without_effect_in_stream(options: Mapping[str, str]) -> list[str]:
    """Options without effect; raises OptionError for options that a stream cannot have."""
    given = ParsedOptions(options, Query.STREAM)
    _read_options(given, is_stream=True)
    return given.without_effect


def _read_options(given: ParsedOptions, *, is_stream: bool) -> ReadOptions:
    found = ReadOptions(
        bootstrap=_bootstrap(given),
        subscription=_subscription(given),
        starting=_offset_bound(given, "starting", Edge.LATEST if is_stream else Edge.EARLIEST),
        ending=_offset_bound(given, "ending", Edge.LATEST),
        timestamp_strategy=given.get("startingOffsetsByTimestampStrategy", TimestampStrategy.ERROR),
        fail_on_data_loss=given.get("failOnDataLoss", True),
        include_headers=given.get("includeHeaders", False),
        limits=_limits(given),
        min_partitions=given.get("minPartitions"),
        max_records_per_partition=given.get("maxRecordsPerPartition"),
        driver_read_rows=given.get("driverReadRows", DRIVER_READ_ROWS),
        client=_reading_client(given),
    )
    if not is_stream:
        _check_batch(found.starting, found.ending)
    return found


def write_options(options: Mapping[str, str], *, is_stream: bool) -> WriteOptions:
    """Raises OptionError. Streams and batches have the same options."""
    given = ParsedOptions(options, Query.WRITE)
    found = _write_options(given, is_stream=is_stream)
    given.warn()
    return found


def without_effect_in_sink(options: Mapping[str, str]) -> list[str]:
    """Options without effect; raises OptionError for options that a sink cannot have."""
    given = ParsedOptions(options, Query.WRITE)
    _write_options(given, is_stream=True)
    return given.without_effect


def _write_options(given: ParsedOptions, *, is_stream: bool) -> WriteOptions:
    client = client_settings(given.kafka, Side.WRITE)
    found = WriteOptions(
        bootstrap=_bootstrap(given),
        topic=given.get("topic"),
        include_headers=given.get("includeHeaders", False),
        guarantee=_guarantee(given.get("delivery"), client, is_stream=is_stream),
        checkpoint=given.checkpoint,
        batch_id=given.get("batchId"),
        client=client,
    )
    _check_exactly_once(found, is_stream=is_stream)
    return found


def _guarantee(asked: Guarantee | None, client: ClientSettings, *, is_stream: bool) -> Guarantee:
    if asked in (None, Guarantee.AUTO) and client.acks != ACKS_ALL:
        return Guarantee.AT_LEAST_ONCE
    return asked or (Guarantee.EXACTLY_ONCE if is_stream else Guarantee.AUTO)


def _check_exactly_once(found: WriteOptions, *, is_stream: bool) -> None:
    if found.guarantee is Guarantee.EXACTLY_ONCE and found.client.acks != ACKS_ALL:
        raise OptionError("Option 'delivery' cannot be exactly-once unless 'kafka.acks' is 'all'")
    if found.batch_id is not None and is_stream:
        raise OptionError("Option 'batchId' is for batch queries; Spark numbers the batches of a stream")
    if found.batch_id is not None and found.transactional_id is None:
        raise OptionError("Option 'batchId' needs 'kafka.transactional.id', which identifies the sequence of batches")


def wants_headers(options: Mapping[str, str]) -> bool:
    """True if rows have a column `headers`; needed before the rest of the query is known."""
    option = BY_LOWER_NAME["includeheaders"]
    texts = [text for name, text in options.items() if name.lower() == option.name.lower()]
    return bool(texts and parsed(option.name, option.parse, texts[-1]))


def _bootstrap(given: ParsedOptions) -> str:
    bootstrap = given.kafka.get(BOOTSTRAP)
    try:
        return choose_cluster(bootstrap, option=f"{PREFIX}{BOOTSTRAP}").bootstrap.strip()
    except NoCluster as reason:
        raise OptionError(
            f"Option '{PREFIX}{BOOTSTRAP}' is missing: set it to the brokers, as HOST:PORT,HOST:PORT ({reason})"
        ) from None


def _subscription(given: ParsedOptions) -> Subscription:
    names = given.given(*SUBSCRIPTIONS)
    if not names:
        raise OptionError("No topic to read: set one of the options 'subscribe', 'subscribePattern' and 'assign'")
    if len(names) > 1:
        listed = " and ".join(f"'{name}'" for name in names)
        raise OptionError(f"Options {listed} exclude each other: keep only one of them")
    found: Subscription = given.get(names[0])
    return found


def _offset_bound(given: ParsedOptions, side: str, default: Edge) -> OffsetBound:
    """Value of the first option present, in Spark's order of precedence."""
    names = given.given(f"{side}Timestamp", f"{side}OffsetsByTimestamp", f"{side}Offsets")
    found: OffsetBound = given.get(names[0]) if names else default
    return found


def _limits(given: ParsedOptions) -> Limits:
    least, most = given.get("minOffsetsPerTrigger"), given.get("maxOffsetsPerTrigger")
    if least is not None and most is not None and least > most:
        raise OptionError(f"Option 'minOffsetsPerTrigger' ({least}) must not exceed 'maxOffsetsPerTrigger' ({most})")
    delay_s = given.get("maxTriggerDelay", Limits().max_trigger_delay_s)
    return Limits(most, least, delay_s, given.get("maxBytesPerTrigger"))


def _reading_client(given: ParsedOptions) -> ClientSettings:
    own = {"fetch_max_bytes": given.get("fetchBytes"), "read_timeout_s": given.get("kafkaConsumer.pollTimeoutMs")}
    return client_settings(given.kafka, Side.READ, **{name: value for name, value in own.items() if value is not None})


def _check_batch(starting: OffsetBound, ending: OffsetBound) -> None:
    if starting is Edge.LATEST:
        raise OptionError("Option 'startingOffsets' cannot be latest in a batch query: there is nothing to read")
    if ending is Edge.EARLIEST:
        raise OptionError("Option 'endingOffsets' cannot be earliest: there is nothing to read")
    if isinstance(starting, AtOffsets):
        _check_without(starting, LATEST, "startingOffsets", "latest in a batch query")
    if isinstance(ending, AtOffsets):
        _check_without(ending, EARLIEST, "endingOffsets", "earliest")
    match starting, ending:
        case AtOffsets(first), AtOffsets(last):
            _check_order("Offsets", first, last)
        case AtTimes(first), AtTimes(last):
            _check_order("OffsetsByTimestamp", first, last)


def _check_without(bound: AtOffsets, edge: int, name: str, what: str) -> None:
    found = [key for key, offset in bound.offsets.items() if offset == edge]
    if found:
        raise OptionError(f"Option '{name}' cannot be {what}: it is {edge} for {partitions_text(found)}")


def _check_order(what: str, first: Mapping[TopicPartition, int], last: Mapping[TopicPartition, int]) -> None:
    names = f"Options 'starting{what}' and 'ending{what}'"
    if different := first.keys() ^ last.keys():
        raise OptionError(f"{names} must have the same partitions; only one has {partitions_text(different)}")
    for key in sorted(first):
        if 0 <= last[key] < first[key]:
            raise OptionError(f"{names} leave nothing to read of {key}: {first[key]} is after {last[key]}")
