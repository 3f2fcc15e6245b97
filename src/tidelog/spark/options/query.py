"""The options of `format("tidelog")`, as a query is to be run with them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidelog.client.producer_settings import ACKS_ALL
from tidelog.spark.offset_json import EARLIEST, LATEST, partitions_text
from tidelog.spark.options.client_settings import ClientSettings, client_settings
from tidelog.spark.options.delivery_guarantee import Guarantee
from tidelog.spark.options.kafka_settings import BOOTSTRAP, PREFIX, Side
from tidelog.spark.options.option_parsing import GivenOptions
from tidelog.spark.options.option_table import BY_LOWER_NAME, SUBSCRIPTIONS, Query
from tidelog.spark.options.values import (
    AtOffsets,
    AtTimes,
    Edge,
    OptionError,
    Place,
    Subscription,
    WhenTooYoung,
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
    starting: Place = Edge.EARLIEST
    ending: Place = Edge.LATEST
    """Of a batch; a stream has no end."""
    when_too_young: WhenTooYoung = WhenTooYoung.ERROR
    fail_on_data_loss: bool = True
    include_headers: bool = False
    limits: Limits = field(default_factory=Limits)
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    driver_read_rows: int = DRIVER_READ_ROWS
    """Micro-batches of up to so many rows are read on the driver."""
    client: ClientSettings = field(default_factory=ClientSettings)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    bootstrap: str
    topic: str | None = None
    """For all rows; without it each row names its own."""
    include_headers: bool = False
    guarantee: Guarantee = Guarantee.AT_LEAST_ONCE
    checkpoint: str | None = None
    batch_id: int | None = None
    """Of rows that are one batch among others, written by one job each."""
    client: ClientSettings = field(default_factory=ClientSettings)

    @property
    def uses_transactions(self) -> bool:
        return self.guarantee is not Guarantee.AT_LEAST_ONCE

    @property
    def is_best_effort(self) -> bool:
        """Rows are written at least once where no more can be had."""
        return self.guarantee is Guarantee.AUTO

    @property
    def transactional_id(self) -> str | None:
        return self.client.transactional_id


def read_options(options: Mapping[str, str], *, is_stream: bool) -> ReadOptions:
    """Raises OptionError. Names may be written in any case."""
    given = GivenOptions(options, Query.STREAM if is_stream else Query.BATCH)
    found = _read_options(given, is_stream=is_stream)
    given.warn()
    return found


def without_effect_in_stream(options: Mapping[str, str]) -> list[str]:
    """Raises OptionError for what a stream cannot be read with."""
    given = GivenOptions(options, Query.STREAM)
    _read_options(given, is_stream=True)
    return given.without_effect


def _read_options(given: GivenOptions, *, is_stream: bool) -> ReadOptions:
    found = ReadOptions(
        bootstrap=_bootstrap(given),
        subscription=_subscription(given),
        starting=_place(given, "starting", Edge.LATEST if is_stream else Edge.EARLIEST),
        ending=_place(given, "ending", Edge.LATEST),
        when_too_young=given.get("startingOffsetsByTimestampStrategy", WhenTooYoung.ERROR),
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
    """Raises OptionError. Streams and batches are written with the same options."""
    given = GivenOptions(options, Query.WRITE)
    found = _write_options(given, is_stream=is_stream)
    given.warn()
    return found


def without_effect_in_sink(options: Mapping[str, str]) -> list[str]:
    """Raises OptionError for what a stream cannot be written with."""
    given = GivenOptions(options, Query.WRITE)
    _write_options(given, is_stream=True)
    return given.without_effect


def _write_options(given: GivenOptions, *, is_stream: bool) -> WriteOptions:
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
        raise OptionError("Option 'delivery' cannot be exactly-once unless 'kafka.acks' is all")
    if found.batch_id is not None and is_stream:
        raise OptionError("Option 'batchId' is for batches; Spark numbers those of a stream")
    if found.batch_id is not None and found.transactional_id is None:
        raise OptionError("Option 'batchId' needs 'kafka.transactional.id', the name of what the batch is one of")


def wants_headers(options: Mapping[str, str]) -> bool:
    """Whether rows have a column for headers: asked before it is known what else a query is."""
    option = BY_LOWER_NAME["includeheaders"]
    texts = [text for name, text in options.items() if name.lower() == option.name.lower()]
    return bool(texts and parsed(option.name, option.parse, texts[-1]))


def _bootstrap(given: GivenOptions) -> str:
    bootstrap = given.kafka.get(BOOTSTRAP)
    if bootstrap is None:
        raise OptionError(f"Option '{PREFIX}{BOOTSTRAP}' is missing: say where the brokers are, as HOST:PORT,HOST:PORT")
    return bootstrap.strip()


def _subscription(given: GivenOptions) -> Subscription:
    names = given.given(*SUBSCRIPTIONS)
    if not names:
        raise OptionError("Option 'subscribe' is missing: say what to read with it, 'subscribePattern' or 'assign'")
    if len(names) > 1:
        listed = " and ".join(f"'{name}'" for name in names)
        raise OptionError(f"Options {listed} exclude each other: give one of them")
    found: Subscription = given.get(names[0])
    return found


def _place(given: GivenOptions, side: str, default: Edge) -> Place:
    """The first of those given, in Spark's order."""
    names = given.given(f"{side}Timestamp", f"{side}OffsetsByTimestamp", f"{side}Offsets")
    found: Place = given.get(names[0]) if names else default
    return found


def _limits(given: GivenOptions) -> Limits:
    least, most = given.get("minOffsetsPerTrigger"), given.get("maxOffsetsPerTrigger")
    if least is not None and most is not None and least > most:
        raise OptionError(
            f"Option 'minOffsetsPerTrigger' is {least}, more than 'maxOffsetsPerTrigger', which is {most}"
        )
    delay_s = given.get("maxTriggerDelay", Limits().max_trigger_delay_s)
    return Limits(most, least, delay_s, given.get("maxBytesPerTrigger"))


def _reading_client(given: GivenOptions) -> ClientSettings:
    own = {"fetch_max_bytes": given.get("fetchBytes"), "read_timeout_s": given.get("kafkaConsumer.pollTimeoutMs")}
    return client_settings(given.kafka, Side.READ, **{name: value for name, value in own.items() if value is not None})


def _check_batch(starting: Place, ending: Place) -> None:
    if starting is Edge.LATEST:
        raise OptionError("Option 'startingOffsets' cannot be latest for a batch query: there is nothing after it")
    if ending is Edge.EARLIEST:
        raise OptionError("Option 'endingOffsets' cannot be earliest: there is nothing before it")
    if isinstance(starting, AtOffsets):
        _check_without(starting, LATEST, "startingOffsets", "latest for a batch query")
    if isinstance(ending, AtOffsets):
        _check_without(ending, EARLIEST, "endingOffsets", "earliest")
    match starting, ending:
        case AtOffsets(first), AtOffsets(last):
            _check_order("Offsets", first, last)
        case AtTimes(first), AtTimes(last):
            _check_order("OffsetsByTimestamp", first, last)


def _check_without(place: AtOffsets, edge: int, name: str, what: str) -> None:
    found = [key for key, offset in place.offsets.items() if offset == edge]
    if found:
        raise OptionError(f"Option '{name}' cannot be {what}, as {edge} says of {partitions_text(found)}")


def _check_order(what: str, first: Mapping[TopicPartition, int], last: Mapping[TopicPartition, int]) -> None:
    names = f"Options 'starting{what}' and 'ending{what}'"
    if different := first.keys() ^ last.keys():
        raise OptionError(f"{names} must name the same partitions; only one has {partitions_text(different)}")
    for key in sorted(first):
        if 0 <= last[key] < first[key]:
            raise OptionError(f"{names} leave nothing to read of {key}: {first[key]} is after {last[key]}")
