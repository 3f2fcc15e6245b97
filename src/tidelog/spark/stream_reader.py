"""A streaming query: which offsets the next micro-batch covers, on the driver, and its ranges read by tasks."""

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from tidelog.spark import client_thread
from tidelog.spark.batch_reader import Ranges
from tidelog.spark.driver_reads import MayReadOnDriver
from tidelog.spark.options import ReadOptions
from tidelog.spark.planning import Limits
from tidelog.spark.reading import read_ranges
from tidelog.spark.stream_planning import StreamPlanner

if TYPE_CHECKING:
    import pyarrow as pa


class StreamReader(MayReadOnDriver, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives in one Python process for as long as its query."""

    def __init__(self, options: ReadOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = tuple(columns)
        self._planner = StreamPlanner(options)

    def __getstate__(self) -> dict[str, Any]:
        """To tasks, which only read."""
        return {"_options": self._options, "_columns": self._columns}

    # -- offsets

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - PySpark's name
        return client_thread.run(self._planner.initial())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Spark knows one limit at a time: the planner has them all, and is told whether to use them."""
        return ReadAllAvailable() if self._options.limits == Limits() else ReadMaxRows(_most(self._options.limits))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        limits = Limits() if isinstance(limit, ReadAllAvailable) else self._options.limits
        return client_thread.run(self._planner.next_end(start, limits, time.monotonic()))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        client_thread.run(self._planner.fix_end())

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return self._planner.latest_seen()

    # -- rows

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        options = self._options
        ranges = client_thread.run(self._planner.ranges(start, end))
        row_count = sum(found.size for found in ranges)
        if row_count > options.driver_read_rows:
            self.hand_over(None)
            return [Ranges([found]) for found in ranges]
        self.hand_over(lambda: read_ranges(ranges, options, self._columns))
        return [Ranges(ranges)]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        assert isinstance(partition, Ranges)
        return read_ranges(partition.ranges, self._options, self._columns)

    def commit(self, end: dict[str, Any]) -> None:
        """Spark keeps the position in its checkpoint."""

    def stop(self) -> None:
        client_thread.stop()


def _most(limits: Limits) -> int:
    return limits.max_offsets if limits.max_offsets is not None else 2**63 - 1
