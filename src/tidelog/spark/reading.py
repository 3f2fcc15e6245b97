"""What a task does: fetch its ranges, the next fetch under way while the last is decoded, and give Spark Arrow."""

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING

from tidelog.client.range_reader import OffsetsGone, RangeReader, RangeSettings, TopicChanged
from tidelog.errors import UnknownTopicOrPartition
from tidelog.spark import client_thread
from tidelog.spark.data_loss import report_loss
from tidelog.spark.options import ReadOptions
from tidelog.spark.planning import OffsetRange
from tidelog.spark.source_errors import DataLost, TopicRecreated

if TYPE_CHECKING:
    import pyarrow as pa


def read_ranges(
    ranges: Sequence[OffsetRange], options: ReadOptions, columns: Sequence[str]
) -> "Generator[pa.RecordBatch, None, None]":
    for found in ranges:
        yield from read_range(found, options, columns)


def read_range(found: OffsetRange, options: ReadOptions, columns: Sequence[str]) -> "Iterator[pa.RecordBatch]":
    """Raises DataLost, unless the query is to go on without what is gone."""
    from tidelog.spark.records.decoding import PartitionDecoder

    decoder = PartitionDecoder(found.topic, found.partition, columns)
    rest: OffsetRange | None = found
    while rest is not None:
        try:
            for fetched in client_thread.iterate(_reader(rest, options)):
                yield from decoder.decode(fetched.records, rest.start, rest.end, fetched.aborted)
                rest = rest._replace(start=fetched.next_offset)
            return
        except OffsetsGone as gone:
            rest = what_is_left(rest, gone)
            report_loss(options, DataLost(gone.message))
        except TopicChanged as changed:
            report_loss(options, TopicRecreated(changed.message))
            return
        except UnknownTopicOrPartition as unknown:
            report_loss(options, DataLost(unknown.message))
            return


def what_is_left(found: OffsetRange, gone: OffsetsGone) -> OffsetRange | None:
    """The part of a range that the log still has; None if it is nothing, or nothing that could be told apart."""
    start, end = max(found.start, gone.log_start_offset), min(found.end, gone.log_end_offset)
    if start >= end or (start, end) == (found.start, found.end):
        return None
    return found._replace(start=start, end=end)


def _reader(found: OffsetRange, options: ReadOptions) -> Callable[[], RangeReader]:
    client = options.client
    settings = RangeSettings(
        max_bytes=client.fetch_max_bytes,
        max_wait_ms=client.fetch_max_wait_ms,
        isolation_level=client.isolation_level,
        timeout_s=client.read_timeout_s,
    )

    def make() -> RangeReader:
        cluster = client_thread.cluster_for(options.bootstrap, client)
        return RangeReader(cluster, found.topic_partition, found.start, found.end, settings, topic_id=found.topic_id)

    return make
