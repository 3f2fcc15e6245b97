"""Reader of a batch query: ranges are fixed once on the driver and read by tasks."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from tidelog.spark import client_thread
from tidelog.spark.accelerators.error_texts import only_the_sentence
from tidelog.spark.accelerators.worker_memory import freezing_loaded_objects
from tidelog.spark.options.query import ReadOptions
from tidelog.spark.source.batch_planning import OffsetRange
from tidelog.spark.source.offset_bounds import batch_ranges
from tidelog.spark.source.task_reader import read_ranges

if TYPE_CHECKING:
    import pyarrow as pa


class Ranges(InputPartition):
    """Ranges that one task reads."""

    def __init__(self, ranges: Sequence[OffsetRange]) -> None:
        super().__init__(tuple(ranges))
        self.ranges = tuple(ranges)


class BatchReader(DataSourceReader):
    def __init__(self, options: ReadOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = tuple(columns)

    @only_the_sentence()
    def partitions(self) -> Sequence[InputPartition]:
        # Without partitions Spark would call read() with None.
        return [Ranges([found]) for found in client_thread.run(_ranges(self._options))] or [Ranges([])]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        assert isinstance(partition, Ranges)
        with only_the_sentence():
            yield from freezing_loaded_objects(read_ranges(partition.ranges, self._options, self._columns))


async def _ranges(options: ReadOptions) -> list[OffsetRange]:
    return await batch_ranges(client_thread.cluster_for(options.bootstrap, options.client), options)
