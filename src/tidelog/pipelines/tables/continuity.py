"""Continuity check between a table and the checkpoint that is about to continue it.

An application is a pipeline's sink with one checkpoint: `pipeline/sink/query id`. The checkpoint numbers the batches,
so batch numbers of another checkpoint, or of an older copy, say nothing about what the table holds.
"""

from collections.abc import Iterable

from tidelog.pipelines.tables.table import TableError


def application_of(pipeline: str, sink: str, query_id: str) -> str:
    return f"{pipeline}/{sink}/{query_id}"


def owner_of(application_id: str) -> str:
    """The pipeline's sink, for any checkpoint; empty if the application is not a pipeline."""
    return application_id.rpartition("/")[0]


def other_owners(applications: Iterable[str], application_id: str) -> list[str]:
    """Writers other than the owner of the application; an application that is not a pipeline counts as itself."""
    names = set(applications)
    # Delta tables have transactions of owners besides those of applications.
    names -= {owner_of(name) for name in names}
    return sorted({owner_of(name) or name for name in names} - {owner_of(application_id) or application_id})


def reject_another_checkpoint(location: str, application_id: str) -> None:
    raise TableError(
        f"Table '{location}' holds rows that {owner_of(application_id)} wrote with another checkpoint. This checkpoint "
        "starts from the beginning and would write them a second time: restore the other checkpoint (or use its "
        "--state directory), rebuild the table with `tidelog pipeline replay`, or write to another table"
    )


def reject_break(location: str, batch_id: int, last_batch: int | None, *, is_there: bool) -> None:
    """Spark repeats at most the last batch of a checkpoint."""
    if last_batch is not None and last_batch > batch_id:
        raise TableError(
            f"Table '{location}' already holds batch {last_batch}, but the checkpoint continues with batch {batch_id}: "
            "it is older than the table, and rows would be lost or duplicated. Restore the latest checkpoint, or "
            "rename the sink and its table to write both from the start"
        )
    if batch_id > 0 and not is_there:
        raise TableError(
            f"Table '{location}' is gone, but the checkpoint continues with batch {batch_id}: earlier rows "
            "would be missing. Restore the table, or rebuild it with `tidelog pipeline replay`"
        )
