"""Reader of a streaming query that cannot be: each call of Spark gets the reason."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from tidelog.spark.accelerators.error_texts import only_the_sentence
from tidelog.spark.options.values import OptionError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.streaming.datasource import ReadLimit


class FailedStreamReader(DataSourceStreamReader):
    """Raises the error at the first call of any method.

    If an error is raised while a reader is created, PySpark adds an error of its own, which users would see first.
    """

    def __init__(self, why: OptionError) -> None:
        self._why = why

    @only_the_sentence()
    def _reject(self) -> NoReturn:
        raise self._why

    def getDefaultReadLimit(self) -> "ReadLimit":  # noqa: N802
        self._reject()

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        self._reject()

    def latestOffset(self, start: dict[str, Any] | None = None, limit: "ReadLimit | None" = None) -> dict[str, Any]:  # noqa: N802
        self._reject()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._reject()

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        self._reject()
