"""Driver reads: small micro-batches are read by the driver's Python process, without a Python worker in a task.

PySpark supports this only for its simple readers, through a private class: if a reader is an instance of
`_SimpleStreamReaderWrapper` while a batch is planned, it may return the rows together with the plan. In all other
respects that class can do less than our reader (no limits, no report of latest offsets), so our reader claims to be
one only while it has rows to return. tests/spark/test_driver_reads.py checks that PySpark still works like this.
"""

import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

try:
    from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper as PrefetchingReader
except ImportError:  # another version of PySpark: tasks read all batches
    PrefetchingReader = None  # type: ignore[assignment,misc]

from tidelog.spark.accelerators.switches import Accelerator, is_on

if TYPE_CHECKING:
    import pyarrow as pa

MAX_BYTES = 16 * 1024 * 1024
"""Limit of a micro-batch read on the driver: both the Python and the Java process hold it in memory."""


class DecoderPreload:
    """Loads the decoder, which takes half a second, in a thread while Spark prepares the first batch."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = columns
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=decode_a_record, args=(self._columns,), daemon=True)
            self._thread.start()

    def wait(self) -> None:
        if self._thread is not None:
            self._thread.join()


def decode_a_record(columns: Sequence[str]) -> "list[pa.RecordBatch]":
    """Decodes one record: kernels are loaded at their first use."""
    from tidelog.protocol.records import Record, build_batch
    from tidelog.spark.records.decoding import PartitionDecoder

    batch = build_batch([Record(0, 0, b"key", b"value", (("header", b"value"),))])
    return list(PartitionDecoder("", 0, columns).decode(memoryview(batch), 0, 1))


class SmallBatches:
    """Reads small micro-batches. The row size of the last batch decides whether the next is attempted."""

    def __init__(self, largest_bytes: int = MAX_BYTES) -> None:
        self._largest_bytes = largest_bytes
        self._row_bytes = 0.0

    def read(self, row_count: int, batches: "Iterator[pa.RecordBatch]") -> "list[pa.RecordBatch] | None":
        """All record batches; None if they are too large, or are expected to be."""
        if row_count * self._row_bytes > self._largest_bytes:
            return None
        found: list[pa.RecordBatch] = []
        size_bytes = rows = 0
        for batch in batches:
            found.append(batch)
            size_bytes, rows = size_bytes + batch.nbytes, rows + batch.num_rows
            self._row_bytes = size_bytes / max(1, rows)
            if size_bytes > self._largest_bytes:
                return None
        return found


class DriverReads:
    """Mixin of a stream reader whose `partitions` passes the rows of a small batch to `hand_over`."""

    _to_hand_over: "Sequence[pa.RecordBatch] | None" = None

    @property
    def can_hand_over(self) -> bool:
        return PrefetchingReader is not None and is_on(Accelerator.DRIVER_READS)

    def hand_over(self, rows: "Sequence[pa.RecordBatch] | None") -> None:
        """None if tasks should read the rows."""
        self._to_hand_over = rows if self.can_hand_over else None

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self) if self._to_hand_over is None else PrefetchingReader

    def getCache(self, start: Any, end: Any) -> "Iterator[pa.RecordBatch] | None":  # noqa: N802 - PySpark's name
        """Called by PySpark right after `partitions`: the rows of the batch; None if tasks should read them."""
        rows, self._to_hand_over = self._to_hand_over, None
        return None if rows is None else iter(rows)
