"""The line of everything in a TOML file: in these texts each number is the line on which it stands."""

import tomllib
from collections.abc import Iterator

import pytest

from tidelog.pipelines.lines import KeyPath, Lines

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
