"""Reader of a streaming query: the driver plans the offsets of each micro-batch, tasks read the ranges.

PySpark 4.1 has no limits of micro-batches: see `unlimited_reader.py`.
"""

import time
from typing import Any

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from tidelog.spark import client_thread
from tidelog.spark.accelerators.error_texts import only_the_sentence
from tidelog.spark.source.batch_planning import Limits
from tidelog.spark.source.planned_reader import PlannedReader


class StreamReader(PlannedReader, SupportsTriggerAvailableNow):
    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - PySpark's name
        """Spark supports one limit at a time: the planner has all of them, and gets only whether to apply them.

        Spark calls this first when a query starts, and only on the driver.
        """
        if self.can_hand_over and self._options.driver_read_rows > 0:
            self._decoder.start()
        return ReadAllAvailable() if self._options.limits == Limits() else ReadMaxRows(_max_rows(self._options.limits))

    @only_the_sentence()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        self._progress.publish(start)  # the previous batch is done; Spark calls commit() only with the next one
        limits = Limits() if isinstance(limit, ReadAllAvailable) else self._options.limits
        return client_thread.run(self._planner.next_end(start, limits, time.monotonic()))

    @only_the_sentence()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        client_thread.run(self._planner.fix_end())

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return self._planner.latest_seen()


def _max_rows(limits: Limits) -> int:
    return limits.max_offsets if limits.max_offsets is not None else 2**63 - 1
