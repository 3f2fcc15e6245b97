"""`tidelog.spark.table`: an exactly-once Delta, Iceberg or Parquet table for `foreachBatch`."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.pipelines.tables.foreach_batch import ForEachBatch


def table(
    *,
    delta: str | None = None,
    iceberg: str | None = None,
    parquet: str | None = None,
    name: str | None = None,
    mode: str = "append",
    keys: Sequence[str] | str | None = None,
    sequence_by: Sequence[str] | str | None = None,
    delete_when: str | None = None,
    history: bool = False,
    omit: Sequence[str] | str | None = None,
    partition_by: Sequence[str] | str | None = None,
    schema_changes: str = "fail",
    compact: bool | Mapping[str, object] = True,
    catalog: Mapping[str, str] | None = None,
) -> "ForEachBatch":
    """For `writeStream.foreachBatch(table(delta="tables/orders"))`. The arguments are the keys of a pipeline's sink.

    Each micro-batch is one commit with its number: one that Spark runs again is not written again. `name` belongs to
    one checkpoint: another checkpoint with the same name is refused. Spark Connect needs it. Raises OptionError.
    """
    from tidelog.pipelines.tables.foreach_batch import ForEachBatch, application_of_query
    from tidelog.pipelines.tables.table_options import sink_of_options

    given = {
        "delta": delta,
        "iceberg": iceberg,
        "parquet": parquet,
        "name": name,
        "mode": mode,
        "keys": _listed(keys),
        "sequence_by": _listed(sequence_by),
        "delete_when": delete_when,
        "history": history or None,
        "omit": _listed(omit),
        "partition_by": _listed(partition_by),
        "schema_changes": schema_changes,
        "compact": dict(compact) if isinstance(compact, Mapping) else compact,
        "catalog": None if catalog is None else dict(catalog),
    }
    sink = sink_of_options({key: value for key, value in given.items() if value is not None})
    return ForEachBatch(sink, Path(), partial(application_of_query, name))


def _listed(names: Sequence[str] | str | None) -> object:
    return names if names is None or isinstance(names, str) else list(names)
