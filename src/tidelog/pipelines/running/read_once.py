"""Tables of databases that are read once: as a stream whose first micro-batch has all rows, and which then ends.

Spark has no streaming JDBC source. A directory with one file is a stream of one row, which the checkpoint of each query
remembers as read. Joined with that row, the table is a stream with everything that streams have: batch numbers,
restarts, expectations, and exactly-once sinks. A batch that runs again reads the table again.
"""

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DIRECTORY_SUFFIX = "-once"
"""Beside the checkpoint: inside it, every name may be that of a query."""
FILE = "row"
COLUMN = "__once"
_GLOB = re.compile(r"([\\*?\[\]{}])")


def one_row_stream(spark: "SparkSession", checkpoint: str) -> "DataFrame":
    """A stream that has one row in its first micro-batch and none later, for each query that reads it."""
    directory = checkpoint.rstrip("/") + DIRECTORY_SUFFIX
    _make_file(spark, directory)
    return spark.readStream.text(_GLOB.sub(r"\\\1", directory))


def read_once(table: "DataFrame", one_row: "DataFrame") -> "DataFrame":
    """The rows of the table as a stream. The one row is what is broadcast, never the table."""
    from pyspark.sql import functions as F  # noqa: N812

    return table.crossJoin(F.broadcast(one_row.select(F.lit(1).alias(COLUMN)))).drop(COLUMN)


def _make_file(spark: "SparkSession", directory: str) -> None:
    """By Hadoop's client, because a checkpoint may be on any file system that it knows. Never written twice."""
    java = spark._jvm
    assert java is not None
    path = java.org.apache.hadoop.fs.Path(directory, FILE)
    files = path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
    if files.exists(path):
        return
    unfinished = java.org.apache.hadoop.fs.Path(directory, f".{FILE}")
    out = files.create(unfinished, True)
    out.write(ord("1"))
    out.close()
    files.rename(unfinished, path)
