"""`format("tidelog-table")`: exactly-once tables as a sink of Spark streams, found by `pyspark_tidelog_table`."""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from tidelog.spark.accelerators.error_texts import only_the_sentence

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
    from pyspark.sql.types import StructType

NAME = "tidelog-table"


class DefaultSource(DataSource):
    """Writes streams to Delta, Iceberg and Parquet tables."""

    @classmethod
    def name(cls) -> str:
        return NAME

    @only_the_sentence()
    def streamWriter(self, schema: "StructType", overwrite: bool) -> "DataSourceStreamArrowWriter":  # noqa: N802
        from tidelog.pipelines.tables.stream_writer import stream_writer

        return stream_writer(self.options, schema)
