"""Raw format: records are read with the columns of their source, and written from the column `value`."""

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from tidelog.pipelines.definition.model import Format
from tidelog.pipelines.formats import FormatError
from tidelog.pipelines.formats.parsed_rows import ERROR

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def parse(frame: "DataFrame", _format: Format) -> "DataFrame":
    """Every record is valid."""
    return frame.withColumn(ERROR, F.lit(None).cast("string"))


def serialise(frame: "DataFrame", _format: Format) -> "Column":
    kind = dict(frame.dtypes).get("value")
    if kind not in ("string", "binary"):
        found = f"is of type {kind}" if kind else f"is not among {', '.join(frame.columns)}"
        raise FormatError(f"Format raw writes the column 'value', which must be string or binary, but it {found}")
    return F.col("value").cast("binary")
