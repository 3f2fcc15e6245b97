"""Maintenance of a table after a batch: compaction, and removal of unreferenced files."""

import logging

from tidelog.pipelines.definition.model import TableSink
from tidelog.pipelines.tables.table import Table

logger = logging.getLogger(__name__)

SWEEPS_EVERY = 16
"""Compactions between two sweeps for unreferenced files."""
SWEPT_AFTER_S = 7 * 24 * 3600.0
"""Longer than any task that may still commit; also Delta's default retention of removed files."""


def maintain(table: Table, sink: TableSink, batch_id: int) -> None:
    compaction = sink.compaction
    if compaction is None or not is_due(batch_id, compaction.files):
        return
    try:
        replaced = table.compact(compaction)
        swept = table.sweep(SWEPT_AFTER_S) if is_due(batch_id, compaction.files * SWEEPS_EVERY) else 0
        logger.info("table compacted table=%s replaced=%d swept=%d", sink.location, replaced, swept)
    except Exception:
        logger.warning("table compaction failed table=%s", sink.location, exc_info=True)


def is_due(batch_id: int, every: int) -> bool:
    """Decided by the batch id, not by a counter of this process: a pipeline may run one batch per process."""
    return (batch_id + 1) % every == 0
