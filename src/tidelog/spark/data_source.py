"""`format("tidelog")`: the data source that Spark finds in `pyspark_tidelog`."""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from tidelog.spark.accelerators.error_texts import only_the_sentence
from tidelog.spark.source.row_schema import columns_of, schema_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql.datasource import (
        DataSourceArrowWriter,
        DataSourceReader,
        DataSourceStreamArrowWriter,
        DataSourceStreamReader,
    )
    from pyspark.sql.types import StructType

    from tidelog.spark.options.query import ReadOptions

NAME = "tidelog"
FIRST_WITH_LIMITS = (4, 2)
PROVIDER, OWNER = "provider", "owner"
"""Properties of tables in Spark's catalog; no option has such a name."""
NO_CATALOG_TABLE = (
    "a table of Spark's catalog does not pass them on; use CREATE TEMPORARY VIEW ... USING tidelog OPTIONS (...), or"
    ' format("tidelog") with options'
)


def stream_reader(options: "ReadOptions", columns: "Sequence[str]") -> "DataSourceStreamReader":
    """The reader for this version of PySpark. Raises OptionError."""
    from tidelog.spark.accelerators.switches import pyspark_version

    version = pyspark_version()
    if release_of(version) < FIRST_WITH_LIMITS:
        from tidelog.spark.source.unlimited_reader import UnlimitedReader, reject_limits

        reject_limits(options, version)
        return UnlimitedReader(options, columns)
    from tidelog.spark.source.stream_reader import StreamReader

    return StreamReader(options, columns)


def release_of(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")[:2]))


class DefaultSource(DataSource):
    """Reads and writes topics of Tidelog or Apache Kafka, in batch and streaming queries."""

    @classmethod
    def name(cls) -> str:
        return NAME

    @only_the_sentence()
    def schema(self) -> str:
        from tidelog.spark.options.query import wants_headers

        self._reject_catalog_table()
        return schema_text(has_headers=wants_headers(self.options))

    @only_the_sentence()
    def reader(self, schema: "StructType") -> "DataSourceReader":
        from tidelog.spark.options.query import read_options
        from tidelog.spark.source.batch_reader import BatchReader

        self._reject_catalog_table()
        return BatchReader(read_options(self.options, is_stream=False), columns_of(schema))

    def streamReader(self, schema: "StructType") -> "DataSourceStreamReader":  # noqa: N802 - PySpark's name
        from tidelog.spark.options.query import OptionError, read_options
        from tidelog.spark.source.failed_stream_reader import FailedStreamReader

        try:
            self._reject_catalog_table()
            return stream_reader(read_options(self.options, is_stream=True), columns_of(schema))
        except OptionError as error:
            return FailedStreamReader(error)

    def _reject_catalog_table(self) -> None:
        """Spark keeps the options of CREATE TABLE, but does not pass them to a source in Python when it is read.

        CREATE TABLE without columns asks for the schema, with the properties of the table besides the options."""
        from tidelog.spark.options.values import OptionError

        if not self.options:
            raise OptionError(f"There are no options: {NO_CATALOG_TABLE}")
        if PROVIDER in self.options and OWNER in self.options:
            raise OptionError(f"A table of Spark's catalog cannot be a topic. It has options, but {NO_CATALOG_TABLE}")

    @only_the_sentence()
    def writer(self, schema: "StructType", overwrite: bool) -> "DataSourceArrowWriter":
        from tidelog.spark.options.query import write_options
        from tidelog.spark.sink.writer import BatchWriter, reject_overwriting

        reject_overwriting(overwrite)
        return BatchWriter(write_options(self.options, is_stream=False), schema)

    @only_the_sentence()
    def streamWriter(self, schema: "StructType", overwrite: bool) -> "DataSourceStreamArrowWriter":  # noqa: N802
        from tidelog.spark.options.query import write_options
        from tidelog.spark.sink.writer import StreamWriter

        return StreamWriter(write_options(self.options, is_stream=True), schema)
