"""Keys and values as text, JSON or hexadecimal."""

import pytest

from tidelog.console.payload import MAX_SHOWN_BYTES, at_path, shown


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"plain", "text"),
        (b'{"a": 1}', "json"),
        (b"[1, 2]", "json"),
        (b"{not json", "text"),
        (b"\xff\x00", "hex"),
        (b"a\x00b", "hex"),
        (b"", "text"),
        ("é".encode(), "text"),
    ],
)
def test_the_format_is_recognised(data: bytes, expected: str) -> None:
    found = shown(data)
    assert found is not None
    assert found["format"] == expected
    assert found["size"] == len(data)


def test_a_tombstone_is_not_an_empty_value() -> None:
    assert shown(None) is None


def test_a_long_value_is_cut_at_a_character() -> None:
    found = shown(b"x" + "é".encode() * MAX_SHOWN_BYTES)
    assert found is not None
    assert found["cut"] is True
    assert found["format"] == "text"
    assert len(str(found["text"]).encode()) <= MAX_SHOWN_BYTES


def test_deep_nesting_is_text() -> None:
    found = shown(b"[" * 60_000)
    assert found is not None
    assert found["format"] == "text"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("order.id", 7),
        ("$.order.id", 7),
        ("items[1].sku", "b"),
        ("items.0.sku", "a"),
        ("nothing", None),
        ("order.id.x", None),
    ],
)
def test_a_path_leads_to_a_value(path: str, expected: object) -> None:
    assert at_path('{"order": {"id": 7}, "items": [{"sku": "a"}, {"sku": "b"}]}', path) == expected
