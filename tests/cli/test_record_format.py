"""Records as they are printed."""

import json

import pytest

from tidelog.cli.record_format import BadFormat, check_format, formatter, json_line, unescaped
from tidelog.client.consumer.fetched_records import ConsumedRecord
from tidelog.terminal.tables import table

RECORD = ConsumedRecord("t", 2, 7, 1_700_000_000_000, b"k\xff", b"v", (("h", b"x"), ("none", None)))
TOMBSTONE = ConsumedRecord("t", 0, 0, 0, None, None)


def test_format_fields_and_escapes() -> None:
    assert formatter(r"%t-%p@%o %T %h\t%v\\%%")(RECORD) == b"t-2@7 1700000000000 h=x,none=null\tv\\%\n"
    assert formatter("%k")(RECORD) == b"k\xff\n"
    assert formatter("%k %v")(TOMBSTONE) == b"null null\n"
    assert formatter(r"C:\dir é")(RECORD) == "C:\\dir é\n".encode()


@pytest.mark.parametrize("text", ["%q", "100%", "% v"])
def test_unknown_fields_are_refused(text: str) -> None:
    with pytest.raises(BadFormat, match=r"unknown field .*; fields are %t"):
        check_format(text)


def test_json_has_text_as_text_and_other_bytes_as_base64() -> None:
    assert json.loads(json_line(RECORD)) == {
        "topic": "t",
        "partition": 2,
        "offset": 7,
        "timestamp": 1_700_000_000_000,
        "key_base64": "a/8=",
        "value": "v",
        "headers": [{"key": "h", "value": "x"}, {"key": "none", "value": None}],
    }
    assert json.loads(json_line(TOMBSTONE))["value"] is None


def test_tables_align_numbers_to_the_right() -> None:
    assert table(["NAME", "COUNT", ""], [("a", 1, ""), ("long name", 1000, "odd")]) == [
        "NAME       COUNT",
        "a              1",
        "long name   1000  odd",
    ]


def test_figures_with_units_count_as_numbers_and_addresses_do_not() -> None:
    rows = [["a", "5 ms", "1,200 (3.1 MB)", "127.0.0.1:1"], ["bb", "-", "7", "127.0.0.1:22"]]
    assert table(["N", "LAST", "ROWS", "AT"], rows) == [
        "N   LAST            ROWS  AT",
        "a   5 ms  1,200 (3.1 MB)  127.0.0.1:1",
        "bb     -               7  127.0.0.1:22",
    ]


def test_escapes_of_separators_are_those_of_formats() -> None:
    assert unescaped(r"\t") == "\t"
    assert unescaped(r"\\t\r\n\0") == "\\t\r\n\0"
    assert unescaped(r":\x%%") == r":\x%%"
