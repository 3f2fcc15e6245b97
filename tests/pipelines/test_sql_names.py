"""Views that a piece of SQL reads."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.pipelines.checks.sql_names import ViewName, views_read_by


@pytest.mark.parametrize(
    ("sql", "views"),
    [
        ("SELECT * FROM orders", ["orders"]),
        ("select * from orders o join customers using (customer)", ["orders", "customers"]),
        ("SELECT * FROM a, b AS x, c y WHERE a.id IN (1, 2), d", ["a", "b", "c"]),
        ("SELECT a, b FROM x ORDER BY a, b", ["x"]),
        ("SELECT * FROM (SELECT * FROM inner_view) t LEFT JOIN `other` ON t.id = other.id", ["inner_view", "other"]),
        ("SELECT extract(year FROM at), trim(both 'x' FROM name) FROM orders", ["orders"]),
        ("SELECT a IS NOT DISTINCT FROM b FROM orders", ["orders"]),
        (
            "WITH recent AS (SELECT * FROM orders), other(a, b) AS (SELECT 1, 2) SELECT * FROM recent JOIN other",
            ["orders"],
        ),
        ("SELECT * FROM orders LATERAL VIEW explode(items) t AS item, position", ["orders"]),
        ("SELECT * FROM range(10) r JOIN orders", ["orders"]),
        ("SELECT 'FROM nowhere', \"JOIN nobody\" FROM orders -- FROM comment\n /* JOIN\n comment */", ["orders"]),
        ("SELECT * FROM catalog.schema.orders JOIN delta.`/path`", []),
        ("SELECT * FROM VALUES (1), (2)", []),
        ("SELECT * FROM Orders UNION ALL SELECT * FROM ORDERS", ["Orders"]),
        (
            "SELECT (SELECT max(x) FROM limits) AS y FROM orders WHERE id IN (SELECT id FROM good)",
            ["limits", "orders", "good"],
        ),
        ("FROM orders |> WHERE amount > 5", ["orders"]),
        ("SELECT 1", []),
        ("", []),
        ("SELECT * FROM", []),
        ("))) FROM orders ) (((", ["orders"]),
    ],
)
def test_views_behind_from_and_join(sql: str, views: list[str]) -> None:
    assert [view.name for view in views_read_by(sql)] == views


def test_each_name_has_its_line() -> None:
    assert views_read_by("SELECT *\nFROM orders\nJOIN\n  customers") == [
        ViewName("orders", 1),
        ViewName("customers", 3),
    ]


WORDS = st.sampled_from(
    ["FROM", "JOIN", "WITH", "AS", "x", "`y`", "(", ")", ",", ".", "'", "--", "\n", "trim", "DISTINCT"]
)


@given(st.lists(st.one_of(WORDS, st.text(max_size=3)), max_size=20).map(" ".join))
def test_any_text_is_read_without_an_error(sql: str) -> None:
    for view in views_read_by(sql):
        assert view.name in sql.replace("``", "`")
