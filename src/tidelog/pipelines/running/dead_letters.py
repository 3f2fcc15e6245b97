"""Dead letters: records that did not parse, written unchanged to a topic, with error and position as headers."""

from typing import TYPE_CHECKING

from tidelog.pipelines.definition.model import BadRecords, FormatKind, Pipeline, TopicSource
from tidelog.pipelines.running.topic_sink import with_rows_counted, written_to

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

HEADERS = {
    "tidelog.error": "_error",
    "tidelog.topic": "_topic",
    "tidelog.partition": "_partition",
    "tidelog.offset": "_offset",
    "tidelog.timestamp": "date_format(_timestamp, \"yyyy-MM-dd'T'HH:mm:ss.SSSXXX\")",
}


def query_name(source: str) -> str:
    return f"{source}.dead-letters"


def sources_with_dead_letters(pipeline: Pipeline) -> list[TopicSource]:
    """Raw records never fail to parse."""
    return [
        source
        for source in pipeline.sources
        if isinstance(source, TopicSource)
        and source.bad_records is BadRecords.DEAD_LETTER
        and source.format.kind is not FormatKind.RAW
    ]


def dead_letter_writer(parsed: "DataFrame", source: TopicSource) -> "DataStreamWriter":
    assert source.dead_letter_topic is not None
    return written_to(with_rows_counted(dead_letters(parsed)), source.bootstrap, source.dead_letter_topic)


def dead_letters(parsed: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812

    headers = [
        F.struct(F.lit(name).alias("key"), F.expr(value).cast("string").cast("binary").alias("value"))
        for name, value in HEADERS.items()
    ]
    bad = parsed.where(F.col("_error").isNotNull())
    return bad.select(F.col("_key").alias("key"), F.col("_value").alias("value"), F.array(*headers).alias("headers"))
