"""Whether a table and the checkpoint that is about to go on with it belong together.

An application is a pipeline's sink under one checkpoint: `pipeline/sink/query id`. Batches are numbered by the
checkpoint, so that the numbers of another one, or of an older copy of it, say nothing about what the table holds.
"""

from collections.abc import Iterable

from tidelog.pipelines.tables.table import TableError


def application_of(pipeline: str, sink: str, query_id: str) -> str:
    return f"{pipeline}/{sink}/{query_id}"


def owner_of(application_id: str) -> str:
    """The pipeline's sink, whatever the checkpoint; empty if the application is nobody's."""
    return application_id.rpartition("/")[0]


def other_owners(applications: Iterable[str], application_id: str) -> list[str]:
    """Whoever wrote beside the owner of the application; those that are nobody's speak for themselves."""
    names = set(applications)
    # Delta tables name the owners too, beside their applications.
    names -= {owner_of(name) for name in names}
    return sorted({owner_of(name) or name for name in names} - {owner_of(application_id) or application_id})


def refuse_another_checkpoint(location: str, application_id: str) -> None:
    raise TableError(
        f"Table '{location}' holds rows that {owner_of(application_id)} wrote with another checkpoint, and this one "
        "begins anew, so that they would be there twice: restore that checkpoint (or name its --state directory), "
        "build the table anew with `tidelog pipeline replay`, or write to another table"
    )


def refuse_break(location: str, batch_id: int, last_batch: int | None, *, is_there: bool) -> None:
    """Spark repeats the last batch of a checkpoint at most."""
    if last_batch is not None and last_batch > batch_id:
        raise TableError(
            f"Table '{location}' holds batch {last_batch} already, but the checkpoint goes on with batch {batch_id}: "
            "it is older than the table, and rows would be lost or there twice. Restore the latest checkpoint, or "
            "give the sink another name and another table, which is then written from the start"
        )
    if batch_id > 0 and not is_there:
        raise TableError(
            f"Table '{location}' is gone, but the checkpoint goes on with batch {batch_id}, so that all rows before "
            "would be missing: restore the table, or build it anew with `tidelog pipeline replay`"
        )
