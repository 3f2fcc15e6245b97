"""Spark imports every module called pyspark_*, and asks it for its data source: so `format("tidelog")` is found."""

from tidelog.spark.data_source import DefaultSource

__all__ = ["DefaultSource"]
