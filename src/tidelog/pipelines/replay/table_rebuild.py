"""Builds the contents of a table anew beside it, and exchanges them in one step while its pipeline goes on.

The table holds what its query had read up to the end of one batch, and the checkpoint knows where that is. New files
are written for everything up to there; batches that arrive meanwhile are not touched and stay. Only if files were
rewritten meanwhile, by a compaction, can old rows no longer be told from those that arrived: then the new files are
extended to where the query is now.
"""

import logging
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias

from tidelog.pipelines.replay.query_checkpoint import BadCheckpoint
from tidelog.pipelines.running.failures import PipelineFailed
from tidelog.pipelines.tables.facts import FileFacts
from tidelog.pipelines.tables.files import FileLayout
from tidelog.pipelines.tables.table import Contents, Table
from tidelog.spark.offsets import Positions

logger = logging.getLogger(__name__)

CATCH_UPS_MAX = 20
"""A compaction comes after many batches, and to catch up takes no longer than a few: one or two are usual."""


class Checkpoint(Protocol):
    def last_committed(self) -> int | None: ...

    def last_planned(self) -> int | None: ...

    def end_of(self, batch_id: int) -> Positions: ...


class Standing(NamedTuple):
    """How far the query is, and what the table holds of it."""

    contents: Contents
    batch_id: int
    is_planned: bool
    """The batch has not been carried out yet: it is from now on, and must not be by its query meanwhile."""
    end: Positions


WriteFiles: TypeAlias = Callable[[Positions | None, Positions], list[FileFacts]]
"""Writes files with the rows of all records after the first positions (None: from the start) up to the second."""


def standing(table: Table, checkpoint: Checkpoint) -> Standing:
    """The checkpoint is asked first: what it calls carried out is in the table, whose batches may be further on."""
    committed = checkpoint.last_committed()
    contents = Contents(frozenset(), None) if table.schema() is None else table.contents()
    done = [batch for batch in (committed, contents.last_batch) if batch is not None]
    batch_id = max(done) if done else checkpoint.last_planned()
    if batch_id is None:
        raise BadCheckpoint("no batch has been read yet: run the pipeline first")
    return Standing(contents, batch_id, not done, checkpoint.end_of(batch_id))


def rebuild(
    table: Table,
    layout: FileLayout,
    checkpoint: Checkpoint,
    begun: Standing,
    write: WriteFiles,
    say: Callable[[str], None] = lambda line: None,
) -> list[FileFacts]:
    """The files that are now in the table; those of batches that arrived meanwhile are there besides."""
    files = write(None, begun.end)
    for _ in range(CATCH_UPS_MAX + 1):
        if table.replace(begun.contents, files, layout, begun.batch_id, keeps_later=not begun.is_planned):
            return files
        now = standing(table, checkpoint)
        say(f"the table was changed meanwhile: reading on to batch {now.batch_id}")
        logger.info("replay catches up batch=%d from_batch=%d", now.batch_id, begun.batch_id)
        if now.end != begun.end:
            files += write(begun.end, now.end)
        begun = now
    raise PipelineFailed(
        "the table is rewritten all the time, so that its contents could not be exchanged; it is as it was: stop the "
        "pipeline and replay again"
    )
