"""Rebuild of a table: new files are written beside it, then replace its contents in one commit.

The table holds what its query has read up to the end of one batch, which the checkpoint knows. New files are written
for everything up to there; batches that arrive meanwhile stay untouched. If a compaction rewrites files meanwhile,
old rows can no longer be separated from new ones: then the new files are extended up to the current batch.
"""

import logging
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias

from tidelog.pipelines.replay.query_checkpoint import BadCheckpoint
from tidelog.pipelines.running.failures import PipelineFailed
from tidelog.pipelines.tables.file_facts import FileFacts
from tidelog.pipelines.tables.files import FileLayout
from tidelog.pipelines.tables.table import Contents, Table
from tidelog.spark.offset_json import Positions

logger = logging.getLogger(__name__)

MAX_CATCH_UPS = 20
"""A compaction follows many batches, and catching up takes only a few of them: one or two rounds are usual."""


class Checkpoint(Protocol):
    def last_committed(self) -> int | None: ...

    def last_planned(self) -> int | None: ...

    def end_of(self, batch_id: int) -> Positions: ...


class TableState(NamedTuple):
    """Last batch of the query, and the contents of the table at that batch."""

    contents: Contents
    batch_id: int
    is_planned: bool
    """The batch is planned but not committed: the replay writes it, and the query must not write it meanwhile."""
    end: Positions


WriteFiles: TypeAlias = Callable[[Positions | None, Positions], list[FileFacts]]
"""Writes files with the rows of all records after the first positions (None: from the start) up to the second."""


def table_state(table: Table, checkpoint: Checkpoint) -> TableState:
    """State of the table and its checkpoint.

    The checkpoint is read first: the table has every batch that is committed there, and may have later ones.
    """
    committed = checkpoint.last_committed()
    contents = Contents(frozenset(), None) if table.schema() is None else table.contents()
    done = [batch for batch in (committed, contents.last_batch) if batch is not None]
    batch_id = max(done) if done else checkpoint.last_planned()
    if batch_id is None:
        raise BadCheckpoint("no batch has been read yet: run the pipeline first")
    return TableState(contents, batch_id, not done, checkpoint.end_of(batch_id))


def rebuild(
    table: Table,
    layout: FileLayout,
    checkpoint: Checkpoint,
    begun: TableState,
    write: WriteFiles,
    say: Callable[[str], None] = lambda line: None,
    *,
    keeps_later: bool = True,
) -> list[FileFacts]:
    """Replace the table's contents and return the new files. Files of batches that were added meanwhile stay, unless
    `keeps_later` is false: then such batches are written, too."""
    files = write(None, begun.end)
    for _ in range(MAX_CATCH_UPS + 1):
        may_keep = keeps_later and not begun.is_planned
        if table.replace(begun.contents, files, layout, begun.batch_id, keeps_later=may_keep):
            return files
        now = table_state(table, checkpoint)
        say(f"the table has changed meanwhile: continuing to batch {now.batch_id}")
        logger.info("replay catches up batch=%d from_batch=%d", now.batch_id, begun.batch_id)
        if now.end != begun.end:
            files += write(begun.end, now.end)
        begun = now
    raise PipelineFailed(
        "the table was not changed: other writers rewrote it during every attempt to replace its contents; "
        "stop the pipeline and replay again"
    )
