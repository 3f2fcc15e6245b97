"""Small micro-batches read by the driver's own Python process, so that they cost no Python worker in a task.

PySpark does this for its simple readers only, by a private class: a reader for which it finds that
`isinstance(reader, _SimpleStreamReaderWrapper)` while it plans a batch may hand over the rows together with the plan.
In all other respects that class can do less than ours (no limits, no report of the latest offsets), so a reader of ours
counts as one of those only while there are rows to hand over. tests/spark/test_driver_reads.py holds PySpark to it.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

try:
    from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper as PrefetchingReader
except ImportError:  # a PySpark that does it otherwise: tasks read all batches
    PrefetchingReader = None  # type: ignore[assignment,misc]

if TYPE_CHECKING:
    import pyarrow as pa

Rows = Callable[[], "Iterator[pa.RecordBatch]"]


class MayReadOnDriver:
    """Mixed into a stream reader, whose `partitions` says by `hand_over` that the batch is small."""

    _to_hand_over: Rows | None = None

    def hand_over(self, rows: Rows | None) -> None:
        self._to_hand_over = rows if PrefetchingReader is not None else None

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self) if self._to_hand_over is None else PrefetchingReader

    def getCache(self, start: Any, end: Any) -> "Iterator[pa.RecordBatch] | None":  # noqa: N802 - PySpark's name
        """Called by PySpark right after `partitions`: the rows of the batch; None if tasks are to read them."""
        rows, self._to_hand_over = self._to_hand_over, None
        return None if rows is None else rows()
