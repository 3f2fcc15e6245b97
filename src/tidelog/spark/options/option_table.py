"""Table of all options of `format("tidelog")`: parser, kinds of queries, and text of the reference page."""

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from tidelog.spark.options.delivery_guarantee import guarantee
from tidelog.spark.options.values import (
    assignment,
    boolean,
    duration,
    milliseconds,
    non_empty_text,
    offset_bound,
    pattern,
    time,
    times,
    timestamp_strategy,
    topics,
    whole_number,
)


class Query(Enum):
    BATCH = "batch"
    STREAM = "stream"
    WRITE = "write"


READ = (Query.BATCH, Query.STREAM)


class Option(NamedTuple):
    name: str
    """Documented spelling; option names are case-insensitive."""
    queries: tuple[Query, ...]
    parse: Callable[[str], object]
    allowed: str
    default: str
    documentation: str
    has_effect: bool = True


POSITIVE = whole_number(at_least=1)
POSITIVE_INT = whole_number(at_least=1, at_most=2**31 - 1)
AT_LEAST_ZERO = whole_number(at_least=0)
ANY_TEXT: Callable[[str], object] = str

SUBSCRIPTIONS = ("subscribe", "subscribePattern", "assign")

_OFFSETS_JSON = '`{"orders":{"0":23,"1":-1}}`'
_TIMES_JSON = '`{"orders":{"0":1767225600000}}`'
_NAME_ALL = "As JSON it must list every partition that is read"

OPTIONS = (
    Option(
        "subscribe",
        READ,
        topics,
        "`orders,payments`",
        "none",
        "Topics to read, with all their present and future partitions. Exactly one of `subscribe`, `subscribePattern` "
        "and `assign` is required.",
    ),
    Option(
        "subscribePattern",
        READ,
        pattern,
        "regular expression",
        "none",
        "Reads every topic whose name contains a match of the (Python) expression, including topics created later; "
        "internal topics are excluded.",
    ),
    Option("assign", READ, assignment, '`{"orders":[0,1]}`', "none", "Partitions to read."),
    Option(
        "startingOffsets",
        READ,
        offset_bound,
        f"`earliest`, `latest` (streams), {_OFFSETS_JSON}",
        "`earliest` (batch), `latest` (stream)",
        f"Start of the query; for a stream only if it has no checkpoint yet. {_NAME_ALL}; -2 means earliest, -1 means "
        "latest (streams). Partitions added later are read from their beginning.",
    ),
    Option(
        "startingOffsetsByTimestamp",
        READ,
        times,
        _TIMES_JSON,
        "none",
        "Start as timestamps in milliseconds: at the first record at or after the timestamp. Must list every partition "
        "that is read. Takes precedence over `startingOffsets`.",
    ),
    Option(
        "startingTimestamp",
        READ,
        time,
        "milliseconds since 1970",
        "none",
        "One start timestamp for all partitions. Takes precedence over both.",
    ),
    Option(
        "startingOffsetsByTimestampStrategy",
        READ,
        timestamp_strategy,
        "`error`, `latest`",
        "`error`",
        "What to do with a partition without a record at or after the starting time: fail, or start at its end.",
    ),
    Option(
        "endingOffsets",
        (Query.BATCH,),
        offset_bound,
        f"`latest`, {_OFFSETS_JSON}",
        "`latest`",
        f"End of the query, exclusive. {_NAME_ALL}; -1 means latest.",
    ),
    Option(
        "endingOffsetsByTimestamp",
        (Query.BATCH,),
        times,
        _TIMES_JSON,
        "none",
        "End as timestamps: before the first record at or after the timestamp; the end of the partition if there is "
        "none. Takes precedence over `endingOffsets`.",
    ),
    Option(
        "endingTimestamp",
        (Query.BATCH,),
        time,
        "milliseconds since 1970",
        "none",
        "One end timestamp for all partitions. Takes precedence over both.",
    ),
    Option(
        "failOnDataLoss",
        READ,
        boolean,
        "`true`, `false`",
        "`true`",
        "Whether a query fails if records that it should read are gone (deleted by retention, truncated, or deleted"
        " with their topic, which may have been created again) or unreadable (a broker of an earlier version accepted"
        " a malformed batch). Otherwise it continues with the records that exist, and logs what was lost.",
    ),
    Option(
        "includeHeaders",
        (*READ, Query.WRITE),
        boolean,
        "`true`, `false`",
        "`false`",
        "Reading: adds a column `headers`. Writing: no effect, a column `headers` is always written.",
    ),
    Option(
        "maxOffsetsPerTrigger",
        (Query.STREAM,),
        POSITIVE,
        "number",
        "none",
        "Maximum number of offsets per micro-batch: one of each partition with new records, the rest in proportion to "
        "their backlog. Exceeded only if there are more such partitions.",
    ),
    Option(
        "minOffsetsPerTrigger",
        (Query.STREAM,),
        POSITIVE,
        "number",
        "none",
        "Minimum number of offsets per micro-batch, until `maxTriggerDelay` has passed.",
    ),
    Option(
        "maxTriggerDelay",
        (Query.STREAM,),
        duration,
        "time such as `30s`, `15m`",
        "`15m`",
        "After this time a micro-batch may have fewer than `minOffsetsPerTrigger`; no effect without it.",
    ),
    Option(
        "maxBytesPerTrigger",
        (Query.STREAM,),
        POSITIVE,
        "bytes",
        "none",
        "Approximate maximum number of bytes per micro-batch, as on the wire: brokers report offsets, not bytes, so"
        " the "
        "size of records is estimated from the next batches of each partition. Specific to Tidelog.",
    ),
    Option(
        "minPartitions",
        READ,
        POSITIVE_INT,
        "number",
        "none",
        "Minimum number of tasks, if there are that many offsets; the largest partitions are split first. By default "
        "each partition is one task.",
    ),
    Option(
        "maxRecordsPerPartition",
        READ,
        POSITIVE,
        "number",
        "none",
        "Maximum number of offsets per task.",
    ),
    Option(
        "driverReadRows",
        (Query.STREAM,),
        AT_LEAST_ZERO,
        "number",
        "`20000`",
        "Micro-batches of at most this many rows, and 16 MiB, are read on the driver, which is faster than a task; 0: "
        "never. Specific to Tidelog.",
    ),
    Option(
        "fetchBytes",
        READ,
        POSITIVE_INT,
        "bytes",
        "`4194304`",
        "Size of one fetch. Specific to Tidelog.",
    ),
    Option(
        "kafkaConsumer.pollTimeoutMs",
        READ,
        milliseconds,
        "milliseconds",
        "`120000`",
        "How long a task waits for records that should exist.",
    ),
    Option(
        "topic",
        (Query.WRITE,),
        non_empty_text,
        "text",
        "none",
        "Topic of all rows; without it each row needs a column `topic`.",
    ),
    Option(
        "delivery",
        (Query.WRITE,),
        guarantee,
        "`exactly-once`, `at-least-once`, `auto`",
        "`exactly-once` (streams), `auto` (batches)",
        "`exactly-once`: rows are written in transactions; a batch becomes visible atomically, and only once however "
        "often it runs, to readers with `isolation.level=read_committed`. `at-least-once`: as Spark's own sink does. "
        "`auto`: exactly once on brokers with transaction groups (Tidelog), at least once on others. With `kafka.acks` "
        "other than `all` the default is `at-least-once`. Specific to Tidelog.",
    ),
    Option(
        "batchId",
        (Query.WRITE,),
        AT_LEAST_ZERO,
        "number",
        "none",
        "For numbered batches that may run again, as in `foreachBatch`: a batch that was already written under the"
        " same "
        "`kafka.transactional.id`, which is required, is not written again. Specific to Tidelog.",
    ),
    Option("fetchOffset.numRetries", READ, AT_LEAST_ZERO, "number", "", "See `kafka.default.api.timeout.ms`.", False),
    Option(
        "fetchOffset.retryIntervalMs",
        READ,
        AT_LEAST_ZERO,
        "milliseconds",
        "",
        "See `kafka.default.api.timeout.ms`.",
        False,
    ),
    Option(
        "partition.metadata.cache.ttl.ms",
        READ,
        whole_number(at_least=-1),
        "milliseconds",
        "",
        "Partitions are looked up for each micro-batch.",
        False,
    ),
    Option("groupIdPrefix", READ, ANY_TEXT, "text", "", "No consumer group is joined.", False),
)

BY_LOWER_NAME = {option.name.lower(): option for option in OPTIONS}

CHECKPOINT = "checkpointlocation"
SPARK_OWN = frozenset({"path", "paths", CHECKPOINT, "queryname"})
SPARK_OWN_PREFIXES = ("_", "spark.", "asyncprogresstracking")
"""Options that Spark itself adds to a query, or reads."""


def is_spark_option(lower_name: str) -> bool:
    return lower_name in SPARK_OWN or lower_name.startswith(SPARK_OWN_PREFIXES)
