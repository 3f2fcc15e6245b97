"""Every option of `format("tidelog")`: its parser, what it is for, and what the reference page says of it."""

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from tidelog.spark.options.delivery_guarantee import guarantee
from tidelog.spark.options.values import (
    assignment,
    boolean,
    duration,
    milliseconds,
    pattern,
    place,
    time,
    times,
    topics,
    when_too_young,
    whole_number,
    words,
)


class Query(Enum):
    BATCH = "batch"
    STREAM = "stream"
    WRITE = "write"


READ = (Query.BATCH, Query.STREAM)


class Option(NamedTuple):
    name: str
    """As it is documented; Spark tells options apart without regard to upper and lower case."""
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
_NAME_ALL = "As JSON it must name every partition that is read"

OPTIONS = (
    Option(
        "subscribe",
        READ,
        topics,
        "`orders,payments`",
        "none",
        "Topics to read, with the partitions that they have and will have. One of `subscribe`, `subscribePattern` and "
        "`assign` must be given.",
    ),
    Option(
        "subscribePattern",
        READ,
        pattern,
        "regular expression",
        "none",
        "Reads every topic in whose name the expression (as Python understands it) is found, those that come later "
        "too; internal topics are left out.",
    ),
    Option("assign", READ, assignment, '`{"orders":[0,1]}`', "none", "Partitions to read, and no others."),
    Option(
        "startingOffsets",
        READ,
        place,
        f"`earliest`, `latest` (streams), {_OFFSETS_JSON}",
        "`earliest` (batch), `latest` (stream)",
        f"Where to start: a stream only when it has no checkpoint yet. {_NAME_ALL}; -2 stands for earliest, -1 for "
        "latest (streams). Partitions that come later are read from their beginning.",
    ),
    Option(
        "startingOffsetsByTimestamp",
        READ,
        times,
        _TIMES_JSON,
        "none",
        "Where to start, as times in milliseconds: at the first record that is not older. It must name every "
        "partition that is read, and wins over `startingOffsets`.",
    ),
    Option(
        "startingTimestamp",
        READ,
        time,
        "milliseconds since 1970",
        "none",
        "The same with one time for all partitions; wins over both.",
    ),
    Option(
        "startingOffsetsByTimestampStrategy",
        READ,
        when_too_young,
        "`error`, `latest`",
        "`error`",
        "What to do with a partition that has no record of the starting time or later: fail, or start at its end.",
    ),
    Option(
        "endingOffsets",
        (Query.BATCH,),
        place,
        f"`latest`, {_OFFSETS_JSON}",
        "`latest`",
        f"Where to end; the offset itself is not read. {_NAME_ALL}; -1 stands for latest.",
    ),
    Option(
        "endingOffsetsByTimestamp",
        (Query.BATCH,),
        times,
        _TIMES_JSON,
        "none",
        "Where to end, as times: before the first record that is not older, and where there is none at the end of the "
        "partition. Wins over `endingOffsets`.",
    ),
    Option(
        "endingTimestamp",
        (Query.BATCH,),
        time,
        "milliseconds since 1970",
        "none",
        "The same with one time for all partitions; wins over both.",
    ),
    Option(
        "failOnDataLoss",
        READ,
        boolean,
        "`true`, `false`",
        "`true`",
        "Whether a query fails when records that it was to read are gone: deleted by retention, cut off, or with "
        "their topic, which may have been made again since; or cannot be read, where a broker of an earlier version "
        "took a malformed batch. If not, it goes on with what there is, and a line of the log tells what was lost.",
    ),
    Option(
        "includeHeaders",
        (*READ, Query.WRITE),
        boolean,
        "`true`, `false`",
        "`false`",
        "Reading: whether rows have a column `headers`. Writing: without effect, a column `headers` is always written.",
    ),
    Option(
        "maxOffsetsPerTrigger",
        (Query.STREAM,),
        POSITIVE,
        "number",
        "none",
        "How many offsets a micro-batch takes at most: one of each partition that has some, the rest in proportion to "
        "what waits in them. More only if there are more such partitions.",
    ),
    Option(
        "minOffsetsPerTrigger",
        (Query.STREAM,),
        POSITIVE,
        "number",
        "none",
        "How many offsets must wait before a micro-batch is made of them, unless `maxTriggerDelay` has passed.",
    ),
    Option(
        "maxTriggerDelay",
        (Query.STREAM,),
        duration,
        "time such as `30s`, `15m`",
        "`15m`",
        "After so long a micro-batch is made of fewer than `minOffsetsPerTrigger`, without which it has no effect.",
    ),
    Option(
        "maxBytesPerTrigger",
        (Query.STREAM,),
        POSITIVE,
        "bytes",
        "none",
        "How many bytes, as they are on the wire, a micro-batch takes at most, approximately: as brokers tell offsets "
        "and not bytes, the size of records is estimated from the next batches of each partition. Tidelog's own.",
    ),
    Option(
        "minPartitions",
        READ,
        POSITIVE_INT,
        "number",
        "none",
        "Into how many tasks reading is divided at least, if there are as many offsets; the largest partitions are "
        "cut first. By default each partition is a task.",
    ),
    Option(
        "maxRecordsPerPartition",
        READ,
        POSITIVE,
        "number",
        "none",
        "How many offsets one task reads at most.",
    ),
    Option(
        "driverReadRows",
        (Query.STREAM,),
        AT_LEAST_ZERO,
        "number",
        "`20000`",
        "Micro-batches of up to so many rows, and 16 MiB, are read on the driver, which is quicker than a task; 0: "
        "never. "
        "Tidelog's own.",
    ),
    Option(
        "fetchBytes",
        READ,
        POSITIVE_INT,
        "bytes",
        "`4194304`",
        "How much is fetched at a time. Tidelog's own.",
    ),
    Option(
        "kafkaConsumer.pollTimeoutMs",
        READ,
        milliseconds,
        "milliseconds",
        "`120000`",
        "How long a task waits for records that should be there.",
    ),
    Option(
        "topic",
        (Query.WRITE,),
        words,
        "text",
        "none",
        "The topic that all rows go to; without it a column `topic` says it for each row.",
    ),
    Option(
        "delivery",
        (Query.WRITE,),
        guarantee,
        "`exactly-once`, `at-least-once`, `auto`",
        "`exactly-once` (streams), `auto` (batches)",
        "`exactly-once`: rows are written in transactions; a batch counts as a whole or not at all, and once however "
        "often it is run, for whoever reads with `isolation.level=read_committed`. `at-least-once`: as Spark's own "
        "sink does. `auto`: exactly once by brokers with transaction groups, that is Tidelog's, at least once by "
        "others. With `kafka.acks` other than `all` the default is `at-least-once`. Tidelog's own.",
    ),
    Option(
        "batchId",
        (Query.WRITE,),
        AT_LEAST_ZERO,
        "number",
        "none",
        "For batches that are numbered and may be run again, as in `foreachBatch`: a number that was written already "
        "under the same `kafka.transactional.id`, which must be given too, is not written again. Tidelog's own.",
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
"""What Spark itself adds to a query's options, or reads from them."""


def is_sparks_own(lower_name: str) -> bool:
    return lower_name in SPARK_OWN or lower_name.startswith(SPARK_OWN_PREFIXES)
