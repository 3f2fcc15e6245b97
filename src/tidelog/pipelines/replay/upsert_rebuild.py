"""Rows of a table of upserts, computed at once from all of its changes.

The result of a merge does not depend on the batches in which changes arrive, so that Spark can compute it with windows
over the keys, without the table."""

from typing import TYPE_CHECKING

from tidelog.pipelines.definition.model import Upsert
from tidelog.pipelines.replay.replay_start import ReplayRejected
from tidelog.pipelines.tables.change_merge import IS_DELETE, VALID_FROM, VALID_TO
from tidelog.pipelines.tables.upsert_writer import OFFSET, changes_of, written_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

RANK = "__rank"
HIGHEST = "__highest"


def rebuilt(rows: "DataFrame", upsert: Upsert) -> "DataFrame":
    """Raises ReplayRejected if the order of the changes cannot be known."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    names = written_columns(rows.columns, upsert)
    changes = changes_of(rows, upsert)
    arrival = [OFFSET] if OFFSET in changes.columns else []
    if arrival and upsert.sequence_by and not upsert.has_history:
        changes = _with_deletes_sequenced(changes, upsert)
    changes = _without_nulls(changes, upsert)
    if not arrival and not upsert.sequence_by:
        raise ReplayRejected(
            "the order of its changes is unknown: without sequence_by, the rows need the column _offset, which a step"
            " leaves out"
        )
    keys, sequence = list(upsert.keys), list(upsert.sequence_by)
    unique = [*keys, *sequence] if upsert.has_history else keys
    latest_first = Window.partitionBy(*unique).orderBy(*(F.col(f"`{name}`").desc() for name in (*sequence, *arrival)))
    last = changes.withColumn(RANK, F.row_number().over(latest_first)).where(F.col(RANK) == 1)
    if upsert.has_history:
        versions = Window.partitionBy(*keys).orderBy(*sequence)
        last = last.withColumns({VALID_FROM: F.col(sequence[0]), VALID_TO: F.lead(sequence[0]).over(versions)})
        names = [*names, VALID_FROM, VALID_TO]
    return last.where(~F.col(IS_DELETE)).select(*(F.col(f"`{name}`") for name in names))


def _with_deletes_sequenced(changes: "DataFrame", upsert: Upsert) -> "DataFrame":
    """As the merge does: a delete without a sequence has the highest that arrived before it, if there is one."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    sequence = [F.col(f"`{name}`") for name in upsert.sequence_by]
    is_missing = F.greatest(*(column.isNull() for column in sequence), F.lit(False))
    is_unsequenced = F.col(IS_DELETE) & is_missing
    until_now = Window.partitionBy(*upsert.keys).orderBy(OFFSET).rowsBetween(Window.unboundedPreceding, 0)
    highest = F.max(F.when(~is_missing, F.struct(*sequence))).over(until_now)
    known = changes.withColumn(HIGHEST, highest).where(~is_unsequenced | F.col(HIGHEST).isNotNull())
    given = {
        name: F.when(is_unsequenced, F.col(HIGHEST).getField(name)).otherwise(F.col(f"`{name}`"))
        for name in upsert.sequence_by
    }
    return known.withColumns(given).drop(HIGHEST)


def _without_nulls(changes: "DataFrame", upsert: Upsert) -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812

    def checked(name: str) -> "Column":
        column = F.col(f"`{name}`")
        problem = F.raise_error(F.lit(f"A row has no {name}, which is among the keys or sequence_by of its table"))
        return F.when(column.isNull(), problem.cast(changes.schema[name].dataType)).otherwise(column)

    return changes.withColumns({name: checked(name) for name in (*upsert.keys, *upsert.sequence_by)})
