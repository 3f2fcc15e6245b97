"""Text and JSON of `tidelog pipeline list` and `status`."""

# Core: no clock, no I/O, no await.

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime

from tidelog.pipelines.running.pipeline_state import ACTIVE, Status
from tidelog.terminal.tables import table

NONE_YET = "no pipeline has run on this machine; write one with `tidelog pipeline new`"


def table_of_all(pipelines: Sequence[tuple[str, Status | None]]) -> list[str]:
    rows = [(name, *_row(status)) for name, status in pipelines if status is not None]
    return table(["PIPELINE", "STATE", "PID", "SINCE", "FILE"], rows) if rows else [NONE_YET]


def _row(status: Status) -> tuple[object, ...]:
    is_active = status.state in ACTIVE
    since = status.started_at if is_active else status.updated_at
    return status.state, status.pid if is_active else "-", _moment(since), status.file


def lines_of_one(name: str, status: Status | None) -> list[str]:
    if status is None:
        return [NONE_YET]
    is_active = status.state in ACTIVE
    lines = [
        f"pipeline  {name}",
        f"state     {status.state}{f' (pid {status.pid})' if is_active else ''}",
        f"file      {status.file}",
        f"started   {_moment(status.started_at)}",
        f"{'seen  ' if is_active else 'ended '}    {_moment(status.updated_at)}",
    ]
    if status.spark_ui:
        lines.append(f"spark     {status.spark_ui}")
    if status.error:
        lines.append(f"error     {status.error}")
    return [*lines, *_progress(status.progress)]


def _progress(progress: Mapping[str, object]) -> list[str]:
    """The last progress that the run reported; a run of another version may report other fields."""
    queries = progress.get("queries")
    if not isinstance(queries, list | tuple) or not queries:
        return []
    rows = [_query(query) for query in queries if isinstance(query, Mapping)]
    return [
        "",
        *table(["QUERY", "STATE", "ROWS IN", "ROWS OUT", "IN/S", "MB/S", "LAG", "BATCHES", "LAST BATCH"], rows),
        *_losses(progress),
    ]


def _query(query: Mapping[str, object]) -> tuple[object, ...]:
    counts = [_shown(query.get(key)) for key in ("name", "state", "rows_in", "rows_out")]
    rates = [_rate(query.get("rows_in_per_second"), 1), _rate(query.get("bytes_in_per_second"), 1_000_000)]
    duration_ms = query.get("batch_duration_ms")
    rest = [_shown(query.get(key)) for key in ("lag", "batches")]
    return (*counts, *rates, *rest, "-" if duration_ms is None else f"{duration_ms} ms")


def _rate(per_second: object, unit: int) -> str:
    return f"{per_second / unit:,.1f}" if isinstance(per_second, int | float) else "-"


def _losses(progress: Mapping[str, object]) -> list[str]:
    kinds = (("dead_letters", "dead letter"), ("skipped_records", "skipped record"))
    counts = [f"{progress[key]} {noun}{'' if progress[key] == 1 else 's'}" for key, noun in kinds if progress.get(key)]
    violations = progress.get("violations")
    if isinstance(violations, Mapping):
        counts += [
            f"{name} violated by {rows} row{'' if rows == 1 else 's'}" for name, rows in violations.items() if rows
        ]
    return ["", ", ".join(counts)] if counts else []


def _shown(value: object) -> object:
    return "-" if value is None else value


def _moment(text: str) -> str:
    """Local time, in seconds."""
    try:
        return f"{datetime.fromisoformat(text).astimezone():%Y-%m-%d %H:%M:%S}"
    except ValueError:
        return text


def as_json(name: str, status: Status | None) -> dict[str, object]:
    return {"name": name} | (asdict(status) if status else {})
