"""Reader of a streaming query for PySpark 4.1: each micro-batch has all records that are there.

PySpark 4.1 asks for the latest offset without the position of the stream, and without a limit. With `availableNow` it
runs one micro-batch and does not tell the source so. A limit would then leave records unread, so there is none.
"""

import time
from collections.abc import Sequence
from typing import Any

from pyspark.sql.datasource import InputPartition

from tidelog.spark import client_thread
from tidelog.spark.accelerators.error_texts import only_the_sentence
from tidelog.spark.options.query import ReadOptions
from tidelog.spark.options.values import OptionError
from tidelog.spark.source.batch_planning import Limits
from tidelog.spark.source.planned_reader import PlannedReader


def reject_limits(options: ReadOptions, version: str) -> None:
    if options.limits != Limits():
        raise OptionError(
            f"PySpark {version} cannot limit a micro-batch: leave out 'maxOffsetsPerTrigger', 'minOffsetsPerTrigger',"
            " 'maxTriggerDelay' and 'maxBytesPerTrigger', or install 4.2 or newer"
        )


class UnlimitedReader(PlannedReader):
    _position: dict[str, Any] | None = None
    """End of the last micro-batch that was planned; None before the first one of a new query."""

    @only_the_sentence()
    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802 - the signature of 4.1
        if self._position is not None:
            self._progress.publish(self._position)  # the batch before is done
        start = self.initialOffset() if self._position is None else self._position
        return client_thread.run(self._planner.next_end(start, Limits(), time.monotonic()))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Also remembers the position. A query that continues from a checkpoint first asks for its last micro-batch."""
        planned = super().partitions(start, end)
        self._position = end
        return planned
