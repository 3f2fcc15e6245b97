"""The line of everything in a TOML file: in these texts each number is the line on which it stands."""

import tomllib
from collections.abc import Iterator

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tidelog.pipelines.definition.toml_lines import KeyPath, Lines

TEXT = '''\
# a comment = 0
first = 2

[pipeline]  # [not.a.header]
name = 5
"quoted key" = 6
'literal.key' = 7
dotted.inner . deep = 8
dotted.other = 9
"escaped\\u0041" = 10

[sources.orders]
topic = 13
options = { one = 14, two = { three = 14 }, "with.dot" = 14 }
list = [
  16, # with a comment ]
  17,
  [18, 18],
  { a = 19, b = [
    20 ] } ]
text = """ = not a key
[nor.a.header]
""" # three lines, up to 23
after_text = 24
single = 'it # is "no" comment'
double = "with \\" quote = # no"
many = """quotes at the end""\"""
after_many = 28

[[steps]]
view = 31
window = { size = 32 }

[[steps]]
view = 35

[steps.arguments]
limit = 38

[[steps.parts]]
at = 41
[[steps.parts]]
at = 43

[a.b]
c = 46
[a]
d = 48
empty = [ ]
nothing = {}
last = 51'''


def numbers(value: object, path: KeyPath = ()) -> Iterator[tuple[KeyPath, int]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from numbers(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from numbers(inner, (*path, index))
    elif isinstance(value, int):
        yield path, value


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_every_value_is_found_on_its_line(line_end: str) -> None:
    text = TEXT.replace("\n", line_end)
    found = list(numbers(tomllib.loads(text)))
    assert len(found) > 25
    lines = Lines(text)
    assert [(path, lines.of(path)) for path, _ in found] == found


@pytest.mark.parametrize("text", ["a = ''", 'a = ""', "a = ", "a = {}", "a = []"])
def test_empty_value_at_the_very_end(text: str) -> None:
    assert Lines(text).of(("a",)) == 1


KEYS = st.sampled_from(["a", "b", "c-d", '"e f"', "'g.h'", '"i\\u0041"', '"="', "'#'"])
LEAVES = st.sampled_from(
    [
        "1",
        "true",
        "2026-01-31T12:00:00Z",
        '""',
        "''",
        '"#"',
        "'\"'",
        '"\\\\"',
        '"\\""',
        '"""a\n"b\n"""',
        "'''\n[x]\ny = 1'''",
    ]
)
BLANKS = st.sampled_from(["", " ", "\t"])
BLANK_LINES = st.sampled_from(["", "\n", " # [comment] = {\n", "\n\n"])


def in_array(values: list[str], blank: str) -> str:
    return "[" + blank + ("," + blank).join(values) + blank + "]"


def in_table(pairs: dict[str, str], space: str) -> str:
    return "{" + space + ", ".join(f"{key}{space}={space}{value}" for key, value in pairs.items()) + space + "}"


VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(in_array, st.lists(inner, max_size=3), BLANK_LINES),
        st.builds(in_table, st.dictionaries(KEYS, inner, max_size=3), BLANKS),
    ),
    max_leaves=6,
)
PAIRS = st.builds(lambda key, space, value: f"{key}{space}={space}{value}", KEYS, BLANKS, VALUES)
HEADERS = st.builds(
    lambda keys, is_array: f"[[{'.'.join(keys)}]]" if is_array else f"[{' . '.join(keys)}]",
    st.lists(KEYS, min_size=1, max_size=3),
    st.booleans(),
)


def paths(value: object, path: KeyPath = ()) -> Iterator[KeyPath]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in inner:
        yield (*path, key)
        yield from paths(below, (*path, key))


@settings(max_examples=200)
@given(st.lists(st.one_of(PAIRS, HEADERS), max_size=8))
def test_everything_that_tomllib_finds_has_a_line(parts: list[str]) -> None:
    text = "\n".join(parts)
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        assume(False)
    lines = Lines(text)
    for path in paths(document):
        assert lines.has(path)
        assert 1 <= lines.of(path) <= text.count("\n") + 1


def test_headers_are_found_and_what_is_missing_is_where_the_thing_around_it_is() -> None:
    lines = Lines(TEXT)
    assert lines.of(("sources", "orders")) == 12
    assert lines.of(("sources", "orders", "schema")) == 12
    assert lines.of(("steps",)) == 30
    assert lines.of(("steps", 1)) == 34
    assert lines.of(("steps", 1, "window", "size")) == 34
    assert lines.of(("steps", 1, "arguments")) == 37
    assert lines.of(("steps", 0, "window", "column")) == 32
    assert lines.of(("sinks",)) == 1
    assert lines.of(()) == 1
    assert lines.has(("steps", 0, "window"))
    assert not lines.has(("steps", 1, "window"))


def test_lines_inside_a_string() -> None:
    text = 'a = """one\ntwo"""\nb = """\none\ntwo\n"""\nc = "one"\n'
    lines = Lines(text)
    assert [lines.within(("a",), newlines) for newlines in (0, 1)] == [1, 2]
    assert [lines.within(("b",), newlines) for newlines in (0, 1)] == [4, 5]
    assert lines.within(("c",), 0) == 7
    assert lines.within(("missing",), 3) == 1


def test_empty_text() -> None:
    assert Lines("").of(("anything",)) == 1
