"""Rows that both formats write, in batches and streams: the same records, keys in the same partitions."""

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compat import spark_topics
from compat.spark_peers import FORMATS, OURS, THEIRS, TIMEOUT_S, Peers, Question, Rejected, in_short
from compat.spark_topics import CODEC_TOPICS
from tests.clients.features import CODECS
from tidelog.client.producer.partitioner import partition_of_key

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PARTITIONS = 3
ROWS = 400

KEY = "concat('key ', id % 60) AS key"
VALUE = "CASE id % 9 WHEN 1 THEN NULL WHEN 2 THEN '' ELSE concat('value ', id) END AS value"
HEADERS = """CASE id % 4 WHEN 1 THEN array(named_struct('key', 'n', 'value', cast(cast(id AS string) AS binary)),
  named_struct('key', 'null', 'value', cast(NULL AS binary))) END AS headers"""

Written = Counter[tuple[Any, ...]]
"""Partition (of records with keys; others may be anywhere), key, value and headers of each record."""


@dataclass(frozen=True)
class Writing:
    """What is written, by both."""

    title: str
    columns: Sequence[str]
    """{topic} stands for the topic."""
    options: Mapping[str, str] = field(default_factory=dict)
    mode: str | None = "append"
    names_topic: bool = True
    """Whether the option does it."""
    must_work: bool = True


def writings() -> Iterator[Writing]:
    for codec in CODECS:
        yield Writing(f"keys, values and headers in {codec}", [KEY, VALUE, HEADERS], {"kafka.compression.type": codec})
    yield Writing("binary keys and values", ["encode('k' || id, 'utf-8') AS key", "encode('v', 'utf-8') AS value"])
    yield Writing("no keys", ["'v' || id AS value"])
    yield Writing("a column topic", [KEY, VALUE, "'{topic}' AS topic"], names_topic=False)
    yield Writing("a column partition", [KEY, VALUE, "cast(id % 3 AS int) AS partition"])
    yield Writing("a column partition with nulls", [KEY, VALUE, "cast(nullif(id % 3, 2) AS int) AS partition"])
    yield Writing("a column topic, which the option overrides", [KEY, VALUE, "'elsewhere' AS topic"])
    yield Writing("other columns, which are left out", [KEY, VALUE, "id AS other"])
    yield Writing("no mode", [KEY, VALUE], mode=None, must_work=False)
    for title, columns in {
        "no column value": [KEY],
        "a column value of numbers": ["id AS value"],
        "a column key of numbers": ["id AS key", VALUE],
        "a column headers of texts": [VALUE, "array('h') AS headers"],
        "a column partition of texts": [VALUE, "'1' AS partition"],
        "a negative partition": [VALUE, "cast(-1 AS int) AS partition"],
    }.items():
        yield Writing(title, columns, must_work=False)
    yield Writing("no topic", [VALUE], names_topic=False, must_work=False)
    topicless = [VALUE, "nullif('{topic}', '{topic}') AS topic"]
    yield Writing("a column topic with nulls", topicless, names_topic=False, must_work=False)
    yield Writing("mode overwrite", [VALUE], mode="overwrite", must_work=False)
    for name in ("kafka.key.serializer", "kafka.value.serializer"):
        yield Writing(name, [VALUE], {name: "StringSerializer"}, must_work=False)
    yield Writing("kafka.compression.type=rar", [VALUE], {"kafka.compression.type": "rar"}, must_work=False)
    yield Writing("kafka.acks=1", [KEY, VALUE], {"kafka.acks": "1"})


REASONS: Mapping[str, str] = {
    "no mode": 'Spark asks for a mode when a source in Python is written to: say `mode("append")`',
}
"""Why one of them refuses what the other takes."""


def topic_of(number: int, form: str) -> str:
    return f"written-{number}-{form}"


def write(peers: Peers, form: str, writing: Writing, topic: str) -> Written | Rejected:
    frame = peers.spark.range(0, ROWS, 1, 2).selectExpr(*(text.replace("{topic}", topic) for text in writing.columns))
    writer = frame.write.format(form).option("kafka.bootstrap.servers", peers.bootstrap).options(**writing.options)
    if writing.names_topic:
        writer = writer.option("topic", topic)
    try:
        (writer.mode(writing.mode) if writing.mode else writer).save()
    except Exception as error:  # noqa: BLE001 - whatever Spark raises is the answer
        return Rejected(in_short(error))
    return written(peers, topic)


def written(peers: Peers, topic: str) -> Written:
    records = spark_topics.records_of(peers.bootstrap, topic, range(PARTITIONS))
    return Counter(
        (None if record.key() is None else record.partition(), record.key(), record.value(), _headers(record))
        for record in records
    )


def _headers(record: Any) -> tuple[tuple[str, bytes | None], ...]:
    return tuple(record.headers() or ())


def differences(peers: Peers, number: int, writing: Writing) -> list[str]:
    topics = [topic_of(number, form) for form in FORMATS]
    spark_topics.create(peers.bootstrap, topics, PARTITIONS)
    ours, theirs = (write(peers, form, writing, topic) for form, topic in zip(FORMATS, topics, strict=True))
    if isinstance(ours, Rejected) and isinstance(theirs, Rejected):
        return [f"both refuse it: {ours.reason}"] if writing.must_work else []
    rejections = [
        f"{form} says: {outcome.reason}"
        for form, outcome in ((OURS, ours), (THEIRS, theirs))
        if isinstance(outcome, Rejected)
    ]
    if rejections or isinstance(ours, Rejected) or isinstance(theirs, Rejected):
        return rejections
    return differences_of(ours, theirs, ROWS)


def differences_of(one: Written, other: Written, expected: int, names: tuple[str, str] = (OURS, THEIRS)) -> list[str]:
    if one == other:
        return [] if one.total() == expected else [f"there are {one.total()} records instead of {expected}"]
    lines = [f"{name} has {found.total()} records" for name, found in zip(names, (one, other), strict=True)]
    for name, more in zip(names, (one - other, other - one), strict=True):
        lines += [f"only {name}: {record}" for record in itertools.islice(more, 3)]
    return lines


# -- streams


PAIRS = tuple(itertools.product(FORMATS, FORMATS))
SOURCE = CODEC_TOPICS[0]
Pair = tuple[str, str]
"""Who reads, and who writes."""


def title_of(pair: Pair) -> str:
    return 'a stream from format("{}") to format("{}")'.format(*pair)


def stream_differences(peers: Peers, pair: Pair) -> list[str]:
    """Copies a topic. Keys must land where Kafka's partitioner puts them, as they do when rows are written at once."""
    topic = f"copied-by-{'-'.join(pair)}"
    spark_topics.create(peers.bootstrap, [topic], PARTITIONS)
    reader, writer = pair
    copy(peers, original(peers, reader), writer, topic, peers.new_directory())
    return copy_differences(peers, topic)


def original(peers: Peers, reader: str) -> "DataFrame":
    options = {"subscribe": SOURCE, "startingOffsets": "earliest", "includeHeaders": "true"}
    return peers.stream(reader, options).select("key", "value", "headers")


def copy_differences(peers: Peers, topic: str) -> list[str]:
    sent = spark_topics.records_of(peers.bootstrap, SOURCE, range(spark_topics.DEFAULT_PARTITIONS))
    expected: Written = Counter(
        (partition_of(record.key()), record.key(), record.value(), _headers(record)) for record in sent
    )
    return differences_of(written(peers, topic), expected, len(sent), ("the copy", "the original"))


def partition_of(key: bytes | None) -> int | None:
    return None if key is None else partition_of_key(key, PARTITIONS)


def copy(peers: Peers, frame: "DataFrame", form: str, topic: str, checkpoint: Path) -> None:
    writer = frame.writeStream.format(form).option("kafka.bootstrap.servers", peers.bootstrap).option("topic", topic)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(TIMEOUT_S), f"the stream did not end: {query.lastProgress}"
    finally:
        query.stop()


AGAIN = "a micro-batch that is carried out again is there once"


def again_differences(peers: Peers) -> list[str]:
    """As if the driver had died after the rows were committed, and before Spark took note of it."""
    topic, checkpoint = "copied-again", peers.new_directory()
    spark_topics.create(peers.bootstrap, [topic], PARTITIONS)
    frame = original(peers, OURS).coalesce(1)  # Apache Kafka needs one task for each partition that is written
    copy(peers, frame, OURS, topic, checkpoint)
    noted = [file for file in (checkpoint / "commits").iterdir() if file.name.isdecimal()]
    max(noted, key=lambda file: int(file.name)).unlink()
    copy(peers, frame, OURS, topic, checkpoint)
    return copy_differences(peers, topic)


def questions() -> Iterator[Question]:
    """To read back what was written: in batches, without and with compression, and in streams."""
    yield Question("what both wrote", {"subscribePattern": "^(written-[04]|copied)-.*", "includeHeaders": "true"})
