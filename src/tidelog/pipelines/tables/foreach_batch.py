"""Table sink for `foreachBatch`: micro-batches written to a table, identified by their query."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.pipelines.definition.model import TableSink
from tidelog.pipelines.tables.exactly_once_writer import TableWriter, open_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

logger = logging.getLogger(__name__)

QUERY_ID_PROPERTY = "sql.streaming.queryId"


class ForEachBatch:
    """The table is opened with the first batch: the query id, which is in the checkpoint, is known only then."""

    def __init__(
        self,
        sink: TableSink,
        directory: Path,
        application: Callable[[str | None], str],
        on_written: Callable[[int], None] = lambda rows: None,
    ) -> None:
        """`application` gets the id of the query, or None in Spark Connect, where it is unknown."""
        self._sink = sink
        self._directory = directory
        self._application = application
        self._on_written = on_written
        self._writer: TableWriter | None = None

    def __call__(self, rows: "DataFrame", batch_id: int) -> None:
        if self._writer is None:
            self._writer = open_table(self._sink, self._application(query_id_of(rows)), self._directory)
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


def query_id_of(rows: "DataFrame") -> str | None:
    """None in Spark Connect."""
    from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

    if not isinstance(rows, ClassicDataFrame):
        return None
    query_id = rows.sparkSession.sparkContext.getLocalProperty(QUERY_ID_PROPERTY)
    assert query_id, "a micro-batch runs in the thread of its query"
    return query_id


def application_of_query(name: str | None, query_id: str | None) -> str:
    """Without a name the query's id alone: any number of queries may then write to the table."""
    if query_id is None:
        assert name is not None, "the id of the query is known, except in Spark Connect"
        return f"spark-connect/{name}"
    return query_id if name is None else f"spark/{name}/{query_id}"
