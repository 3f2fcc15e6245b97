from tidelog.config.properties import Property, parse_properties


def pairs(text: str) -> list[tuple[str, str]]:
    return [(found.key, found.value) for found in parse_properties(text)]


def test_equals_colon_and_space_separate_key_and_value() -> None:
    assert pairs("a=1\nb: 2\nc 3\nd\t=\t4\ne = : 5\nf") == [
        ("a", "1"),
        ("b", "2"),
        ("c", "3"),
        ("d", "4"),
        ("e", ": 5"),
        ("f", ""),
    ]


def test_comments_and_blank_lines_say_nothing() -> None:
    assert pairs("# a=1\n  ! b=2\n\n \t\nc=#3") == [("c", "#3")]


def test_a_backslash_joins_lines_and_drops_the_indentation() -> None:
    assert pairs("a=1,\\\n   2,\\\n\t3\nb=4") == [("a", "1,2,3"), ("b", "4")]


def test_an_escaped_backslash_does_not_join_lines() -> None:
    assert pairs("a=1\\\\\nb=2") == [("a", "1\\"), ("b", "2")]


def test_a_comment_does_not_continue() -> None:
    assert pairs("# comment \\\na=1") == [("a", "1")]


def test_escapes_are_those_of_java() -> None:
    assert pairs(r"a\=b\:c\ d=x\ty\nz\u00e9\q\\") == [("a=b:c d", "x\ty\nzéq\\")]


def test_trailing_white_space_of_a_value_is_kept() -> None:
    assert pairs("a=1  ") == [("a", "1  ")]


def test_lines_are_numbered_by_their_first_line_with_any_line_ending() -> None:
    assert parse_properties("a=1\r\n\rb=2\\\n3\nc=4") == [
        Property("a", "1", 1),
        Property("b", "23", 3),
        Property("c", "4", 5),
    ]


def test_a_backslash_at_the_end_of_the_file_joins_nothing() -> None:
    assert pairs("a=1\\") == [("a", "1")]
