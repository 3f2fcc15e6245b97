"""`tidelog.spark.table`: an exactly-once Delta, Iceberg or Parquet table for `foreachBatch`."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.spark.options.values import OptionError
from tidelog.spark.session_directory import relative_path_sentence

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
    from pyspark.sql.utils import is_remote

    from tidelog.pipelines.tables.foreach_batch import ForEachBatch
    from tidelog.pipelines.tables.table_options import relative_path, sink_of_options

    arguments = {
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
    given = {key: value for key, value in arguments.items() if value is not None}
    sink = sink_of_options(given)
    problem = problem_in_connect(name, relative_path(given))
    if problem is not None and is_remote():
        raise OptionError(problem)
    return ForEachBatch(sink, Path(), partial(application_of_table, name, problem))


def problem_in_connect(name: str | None, relative: str | None) -> str | None:
    """The function runs on the server, in another directory and without the id of the query."""
    if relative is not None:
        return relative_path_sentence(relative)
    if name is None:
        return "In Spark Connect a table needs a name that belongs to one checkpoint: table(name=...)"
    return None


def application_of_table(name: str | None, problem_in_connect: str | None, query_id: str | None) -> str:
    """Raises TableError in Spark Connect, where the query's id is None, if there is a problem."""
    from tidelog.pipelines.tables.foreach_batch import application_of_query
    from tidelog.pipelines.tables.table import TableError

    if query_id is None and problem_in_connect is not None:
        raise TableError(problem_in_connect)
    return application_of_query(name, query_id)


def _listed(names: Sequence[str] | str | None) -> object:
    return names if names is None or isinstance(names, str) else list(names)
