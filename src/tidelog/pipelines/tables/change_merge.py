"""Merge of changes into the rows of a table: upserts and deletes by key, and versions of each key.

The state of a key is a set of events, at most one for each sequence value: rows of the table, remembered deletes, and
new changes. Of two events with the same sequence the later arrival wins. A table of current rows keeps the last event
of each key, a history keeps all of them. So the result does not depend on the batches in which changes arrive, and a
batch that is merged again changes nothing.
"""

# Core: no clock, no I/O, no await.

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.pipelines.definition.model import Upsert

VALID_FROM = "valid_from"
VALID_TO = "valid_to"

IS_DELETE = "__delete"
ORDER = "__order"
DELETED_AT = "__at"
"""When a delete was merged, in seconds since 1970: deletes are not remembered for ever."""
INDEX = "__index"
IS_KNOWN = "__known "
NOWHERE = -1

OF_GAP = -3
OF_ROW = -2
OF_REMEMBERED_DELETE = -1
"""Order of events that the table knows already; those of new changes count from 0."""


class Merged(NamedTuple):
    rows: pa.Table
    """All rows of the affected keys, with the columns of the table."""
    deletes: pa.Table
    """Deletes of the affected keys to remember."""
    has_effect: bool
    """False if all changes came too late."""


def events_of_changes(rows: pa.Table, is_delete: pa.ChunkedArray, now_s: int) -> pa.Table:
    """`rows` in order of arrival."""
    events = rows.append_column(IS_DELETE, is_delete)
    events = events.append_column(ORDER, pa.array(np.arange(rows.num_rows), pa.int64()))
    return events.append_column(DELETED_AT, pa.array(np.full(rows.num_rows, now_s), pa.int64()))


def merge(existing: pa.Table, deletes: pa.Table | None, changes: pa.Table, upsert: Upsert) -> Merged:
    """`existing` and `deletes` have only affected keys; `changes` as `events_of_changes` makes them."""
    parts = [_events(existing, OF_ROW, is_delete=False)]
    if upsert.has_history:
        (sequence,) = upsert.sequence_by
        ends = existing.filter(pc.is_valid(existing[VALID_TO]))
        gaps = _with(ends.select(list(upsert.keys)), sequence, ends[VALID_TO])
        # The start of a version is its sequence, also if that column was changed by hand.
        parts = [_events(_with(existing.drop_columns([VALID_FROM, VALID_TO]), sequence, existing[VALID_FROM]), OF_ROW)]
        parts.append(_events(gaps, OF_GAP, is_delete=True))
    if deletes is not None and deletes.num_rows:
        parts.append(_events(deletes, OF_REMEMBERED_DELETE, is_delete=True))
    events = pa.concat_tables([*parts, changes], promote_options="default")
    if upsert.sequence_by and not upsert.has_history:
        events = _with_deletes_sequenced(events, upsert)
    ordered = _sorted(events, (*upsert.keys, *upsert.sequence_by, ORDER))
    last_of_event = ~_same_as_next(ordered, (*upsert.keys, *upsert.sequence_by))
    ordered = ordered.filter(pa.array(last_of_event))
    next_is_same_key = _same_as_next(ordered, upsert.keys)
    if upsert.has_history:
        return _history(ordered, next_is_same_key, upsert, existing.schema)
    return _current(ordered.filter(pa.array(~next_is_same_key)), upsert, existing.schema)


def _with_deletes_sequenced(events: pa.Table, upsert: Upsert) -> pa.Table:
    """Gives deletes that have no sequence (records without a value) the highest sequence that arrived before them.

    So they delete what is there, and are remembered with its sequence. Deletes of unknown keys are left out.
    """
    is_sequenced = np.ones(events.num_rows, dtype=bool)
    for name in upsert.sequence_by:
        is_sequenced &= events[name].is_valid().to_numpy()
    is_sequenced |= ~events[IS_DELETE].to_numpy()
    if is_sequenced.all():
        return events
    count = events.num_rows
    events = events.append_column(INDEX, pa.array(np.arange(count), pa.int64()))
    by_sequence = _sorted(events.filter(pa.array(is_sequenced)), (*upsert.sequence_by, ORDER))[INDEX].to_numpy()
    rank = np.zeros(count, dtype=np.int64)
    rank[by_sequence] = np.arange(1, len(by_sequence) + 1)
    by_arrival = _sorted(events, (*upsert.keys, ORDER))
    group = np.cumsum(~np.roll(_same_as_next(by_arrival, upsert.keys), 1)) * (count + 1)
    indexes = by_arrival[INDEX].to_numpy()
    highest = np.maximum.accumulate(group + rank[indexes]) - group
    origin = np.empty(count, dtype=np.int64)
    origin[indexes] = np.where(is_sequenced[indexes], indexes, np.concatenate([[NOWHERE], by_sequence])[highest])
    is_known = origin != NOWHERE
    events, origins = events.filter(pa.array(is_known)).drop_columns([INDEX]), events.take(pa.array(origin[is_known]))
    for name in upsert.sequence_by:
        events = _with(events, name, origins[name])
    return events


def _current(winners: pa.Table, upsert: Upsert, schema: pa.Schema) -> Merged:
    is_delete = winners[IS_DELETE]
    gone = winners.filter(is_delete)
    return Merged(
        winners.filter(pc.invert(is_delete)).select(schema.names).cast(schema),
        _remembered(gone if upsert.sequence_by else gone.slice(0, 0), upsert),
        _has_new(winners),
    )


def _history(ordered: pa.Table, next_is_same_key: "np.ndarray", upsert: Upsert, schema: pa.Schema) -> Merged:
    (sequence,) = upsert.sequence_by
    starts = ordered[sequence].combine_chunks()
    following = pa.array(np.minimum(np.arange(len(starts)) + 1, max(0, len(starts) - 1)), pa.int64())
    ends = pc.if_else(pa.array(next_is_same_key), starts.take(following), pa.scalar(None, starts.type))
    versions = _with(_with(ordered, VALID_FROM, starts), VALID_TO, ends)
    is_gap = pc.equal(ordered[ORDER], OF_GAP)
    return Merged(
        versions.filter(pc.invert(ordered[IS_DELETE])).select(schema.names).cast(schema),
        _remembered(ordered.filter(pc.and_(ordered[IS_DELETE], pc.invert(is_gap))), upsert),
        _has_new(ordered),
    )


def _has_new(events: pa.Table) -> bool:
    return bool(pc.any(pc.greater_equal(events[ORDER], 0)).as_py())


def _remembered(deletes: pa.Table, upsert: Upsert) -> pa.Table:
    return deletes.select([*upsert.keys, *upsert.sequence_by, DELETED_AT])


def _events(rows: pa.Table, order: int, *, is_delete: bool = False) -> pa.Table:
    count = rows.num_rows
    events = rows.append_column(IS_DELETE, pa.array(np.full(count, is_delete)))
    events = events.append_column(ORDER, pa.array(np.full(count, order), pa.int64()))
    if DELETED_AT in rows.column_names:
        return events
    return events.append_column(DELETED_AT, pa.nulls(count, pa.int64()))


def _with(rows: pa.Table, name: str, values: pa.ChunkedArray) -> pa.Table:
    """The rows with a column set or added."""
    index = rows.schema.get_field_index(name)
    return rows.append_column(name, values) if index < 0 else rows.set_column(index, name, values)


def _sorted(events: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Nulls first: a row without a sequence is older than any change. Arrow sorts them last."""
    keys: list[str] = []
    sortable = events
    for name in columns:
        if events[name].null_count:
            keys.append(f"{IS_KNOWN}{name}")
            sortable = sortable.append_column(keys[-1], pc.cast(pc.is_valid(events[name]), pa.int8()))
        keys.append(name)
    return events.take(pc.sort_indices(sortable, sort_keys=[(name, "ascending") for name in keys]))


def _same_as_next(events: pa.Table, columns: Sequence[str]) -> "np.ndarray":
    """For each row: whether the next row has the same values in these columns."""
    count = events.num_rows
    same = np.zeros(count, dtype=bool)
    if count < 2:
        return same
    same[:-1] = True
    for name in columns:
        values = events[name].combine_chunks()
        this, following = values.slice(0, count - 1), values.slice(1)
        both_null = pc.and_(this.is_null(), following.is_null())
        equal = pc.or_(pc.fill_null(pc.equal(this, following), fill_value=False), both_null)
        same[:-1] &= equal.to_numpy(zero_copy_only=False)
    return same


def affected_rows(rows: pa.Table, changed_keys: pa.Table) -> pa.Array:
    """Indexes of the rows whose key is among the changed ones."""
    names = changed_keys.column_names
    keys = rows.select(names).append_column(INDEX, pa.array(np.arange(rows.num_rows), pa.int64()))
    found = keys.join(changed_keys, keys=names, join_type="left semi")
    return found[INDEX].combine_chunks()


def split(rows: pa.Table, changed_keys: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Rows of changed keys, and the others."""
    indexes = affected_rows(rows, changed_keys)
    is_other = np.ones(rows.num_rows, dtype=bool)
    is_other[indexes.to_numpy()] = False
    return rows.take(indexes), rows.filter(pa.array(is_other))


def distinct_keys(changes: pa.Table, keys: Sequence[str]) -> pa.Table:
    return changes.select(list(keys)).group_by(list(keys)).aggregate([])
