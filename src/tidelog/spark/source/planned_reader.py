"""Common part of the readers of streaming queries: ranges of a micro-batch, and their rows.

Tasks read the ranges, or the driver if there are few rows. How far a micro-batch reaches is up to the subclasses, as
versions of PySpark ask for it in different ways.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from tidelog.spark import client_thread
from tidelog.spark.accelerators.driver_reads import DecoderPreload, DriverReads, SmallBatches
from tidelog.spark.accelerators.error_texts import only_the_sentence
from tidelog.spark.accelerators.worker_memory import freezing_loaded_objects
from tidelog.spark.options.query import ReadOptions
from tidelog.spark.source.batch_planning import OffsetRange
from tidelog.spark.source.batch_reader import Ranges
from tidelog.spark.source.published_progress import PublishedProgress
from tidelog.spark.source.stream_planner import StreamPlanner
from tidelog.spark.source.task_reader import read_ranges

if TYPE_CHECKING:
    import pyarrow as pa


class PlannedReader(DriverReads, DataSourceStreamReader):
    """Lives in one Python process as long as its query."""

    def __init__(self, options: ReadOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = tuple(columns)
        self._planner = StreamPlanner(options)
        self._small_batches = SmallBatches()
        self._decoder = DecoderPreload(self._columns)
        self._progress = PublishedProgress(options)

    def __getstate__(self) -> dict[str, Any]:
        """Sent to tasks, which only read."""
        return {"_options": self._options, "_columns": self._columns}

    @only_the_sentence()
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - PySpark's name
        return client_thread.run(self._planner.initial())

    @only_the_sentence()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        ranges = client_thread.run(self._planner.ranges(start, end))
        rows = self._read_if_small(ranges)
        self.hand_over(rows)
        return [Ranges([found]) for found in ranges] if ranges and rows is None else [Ranges(ranges)]

    def _read_if_small(self, ranges: Sequence[OffsetRange]) -> "list[pa.RecordBatch] | None":
        row_count = sum(found.size for found in ranges)
        if not self.can_hand_over or row_count > self._options.driver_read_rows:
            return None
        self._decoder.wait()
        with closing(read_ranges(ranges, self._options, self._columns)) as batches:
            return self._small_batches.read(row_count, batches)

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        assert isinstance(partition, Ranges)
        with only_the_sentence():
            yield from freezing_loaded_objects(read_ranges(partition.ranges, self._options, self._columns))

    def commit(self, end: dict[str, Any]) -> None:
        """Spark stores the position in its checkpoint; this publishes it for monitoring."""
        self._progress.publish(end)

    def stop(self) -> None:
        self._progress.finish()
        client_thread.stop()
