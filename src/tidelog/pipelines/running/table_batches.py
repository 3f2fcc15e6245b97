"""Micro-batches written to a table, identified by their query."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.pipelines.definition.model import TableSink
from tidelog.pipelines.tables.continuity import application_of
from tidelog.pipelines.tables.exactly_once_writer import TableWriter, open_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

logger = logging.getLogger(__name__)

QUERY_ID_PROPERTY = "sql.streaming.queryId"


class TableBatches:
    """The table is opened with the first batch: the query id, which is in the checkpoint, is known only then."""

    def __init__(self, pipeline: str, sink: TableSink, directory: Path, on_written: Callable[[int], None]) -> None:
        self._pipeline = pipeline
        self._sink = sink
        self._directory = directory
        self._on_written = on_written
        self._writer: TableWriter | None = None

    def write(self, rows: "DataFrame", batch_id: int) -> None:
        if self._writer is None:
            query_id = rows.sparkSession.sparkContext.getLocalProperty(QUERY_ID_PROPERTY)
            assert query_id, "a micro-batch runs in the thread of its query"
            application_id = application_of(self._pipeline, self._sink.name, query_id)
            self._writer = open_table(self._sink, application_id, self._directory)
        written = self._writer.write(rows, batch_id)
        logger.info(
            "batch written table=%s batch=%d rows=%d files=%d again=%s",
            self._sink.location,
            batch_id,
            written.rows,
            written.files,
            written.was_already_there,
        )
        self._on_written(written.rows)
