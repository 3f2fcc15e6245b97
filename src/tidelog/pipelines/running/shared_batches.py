"""One streaming query for several sinks: each micro-batch is computed once and written to one sink after the other.

Every sink has the number of the batch in its own commit or transaction. After a crash between two of them Spark runs
the batch again: those that have it leave it out, the others write it.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from tidelog.pipelines.definition.model import Sink, TableSink
from tidelog.pipelines.running.table_batches import table_batches
from tidelog.pipelines.running.topic_sink import TopicBatches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WriteBatch: TypeAlias = "Callable[[DataFrame, int], None]"


class SharedBatches:
    def __init__(self, writes: Sequence[WriteBatch]) -> None:
        self._writes = writes

    def __call__(self, rows: "DataFrame", batch_id: int) -> None:
        # Kept until the last sink has them: otherwise each sink would read the source and change the state again.
        rows.persist()
        try:
            for write in self._writes:
                write(rows, batch_id)
        finally:
            rows.unpersist()


def shared_batches(
    pipeline: str, sinks: Sequence[Sink], directory: Path, on_written: Callable[[int], None]
) -> SharedBatches:
    def write_to(sink: Sink) -> WriteBatch:
        if isinstance(sink, TableSink):
            return table_batches(pipeline, sink, directory, on_written)
        return TopicBatches(sink, on_written, is_shared=True).write

    return SharedBatches([write_to(sink) for sink in sinks])
