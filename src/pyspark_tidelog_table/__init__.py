"""Spark asks every module called pyspark_* for its data source: so `format("tidelog-table")` is found."""

from tidelog.pipelines.tables.table_source import DefaultSource

__all__ = ["DefaultSource"]
