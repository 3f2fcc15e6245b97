"""Names in certificates: any content becomes a principal, which cannot be taken for that of another peer."""

import pytest

from tidelog.runtime.distinguished_names import distinguished_name

Subject = tuple[tuple[tuple[str, str], ...], ...]


def subject(*parts: tuple[str, str]) -> dict[str, Subject]:
    return {"subject": tuple((part,) for part in parts)}


def test_the_most_specific_part_comes_first() -> None:
    assert distinguished_name(subject(("organizationName", "Tide"), ("commonName", "alice"))) == "CN=alice,O=Tide"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a,O=Tide", "CN=a\\,O=Tide"),
        ("#a", "CN=\\#a"),
        (" a ", "CN=\\ a\\ "),
        ("admin\0.evil", "CN=admin\0.evil"),
        ("", "CN="),
    ],
)
def test_a_value_cannot_be_taken_for_further_parts(value: str, expected: str) -> None:
    assert distinguished_name(subject(("commonName", value))) == expected


@pytest.mark.parametrize(
    ("length", "encoded"), [(1, "1601"), (127, "167f"), (128, "168180"), (300, "1682012c"), (70_000, "1683011170")]
)
def test_addresses_of_any_length_are_encoded_as_java_does(length: int, encoded: str) -> None:
    found = distinguished_name(subject(("emailAddress", "a" * length)))
    assert found == f"1.2.840.113549.1.9.1=#{encoded}{'61' * length}"
