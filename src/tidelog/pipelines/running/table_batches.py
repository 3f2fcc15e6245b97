"""Micro-batches of a pipeline written to a table."""

from collections.abc import Callable
from pathlib import Path

from tidelog.pipelines.definition.model import TableSink
from tidelog.pipelines.tables.continuity import application_of
from tidelog.pipelines.tables.foreach_batch import ForEachBatch


def table_batches(pipeline: str, sink: TableSink, directory: Path, on_written: Callable[[int], None]) -> ForEachBatch:
    def application(query_id: str | None) -> str:
        assert query_id is not None, "pipelines do not run in Spark Connect"
        return application_of(pipeline, sink.name, query_id)

    return ForEachBatch(sink, directory, application, on_written)
