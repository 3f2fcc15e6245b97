"""Dead letters of a table sink: rows that do not fit the table, sent to a topic as JSON with the reason."""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from tidelog.pipelines.definition.model import TableSink
from tidelog.pipelines.tables.table import TableError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

logger = logging.getLogger(__name__)


def dead_letter_sender(sink: TableSink) -> "Callable[[DataFrame, str], None]":
    """At-least-once: a batch that runs again before its commit sends its rows again."""

    def send(rows: "DataFrame", reason: str) -> None:
        if sink.dead_letter_topic is None or sink.dead_letter_bootstrap is None:
            raise TableError(f"Sink '{sink.name}' has no dead-letter topic for rows that do not fit")
        letters = as_letters(rows, reason)
        writer = letters.write.format("tidelog").mode("append")
        writer.options(
            **{"kafka.bootstrap.servers": sink.dead_letter_bootstrap, "topic": sink.dead_letter_topic}
        ).save()

    return send


def as_letters(rows: "DataFrame", reason: str) -> "DataFrame":
    """One column, `value`: `{"error": "does not fit table ...", "row": {...}}`."""
    from pyspark.sql import functions

    letter = functions.struct(functions.lit(reason).alias("error"), functions.struct("*").alias("row"))
    return rows.select(functions.to_json(letter).alias("value"))
