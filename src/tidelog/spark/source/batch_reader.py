"""Reader of a batch query: ranges are fixed once on the driver and read by tasks."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from tidelog.spark import client_thread
from tidelog.spark.accelerators.error_texts import only_the_sentence
from tidelog.spark.accelerators.worker_memory import freezing_loaded_objects
from tidelog.spark.options.query import ReadOptions
from tidelog.spark.source.batch_planning import OffsetRange
from tidelog.spark.source.offset_bounds import batch_ranges
from tidelog.spark.source.record_filter import RecordFilter, pushed
from tidelog.spark.source.task_reader import read_ranges

if TYPE_CHECKING:
    import pyarrow as pa


class Ranges(InputPartition):
    """Ranges that one task reads."""

    def __init__(self, ranges: Sequence[OffsetRange]) -> None:
        super().__init__(tuple(ranges))
        self.ranges = tuple(ranges)


class PushFilters:
    """`pushFilters` of a reader that also works in sessions that do not push filters down.

    If spark.sql.python.filterPushdown.enabled is false, its default, PySpark refuses every reader with a `pushFilters`
    of its own, which it recognises by `__func__`."""

    def __init__(self, reader: "BatchReader") -> None:
        self._reader = reader
        self.__func__ = DataSourceReader.pushFilters

    def __call__(self, filters: Iterable[Any]) -> list[Any]:
        return self._reader.push(filters)


class BatchReader(DataSourceReader):
    def __init__(self, options: ReadOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = tuple(columns)
        self._wanted = RecordFilter()

    @property
    def pushFilters(self) -> PushFilters:  # noqa: N802 - PySpark's name
        return PushFilters(self)

    def push(self, filters: Iterable[Any]) -> list[Any]:
        """The filters that Spark must still evaluate."""
        self._wanted, left = pushed(filters)
        return left

    @only_the_sentence()
    def partitions(self) -> Sequence[InputPartition]:
        # Without partitions Spark would call read() with None.
        return [Ranges([found]) for found in client_thread.run(_ranges(self._options, self._wanted))] or [Ranges([])]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        assert isinstance(partition, Ranges)
        with only_the_sentence():
            yield from freezing_loaded_objects(read_ranges(partition.ranges, self._options, self._columns))


async def _ranges(options: ReadOptions, wanted: RecordFilter) -> list[OffsetRange]:
    return await batch_ranges(client_thread.cluster_for(options.bootstrap, options.client), options, wanted)
