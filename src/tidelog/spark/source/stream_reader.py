"""A streaming query: which offsets the next micro-batch covers, on the driver, and its ranges read by tasks."""

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from tidelog.spark import client_thread
from tidelog.spark.accelerators.driver_reads import DecoderLoad, MayReadOnDriver, SmallBatches
from tidelog.spark.accelerators.error_texts import only_the_sentence
from tidelog.spark.accelerators.worker_memory import keeping_what_is_loaded
from tidelog.spark.options.query import OptionError, ReadOptions
from tidelog.spark.source.batch_planning import Limits, OffsetRange
from tidelog.spark.source.batch_reader import Ranges
from tidelog.spark.source.published_progress import PublishedProgress
from tidelog.spark.source.stream_planner import StreamPlanner
from tidelog.spark.source.task_reader import read_ranges

if TYPE_CHECKING:
    import pyarrow as pa


class StreamReader(MayReadOnDriver, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives in one Python process for as long as its query."""

    def __init__(self, options: ReadOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = tuple(columns)
        self._planner = StreamPlanner(options)
        self._small_batches = SmallBatches()
        self._decoder = DecoderLoad(self._columns)
        self._progress = PublishedProgress(options)

    def __getstate__(self) -> dict[str, Any]:
        """To tasks, which only read."""
        return {"_options": self._options, "_columns": self._columns}

    # -- offsets

    @only_the_sentence()
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - PySpark's name
        return client_thread.run(self._planner.initial())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Spark knows one limit at a time: the planner has them all, and is told whether to use them.

        It asks first of all, when a query starts, and on the driver only.
        """
        if self.can_hand_over and self._options.driver_read_rows > 0:
            self._decoder.start()
        return ReadAllAvailable() if self._options.limits == Limits() else ReadMaxRows(_most(self._options.limits))

    @only_the_sentence()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        self._progress.publish(start)  # the batch before is done; Spark's commit tells so only when there is a next
        limits = Limits() if isinstance(limit, ReadAllAvailable) else self._options.limits
        return client_thread.run(self._planner.next_end(start, limits, time.monotonic()))

    @only_the_sentence()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        client_thread.run(self._planner.fix_end())

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return self._planner.latest_seen()

    # -- rows

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
            yield from keeping_what_is_loaded(read_ranges(partition.ranges, self._options, self._columns))

    def commit(self, end: dict[str, Any]) -> None:
        """Spark keeps the position in its checkpoint; others may want to know it too."""
        self._progress.publish(end)

    def stop(self) -> None:
        self._progress.finish()
        client_thread.stop()


class RefusedStream(DataSourceStreamReader):
    """Says why there can be no reader as soon as it is asked anything.

    An error while a reader is made is followed by one of PySpark's own, which then stands last where users look first.
    """

    def __init__(self, why: OptionError) -> None:
        self._why = why

    @only_the_sentence()
    def _refuse(self) -> NoReturn:
        raise self._why

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        self._refuse()

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        self._refuse()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        self._refuse()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._refuse()

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        self._refuse()


def _most(limits: Limits) -> int:
    return limits.max_offsets if limits.max_offsets is not None else 2**63 - 1
