"""The merge of changes gives the same table as the model, in whatever batches they arrive."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pipelines.change_model import (
    ARRIVAL,
    HISTORY,
    LATEST,
    SCHEMA,
    TWO_KEYS,
    Change,
    Model,
    arrow,
    rows_of,
)
from tidelog.pipelines.definition.model import Upsert
from tidelog.pipelines.tables.change_merge import distinct_keys, events_of_changes, merge, split
from tidelog.pipelines.tables.upsert_writer import with_versions

UPSERTS = {"latest": LATEST, "arrival": ARRIVAL, "history": HISTORY, "two keys": TWO_KEYS}
CHANGES = st.builds(
    Change,
    st.integers(0, 3),
    st.sampled_from(["CH", "DE"]),
    st.integers(0, 99).map(float),
    st.integers(0, 5),
    st.booleans(),
)
BATCHES = st.lists(st.lists(CHANGES, min_size=1, max_size=6), max_size=6)
UNSEQUENCED = st.builds(Change, st.integers(0, 3), st.just(""), st.just(0.0), st.none(), st.just(True))
BATCHES_WITH_UNSEQUENCED = st.lists(st.lists(CHANGES | UNSEQUENCED, min_size=1, max_size=6), max_size=6)


class MergedTable:
    """A table in memory."""

    def __init__(self, upsert: Upsert) -> None:
        self._upsert = upsert
        self.rows = with_versions(SCHEMA, upsert).empty_table()
        self._deletes: pa.Table | None = None

    def apply(self, changes: list[Change]) -> bool:
        rows, is_delete = arrow(changes).rows, arrow(changes).is_delete
        events = events_of_changes(rows, is_delete, 0)
        keys = distinct_keys(events, self._upsert.keys)
        existing, others = split(self.rows, keys)
        known, other_deletes = (None, None) if self._deletes is None else split(self._deletes, keys)
        merged = merge(existing, known, events, self._upsert)
        self.rows = pa.concat_tables([others, merged.rows])
        self._deletes = pa.concat_tables([merged.deletes, *([] if other_deletes is None else [other_deletes])])
        return merged.has_effect


@pytest.mark.parametrize("name", UPSERTS)
@given(batches=BATCHES)
def test_the_table_is_what_the_model_says(name: str, batches: list[list[Change]]) -> None:
    model, table = Model(UPSERTS[name]), MergedTable(UPSERTS[name])
    for changes in batches:
        model.apply(changes)
        table.apply(changes)
        assert rows_of(table.rows) == model.rows()


@given(batches=BATCHES_WITH_UNSEQUENCED)
def test_a_delete_without_a_sequence_follows_what_arrived_before_it(batches: list[list[Change]]) -> None:
    test = test_the_table_is_what_the_model_says.hypothesis.inner_test
    test("latest", batches)


def test_a_delete_without_a_sequence_of_a_key_that_nobody_knows_has_no_effect() -> None:
    table = MergedTable(LATEST)
    assert not table.apply([Change(1, "", 0.0, None, is_delete=True)])
    assert table.apply([Change(1, "CH", 1.0, 5)])
    assert table.apply([Change(1, "", 0.0, None, is_delete=True)])
    assert not table.apply([Change(1, "CH", 2.0, 4)])
    assert rows_of(table.rows) == []


@pytest.mark.parametrize("name", ["latest", "history", "two keys"])
@given(
    changes=st.lists(CHANGES, min_size=1, max_size=8, unique_by=lambda change: (change.id, change.at)), data=st.data()
)
def test_the_order_of_arrival_makes_no_difference_with_a_sequence(
    name: str, changes: list[Change], data: st.DataObject
) -> None:
    tables = MergedTable(UPSERTS[name]), MergedTable(UPSERTS[name])
    tables[0].apply(changes)
    for change in data.draw(st.permutations(changes)):
        tables[1].apply([change])
    assert rows_of(tables[0].rows) == rows_of(tables[1].rows)


def test_a_change_that_is_too_late_has_no_effect() -> None:
    table = MergedTable(LATEST)
    assert table.apply([Change(1, "CH", 1.0, 5)])
    assert not table.apply([Change(1, "CH", 2.0, 4)])
    assert table.apply([Change(1, "CH", 0.0, 7, is_delete=True)])
    assert not table.apply([Change(1, "CH", 3.0, 6)])
    assert rows_of(table.rows) == []


def test_a_late_delete_ends_a_version_in_the_middle() -> None:
    table = MergedTable(HISTORY)
    table.apply([Change(1, "CH", 1.0, 10), Change(1, "CH", 2.0, 20)])
    table.apply([Change(1, "CH", 0.0, 15, is_delete=True)])
    table.apply([Change(1, "CH", 3.0, 12)])
    assert rows_of(table.rows) == [
        (1, "CH", 1.0, 10, 10, 12),
        (1, "CH", 2.0, 20, 20, None),
        (1, "CH", 3.0, 12, 12, 15),
    ]
