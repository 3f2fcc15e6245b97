"""Preparation of the rows of a batch: computed partition columns, and separation of rows that do not fit."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidelog.pipelines.definition.model import TableKind, TableSink
from tidelog.pipelines.tables.partitions import iceberg_column
from tidelog.pipelines.tables.schema_changes import SetAside, TypeChange, spark_name
from tidelog.pipelines.tables.table import TableError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def map_in_arrow(
    rows: "DataFrame", function: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: str
) -> "DataFrame":
    """Same as `DataFrame.mapInArrow`, which needs pandas in PySpark 4.3; Spark Connect needs pandas anyway."""
    from pyspark.sql.classic.dataframe import DataFrame
    from pyspark.sql.udf import UserDefinedFunction
    from pyspark.util import PythonEvalType

    if not isinstance(rows, DataFrame):
        return rows.mapInArrow(function, schema)
    mapping = UserDefinedFunction(function, schema, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column: Any = mapping(*(rows[_quoted(name)] for name in rows.columns))
    java_rows: Any = rows._jdf
    return DataFrame(java_rows.mapInArrow(column._jc, False, None), rows.sparkSession)


def evaluate(rows: "DataFrame") -> None:
    """Evaluates a batch without writing it: stateful steps must process every batch, or their state has a gap."""
    rows.write.format("noop").mode("overwrite").save()


def with_partition_columns(rows: "DataFrame", computed: Mapping[str, str]) -> "DataFrame":
    from pyspark.sql import functions

    for name, expression in computed.items():
        if name in rows.columns:
            raise TableError(
                f"Partition column '{name}' is computed as {expression}, but the rows already have a column '{name}': "
                "choose another name, or remove the expression"
            )
        rows = rows.withColumn(name, functions.expr(expression))
    return rows


def reject_missing(rows: "DataFrame", partition_sources: Iterable[str]) -> None:
    for name in partition_sources:
        if name not in rows.columns:
            raise TableError(
                f"The table is partitioned by '{name}', which is not a column of the rows "
                f"({', '.join(rows.columns)}): change partition_by, or add the column in a step"
            )


def with_columns_of(sink: TableSink, rows: "DataFrame") -> "DataFrame":
    """The rows with the partition columns of the table."""
    rows = with_partition_columns(rows, _computed_columns(sink))
    reject_missing(rows, _partition_sources(sink))
    return rows


def _computed_columns(sink: TableSink) -> dict[str, str]:
    """Without Iceberg's own transforms, which it computes from their source columns."""
    fields = sink.partition_by
    if sink.kind is TableKind.ICEBERG:
        fields = tuple(field for field in fields if iceberg_column(field) is None)
    return {field.name: field.expression for field in fields if field.expression is not None}


def _partition_sources(sink: TableSink) -> list[str]:
    if sink.kind is not TableKind.ICEBERG:
        return [field.name for field in sink.partition_by]
    columns = [(field, iceberg_column(field)) for field in sink.partition_by]
    return [field.name if column is None else column.source for field, column in columns]


def split_by_fit(rows: "DataFrame", change: SetAside) -> "tuple[DataFrame, DataFrame]":
    """Rows that the table can hold without loss, and the others."""
    from pyspark.sql import functions

    conditions = [functions.col(_quoted(name)).isNull() for name in change.added]
    conditions += [_survives(changed) for changed in change.changed]
    fits = reduce(and_, conditions)
    return rows.where(fits), rows.where(~fits)


def fitting(rows: "DataFrame", change: SetAside) -> "DataFrame":
    """Rows that fit, with the table's types and without columns that the table lacks."""
    for changed in change.changed:
        rows = rows.withColumn(changed.name, _cast(changed))
    return rows.drop(*change.added)


def _survives(change: TypeChange) -> "Column":
    """True if the value survives a cast to the table's type and back."""
    from pyspark.sql import functions

    column = functions.col(_quoted(change.name))
    return _cast(change).try_cast(spark_name(change.rows_type)).eqNullSafe(column)


def _cast(change: TypeChange) -> "Column":
    from pyspark.sql import functions

    return functions.col(_quoted(change.name)).try_cast(spark_name(change.table_type))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
