"""A model of tables that changes are merged into, in plain Python, and changes as Arrow."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import pyarrow as pa

from tidelog.pipelines.definition.model import Upsert
from tidelog.pipelines.tables.upsert_writer import Changes

SCHEMA = pa.schema([("id", pa.int64()), ("country", pa.string()), ("amount", pa.float64()), ("at", pa.int64())])
LATEST = Upsert(("id",), ("at",))
ARRIVAL = Upsert(("id",))
HISTORY = Upsert(("id",), ("at",), has_history=True)
TWO_KEYS = Upsert(("id", "country"), ("at",))
Row = tuple[object, ...]


class Change(NamedTuple):
    id: int
    country: str
    amount: float
    at: int | None
    """None: a delete that does not say when, as a record without a value."""
    is_delete: bool = False


class Model:
    """The last event of each key and sequence, in order of arrival."""

    def __init__(self, upsert: Upsert) -> None:
        self._upsert = upsert
        self._events: dict[tuple[object, ...], dict[object, Change]] = {}

    def apply(self, changes: Iterable[Change]) -> None:
        for change in changes:
            key = tuple(getattr(change, name) for name in self._upsert.keys)
            events = self._events.setdefault(key, {})
            if not self._upsert.sequence_by:
                events[None] = change
            elif change.at is not None:
                events[change.at] = change
            elif events:
                events[max(events)] = change  # type: ignore[type-var]

    def rows(self) -> list[Row]:
        found: list[Row] = []
        for events in filter(None, self._events.values()):
            if not self._upsert.has_history:
                last = events[None] if None in events else events[max(events)]  # type: ignore[type-var]
                found += [] if last.is_delete else [last[:4]]
                continue
            moments = sorted(events)  # type: ignore[type-var]
            ends = [*moments[1:], None]
            found += [
                (*events[at][:4], at, end) for at, end in zip(moments, ends, strict=True) if not events[at].is_delete
            ]
        return sorted(found, key=repr)


def arrow(changes: Sequence[Change]) -> Changes:
    rows = pa.Table.from_pylist([change._asdict() for change in changes], schema=SCHEMA)
    return Changes(rows, pa.chunked_array([pa.array([change.is_delete for change in changes], pa.bool_())]))


def rows_of(table: pa.Table) -> list[Row]:
    names = [*SCHEMA.names, *(name for name in ("valid_from", "valid_to") if name in table.column_names)]
    return sorted((tuple(row[name] for name in names) for row in table.to_pylist()), key=repr)
