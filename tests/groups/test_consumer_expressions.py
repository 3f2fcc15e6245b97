"""Regular expressions for topics: RE2's language, without a way to keep the broker busy."""

import random
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.counted_calls import counted_calls
from tidelog.groups.consumer.expression_parser import InvalidExpression
from tidelog.groups.consumer.regular_expressions import TopicPattern

NAMES = ["orders", "orders-eu", "orders.us", "orders_1", "ORDERS", "o", "payments", "__consumer_offsets", "a-1", "10"]


def matching(expression: str, names: list[str] = NAMES) -> set[str]:
    return set(TopicPattern(expression).matching(names))


@pytest.mark.parametrize(
    "expression",
    [
        "orders",
        "orders.*",
        "orders[-.].+",
        "^orders$",
        "orders|payments",
        "(orders|pay(ments))?",
        "o(?:rders)?",
        r"orders\.us",
        r"\w+",
        r"\W+",
        r"[\w-]+",
        r"[^a-z]+",
        r"[a-z]{6}",
        r"[a-z]{1,6}",
        r"[a-z]{7,}",
        "o{0}rders",
        r"\d+",
        r"[\d]{2}",
        r".+-\d",
        "(?i)orders",
        "(?P<kind>orders)-.*",
        r"\bo\b",
        r"orders\b.*",
        r"orders\B.*",
        r"\Aorders\b-eu",
        "",
        ".*?",
        "(a|b|)-1",
        "[]a]-1",
        "[a-]-1",
        r"a\x2d1",
        "orders{",
        "x*",
        "(orders)+(-eu)?",
    ],
)
def test_it_matches_whole_names_as_python_does(expression: str) -> None:
    compiled = re.compile(expression, re.ASCII)
    assert matching(expression) == {name for name in NAMES if compiled.fullmatch(name)}


def test_it_matches_what_python_writes_differently() -> None:
    assert matching("[[:alpha:]]+") == {"orders", "ORDERS", "o", "payments"}
    assert matching("[[:^alpha:]]+") == {"10"}
    assert matching(r"\Qorders.us\E") == {"orders.us"}
    assert matching(r"orders\.us\z") == {"orders.us"}
    assert matching("(?<kind>orders)") == {"orders"}
    assert matching("o(?i)RDERS") == {"orders"}
    assert matching("(?i:O)rders") == {"orders"}
    assert matching(r"a\x{2d}1") == {"a-1"}
    assert matching(r"a\0551") == matching(r"a[\55]1") == {"a-1"}


def test_it_knows_the_unicode_classes_of_what_names_are_made_of() -> None:
    assert (
        matching(r"\pL+") == matching(r"\p{Latin}+") == matching(r"[\p{L}]+") == {"orders", "ORDERS", "o", "payments"}
    )
    assert matching(r"\p{Lu}+") == {"ORDERS"}
    assert matching(r"\p{Nd}+") == matching(r"[^\pL_.-]+") == {"10"}
    assert matching(r"\PN+") == matching(r"\p{^N}+") == set(NAMES) - {"orders_1", "a-1", "10"}
    assert matching(r"a\p{Pd}[\P{L}]") == {"a-1"}
    assert matching(r"(?i)\p{Lu}+") == matching(r"\pL+")
    assert matching(r"\p{Any}*") == set(NAMES)
    assert matching(r"\p{Lo}+") == set()


def test_a_repetition_is_of_the_last_character_before_it_whatever_stands_between() -> None:
    names = ["a", "ab", "abb", "abab"]
    assert matching(r"\Qab\E+", names) == matching("ab(?i)+", names) == {"ab", "abb"}
    assert matching(r"\Qab\E{2}", names) == matching("ab(?s){2}", names) == {"abb"}
    assert matching("ab?(?i)+", names) == {"a", "ab", "abb"}


@pytest.mark.parametrize(
    "expression",
    ["(", ")", "a)", "[", "[a", "[z-a]", "*", "a**", "a|*", r"\1", "(?=a)", "(?!a)", "(?<=a)", "(?<!a)", "\\",
     r"\p", r"\p{L", r"\p{Foo}", r"\p{}", r"[\pX]",
     "a{2,1}", "a{1001}", "(?P<>a)", "[[:nope:]]", r"\x", "(?z)a", "(?#a)", "(?i)+a", r"\Q\E*",
     r"\8", r"\1a", "(?P<n>a)(?P<n>b)", "(?P<n>a)|(?<n>b)", r"\Qa\E{2,1}", "((a{1000}){1000}){1000}", "(" * 200],
)  # fmt: skip
def test_what_re2_has_not_is_refused(expression: str) -> None:
    with pytest.raises(InvalidExpression):
        TopicPattern(expression)


atoms = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", "-", r"\w", r"\b", "^", "$", "ab", ""])
expressions = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=3).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda choices: f"(?:{'|'.join(choices)})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{0,2}", "{1,}", "*?"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
    ),
    max_leaves=8,
)


@given(expression=expressions, names=st.lists(st.text("ab-", max_size=6), max_size=6))
def test_any_expression_matches_as_in_python(expression: str, names: list[str]) -> None:
    compiled = re.compile(expression, re.ASCII)
    assert matching(expression, names) == {name for name in names if compiled.fullmatch(name)}


def test_an_expression_that_keeps_others_busy_for_ever_is_quick() -> None:
    started = time.process_time()
    assert matching("(a*)*b", ["a" * 200]) == set()
    assert matching("(a|a)*" * 10 + "b", ["a" * 200]) == set()
    assert time.process_time() - started < 1.0


def test_how_long_an_expression_may_take_is_limited() -> None:
    source = random.Random(1)
    names = ["".join(source.choices("ab", k=200)) for _ in range(1_000)]
    started = time.process_time()
    with pytest.raises(InvalidExpression):
        matching("(a|b)*a(a|b){150}", names)
    assert time.process_time() - started < 5.0


def test_thousands_of_topics_are_matched_quickly() -> None:
    names = [f"region-{number % 7}.orders.{number}" for number in range(10_000)]
    started = time.process_time()
    assert len(matching(r"region-[0-3]\.orders\..*", names)) == 5716
    assert time.process_time() - started < 1.0


@pytest.mark.parametrize(
    "expression",
    [
        "a" * 32_000,
        ".*" * 10_000,
        "{" * 32_000,
        "|" * 32_000,
        "()" * 16_000,
        "(?i)" + "[a-z]" * 6_000,
        "[\x00-\U0010ffff]" * 4_000,
        "[a-z]{0}" * 4_000,
        r"\Q" + "a" * 30_000,
        "(?P<" + "a" * 30_000,
        "|".join(f"topic-{number}.*" for number in range(2_000)),
    ],
    ids=lambda expression: expression[:12],
)
def test_an_expression_that_takes_long_to_parse_is_refused_before_that(expression: str) -> None:
    with counted_calls() as calls, pytest.raises(InvalidExpression):
        TopicPattern(expression)
    assert calls.count < 280_000


def test_an_expression_that_names_hundreds_of_topics_is_taken() -> None:
    names = [f"region-eu.orders-{number:03}" for number in range(400)]
    assert matching("|".join(names), [*names, "other"]) == set(names)
