"""Start and end offsets of a query, from its options."""

import logging
from collections.abc import Iterable, Mapping

from tidelog.client.consumer.offsets import END
from tidelog.client.routing.cluster import Cluster
from tidelog.spark.errors import DataLost, NoRecordAfterTime
from tidelog.spark.offset_json import EARLIEST, LATEST, Offsets, partitions_text
from tidelog.spark.options.query import ReadOptions
from tidelog.spark.options.values import AtOffsets, AtTime, AtTimes, Edge, OffsetBound, OptionError, TimestampStrategy
from tidelog.spark.source.batch_planning import OffsetRange, ranges_between, split
from tidelog.spark.source.cluster_queries import Topics, earliest, latest, log_ends, offsets_at, resolve
from tidelog.spark.source.record_filter import RecordFilter, starting_at
from tidelog.types import NO_OFFSET, TopicPartition

__all__ = ["Topics", "batch_ranges", "earliest", "ending_offsets", "latest", "resolve", "starting_offsets"]

logger = logging.getLogger(__name__)

EVERYTHING = RecordFilter()


async def batch_ranges(cluster: Cluster, options: ReadOptions, wanted: RecordFilter = EVERYTHING) -> list[OffsetRange]:
    """Ranges that the tasks of a batch query read."""
    topics = await resolve(cluster, options)
    start = await starting_offsets(cluster, options, topics)
    end = await ending_offsets(cluster, options, topics)
    for key in topics.partitions:
        if start[key] > end[key]:
            raise OptionError(
                f"Options {_name('starting', options.starting)} and {_name('ending', options.ending)} leave nothing to "
                f"read of {key}: it would start at offset {start[key]} and end at {end[key]}"
            )
    ranges = wanted.ranges(ranges_between(start, end, topics.topic_ids))
    if wanted.first_ms is not None and ranges:
        partitions = [found.topic_partition for found in ranges]
        ranges = starting_at(ranges, await offsets_at(cluster, options, dict.fromkeys(partitions, wanted.first_ms)))
    return split(ranges, options.min_partitions, options.max_records_per_partition)


async def starting_offsets(cluster: Cluster, options: ReadOptions, topics: Topics) -> Offsets:
    """Start of a batch query, or of a stream without a checkpoint."""
    name = _name("starting", options.starting)
    found = await _find(cluster, options, topics, options.starting, name)
    without_match = [key for key, offset in found.items() if offset == NO_OFFSET]
    if without_match and options.timestamp_strategy is TimestampStrategy.ERROR:
        raise NoRecordAfterTime(
            f"Option {name}: there is no record at or after that time in {partitions_text(without_match)}; set "
            "startingOffsetsByTimestampStrategy to 'latest' to start such partitions at their end"
        )
    return found | await offsets_at(cluster, options, dict.fromkeys(without_match, END))


async def ending_offsets(cluster: Cluster, options: ReadOptions, topics: Topics) -> Offsets:
    """End of a batch query. For a timestamp after all records: the end of the log."""
    found = await _find(cluster, options, topics, options.ending, _name("ending", options.ending))
    without_match = [key for key, offset in found.items() if offset == NO_OFFSET]
    return found | await offsets_at(cluster, options, dict.fromkeys(without_match, END))


async def _find(cluster: Cluster, options: ReadOptions, topics: Topics, bound: OffsetBound, name: str) -> Offsets:
    """-1 if a partition has no record at or after the timestamp."""
    match bound:
        case Edge.EARLIEST:
            return await earliest(cluster, topics, options)
        case Edge.LATEST:
            return await latest(cluster, topics, options)
        case AtTime(timestamp_ms):
            return await offsets_at(cluster, options, dict.fromkeys(topics.partitions, timestamp_ms))
        case AtTimes(timestamps_ms):
            _check_names_all(name, timestamps_ms, topics.partitions)
            return await offsets_at(cluster, options, timestamps_ms)
        case AtOffsets(offsets):
            _check_names_all(name, offsets, topics.partitions)
            return await _inside_the_log(cluster, options, topics, offsets, name)


async def _inside_the_log(
    cluster: Cluster, options: ReadOptions, topics: Topics, offsets: Mapping[TopicPartition, int], name: str
) -> Offsets:
    begin = await earliest(cluster, topics, options)
    edges = {EARLIEST: begin, LATEST: await latest(cluster, topics, options)}
    end = await log_ends(cluster, options, topics.partitions)
    found = {key: edges[offset][key] if offset in edges else offset for key, offset in offsets.items()}
    for key, offset in found.items():
        nearest = min(max(offset, begin[key]), end[key])
        if nearest != offset:
            _report_outside(options, f"Option {name} has offset {offset} for {key}", begin[key], end[key])
            found[key] = nearest
    return found


def _report_outside(options: ReadOptions, what: str, begin: int, end: int) -> None:
    sentence = f"{what}, but its log starts at {begin} and ends at {end}"
    if options.fail_on_data_loss:
        raise DataLost(
            f"{sentence}; choose an offset in this range, or set failOnDataLoss to false to use the nearest one"
        )
    logger.warning("using nearest available offset reason=%s", sentence)


def _check_names_all(name: str, given: Iterable[TopicPartition], partitions: Iterable[TopicPartition]) -> None:
    given, partitions = set(given), set(partitions)
    if missing := partitions - given:
        edges = "" if "Timestamp" in name else f" ({LATEST} means latest, {EARLIEST} means earliest)"
        lacking = partitions_text(missing)
        raise OptionError(f"Option {name} must have every partition that is read; missing: {lacking}{edges}")
    if unknown := given - partitions:
        raise OptionError(f"Option {name} has partitions that are not read: {partitions_text(unknown)}")


def _name(side: str, bound: OffsetBound) -> str:
    """The option name in quotes."""
    match bound:
        case AtTime():
            return f"'{side}Timestamp'"
        case AtTimes():
            return f"'{side}OffsetsByTimestamp'"
        case _:
            return f"'{side}Offsets'"
