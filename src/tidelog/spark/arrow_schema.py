"""Arrow schema of Spark's rows, with times in UTC."""

import inspect
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


def arrow_schema(schema: "StructType") -> "pa.Schema":
    from pyspark.sql.pandas.types import to_arrow_schema

    has_timezone = "timezone" in inspect.signature(to_arrow_schema).parameters  # PySpark 4.1 knows only UTC
    return to_arrow_schema(schema, timezone="UTC") if has_timezone else to_arrow_schema(schema)
