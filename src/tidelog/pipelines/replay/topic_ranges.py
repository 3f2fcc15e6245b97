"""Topic ranges of a replay: offset ranges read as a batch, through the pipeline's own steps."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.pipelines.definition.model import FormatKind, Pipeline, Sink, TopicSource
from tidelog.pipelines.replay.replay_start import (
    AsDeclared,
    AtMoment,
    AtOffsets,
    LogFacts,
    ReplayRejected,
    Start,
    declared,
    may_leave_out,
    reject_gap,
    reject_unknown_partitions,
    starting_offsets,
)
from tidelog.pipelines.running.topic_sink import SOURCE_FORMAT
from tidelog.pipelines.running.views import READ_COLUMNS, Views, topic_options
from tidelog.spark import client_thread
from tidelog.spark.offset_json import Offsets, Positions, to_dict
from tidelog.spark.options.option_table import BY_LOWER_NAME, SUBSCRIPTIONS, Query
from tidelog.spark.options.query import ReadOptions, read_options
from tidelog.spark.options.values import Assign
from tidelog.spark.source.cluster_queries import earliest, offsets_at, resolve
from tidelog.spark.source.stream_positions import recreated_topics
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORDS_PER_TASK = 1_000_000
"""Small enough for progress output and good file sizes."""
STATEFUL_STEPS = {
    "Aggregate": "aggregates",
    "Deduplicate": "removes duplicates",
    "DeduplicateWithinWatermark": "removes duplicates",
    "Distinct": "removes duplicates",
    "GlobalLimit": "has a limit",
    "FlatMapGroupsWithState": "keeps state",
    "FlatMapGroupsInPandasWithState": "keeps state",
    "TransformWithState": "keeps state",
    "TransformWithStateInPySpark": "keeps state",
    "TransformWithStateInPandas": "keeps state",
}


class Range(NamedTuple):
    """Range of offsets of one source, by partition."""

    start: Offsets
    end: Offsets

    @property
    def records(self) -> int:
        return sum(self.end[key] - offset for key, offset in self.start.items())


Ranges = dict[str, Range]
"""By source name; sources that the sink does not read are absent."""


class Planned(NamedTuple):
    ranges: Ranges
    left_out: Offsets
    """Partitions where records before the start are left out that the table may have rows of now."""


def plan(pipeline: Pipeline, start: Start, until: Positions) -> Planned:
    reject_unknown_partitions(start, until.offsets)
    ranges: Ranges = {}
    left_out: Offsets = {}
    for source, end in ends_by_source(pipeline, until.offsets):
        wanted = declared(start, source.starting, source.name)
        log = _ask(source, end, until, wanted)
        ranges[source.name] = Range(starting_offsets(wanted, end, log), end)
        left_out |= may_leave_out(ranges[source.name].start, log, is_declared=isinstance(start, AsDeclared))
    return Planned(ranges, left_out)


def plan_further(pipeline: Pipeline, after: Positions, until: Positions) -> Ranges:
    """Ranges from the end of the replay so far to its new end; new partitions are read from their beginning."""
    ranges: Ranges = {}
    for source, end in ends_by_source(pipeline, until.offsets):
        log = _ask(source, end, until, AtOffsets(after.offsets))
        known = {key: offset for key, offset in after.offsets.items() if key in end}
        reject_gap(known, end, log)
        ranges[source.name] = Range(starting_offsets(AtOffsets(known), end, log), end)
    return ranges


def ends_by_source(pipeline: Pipeline, ends: Mapping[TopicPartition, int]) -> list[tuple[TopicSource, Offsets]]:
    """End offsets of each source of which something was read."""
    sources = [source for source in pipeline.sources if isinstance(source, TopicSource)]
    found = [(source, {key: end for key, end in ends.items() if source.reads(key.topic)}) for source in sources]
    return [(source, own) for source, own in found if own]


def _ask(source: TopicSource, end: Offsets, until: Positions, start: Start) -> LogFacts:
    return client_thread.run(_log_facts(source, end, until, start))


async def _log_facts(source: TopicSource, end: Offsets, until: Positions, start: Start) -> LogFacts:
    options: ReadOptions = replace(
        read_options(topic_options(source), is_stream=True), subscription=Assign(tuple(sorted(end)))
    )
    cluster = client_thread.cluster_for(options.bootstrap, options.client)
    topics = await resolve(cluster, options)
    if recreated := recreated_topics(until.topic_ids, topics.topic_ids):
        raise ReplayRejected(
            f"topic {recreated[0]!r} was deleted and created again since the pipeline read it: the old records "
            "cannot be read again"
        )
    begin = await earliest(cluster, topics, options)
    moment = start.timestamp_ms if isinstance(start, AtMoment) else None
    at_moment = {} if moment is None else await offsets_at(cluster, options, dict.fromkeys(end, moment))
    return LogFacts(begin, at_moment)


def rows_of(spark: "SparkSession", pipeline: Pipeline, sink: Sink, ranges: Ranges) -> "DataFrame":
    """The rows of the sink computed from the ranges; sources without a range are empty."""
    return Views(spark, pipeline, lambda source: read_range(spark, source, ranges.get(source.name))).of_sink(sink)


def read_range(spark: "SparkSession", source: TopicSource, wanted: Range | None) -> "DataFrame":
    reader = spark.read.format(SOURCE_FORMAT).options(**range_options(source, wanted))
    if source.format.kind is not FormatKind.RAW:
        reader = reader.schema(READ_COLUMNS)
    frame = reader.load()
    return frame if wanted is not None and wanted.records else frame.where("false")


def range_options(source: TopicSource, wanted: Range | None) -> dict[str, str]:
    """The source's own options, except for those that set the range or apply only to streams."""
    options = {name: text for name, text in topic_options(source).items() if _is_kept(name)}
    if not any(name.lower() == "maxrecordsperpartition" for name in options):
        options["maxRecordsPerPartition"] = str(RECORDS_PER_TASK)
    if wanted is None or not wanted.records:
        return options | {name: text for name, text in topic_options(source).items() if name in SUBSCRIPTIONS}
    start = {key: offset for key, offset in wanted.start.items() if offset < wanted.end[key]}
    return options | {
        "assign": _assignment(start),
        "startingOffsets": json.dumps(to_dict(start)),
        "endingOffsets": json.dumps(to_dict({key: wanted.end[key] for key in start})),
    }


def _is_kept(name: str) -> bool:
    option = BY_LOWER_NAME.get(name.lower())
    if option is None:
        return True
    says_what = option.name in SUBSCRIPTIONS or option.name.startswith(("starting", "ending"))
    return Query.BATCH in option.queries and not says_what


def _assignment(partitions: Iterable[TopicPartition]) -> str:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        by_topic.setdefault(topic, []).append(partition)
    return json.dumps(by_topic)


def reject_state(frame: "DataFrame", sink: str) -> None:
    """Rejects stateful queries: their state is in the checkpoint and cannot be rebuilt from a range of offsets."""
    if not frame.isStreaming:
        raise ReplayRejected(f"sink {sink} reads no topic: there is nothing to replay")
    java_frame: Any = frame._jdf
    found = state_in(java_frame.queryExecution().analyzed())
    if found is not None:
        raise ReplayRejected(
            f"sink {sink} cannot be replayed: a step before it {found}, and its state is only in the checkpoint; "
            "rename the sink and its table to build both from the start"
        )


def state_in(plan: Any) -> str | None:
    """Description of the first stateful operator in a streaming plan (a Java object); None if there is none."""
    if not plan.isStreaming():
        return None
    children = [plan.children().apply(index) for index in range(plan.children().size())]
    name = str(plan.nodeName())
    if name in STATEFUL_STEPS:
        return STATEFUL_STEPS[name]
    if name == "Join" and all(child.isStreaming() for child in children):
        return "joins two streams"
    return next((found for found in map(state_in, children) if found is not None), None)
