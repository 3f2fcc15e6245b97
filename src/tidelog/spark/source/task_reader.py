"""Range reader of a task: fetches ahead while the previous fetch is decoded to Arrow."""

from collections import deque
from collections.abc import AsyncIterator, Generator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from tidelog.client.consumer.range_reader import FetchedRange, OffsetsGone, RangeReader, RangeSettings, TopicChanged
from tidelog.errors import KafkaError, UnknownTopicOrPartition
from tidelog.spark import client_thread
from tidelog.spark.errors import DataLost, TopicRecreated
from tidelog.spark.options.query import ReadOptions
from tidelog.spark.source.batch_planning import OffsetRange
from tidelog.spark.source.data_loss import report_loss

if TYPE_CHECKING:
    import pyarrow as pa

RANGES_AT_ONCE = 4
"""Ranges fetched concurrently, each on its own connection; the client keeps as many connections open."""


def read_ranges(
    ranges: Sequence[OffsetRange], options: ReadOptions, columns: Sequence[str]
) -> "Generator[pa.RecordBatch, None, None]":
    """Raises DataLost, unless failOnDataLoss is false."""
    from tidelog.spark.records.decoding import PartitionDecoder

    def on_unreadable(error: KafkaError) -> None:
        report_loss(options, DataLost(error.message))

    rest = list(ranges)
    while rest:
        to_read, rest = rest, []
        decoders = [PartitionDecoder(found.topic, found.partition, columns) for found in to_read]
        for number, fetched in client_thread.iterate(partial(_fetch_in_turn, to_read, options)):
            found = to_read[number]
            if isinstance(fetched, KafkaError):
                rest += after_loss(found, fetched, options)
            else:
                decoder, raw = decoders[number], fetched.records
                yield from decoder.decode(raw, found.start, found.end, fetched.aborted, on_unreadable)
                to_read[number] = found._replace(start=fetched.next_offset)


def after_loss(found: OffsetRange, error: KafkaError, options: ReadOptions) -> list[OffsetRange]:
    """The remaining part of a range that could not be read completely."""
    if isinstance(error, OffsetsGone):
        report_loss(options, DataLost(error.message))
        left = remaining_range(found, error)
        return [] if left is None else [left]
    report_loss(options, (TopicRecreated if isinstance(error, TopicChanged) else DataLost)(error.message))
    return []


def remaining_range(found: OffsetRange, gone: OffsetsGone) -> OffsetRange | None:
    """The part of a range that is still in the log; None if there is none, or if it cannot be known."""
    start, end = max(found.start, gone.log_start_offset), min(found.end, gone.log_end_offset)
    if start >= end or (start, end) == (found.start, found.end):
        return None
    return found._replace(start=start, end=end)


async def _fetch_in_turn(
    ranges: Sequence[OffsetRange], options: ReadOptions
) -> AsyncIterator[tuple[int, FetchedRange | KafkaError]]:
    """Fetched data of one range after another, or the error that ended a range, with the number of the range."""
    readers = deque(_reader(found, options) for found in ranges)
    try:
        for number in range(len(ranges)):
            for reader in islice(readers, RANGES_AT_ONCE):
                reader.start()
            try:
                async for fetched in readers[0]:
                    yield number, fetched
            except (OffsetsGone, TopicChanged, UnknownTopicOrPartition) as error:
                yield number, error
            readers.popleft()
    finally:
        for reader in readers:
            await reader.aclose()


def _reader(found: OffsetRange, options: ReadOptions) -> RangeReader:
    client = options.client
    settings = RangeSettings(
        max_bytes=client.fetch_max_bytes,
        max_wait_ms=client.fetch_max_wait_ms,
        isolation_level=client.isolation_level,
        timeout_s=client.read_timeout_s,
    )
    cluster = client_thread.cluster_for(options.bootstrap, client)
    return RangeReader(cluster, found.topic_partition, found.start, found.end, settings, topic_id=found.topic_id)
