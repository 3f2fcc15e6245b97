"""Numbers in texts."""

import pytest

from tidelog.numerals import decimal_number, natural_number, whole_number

NO_NUMBERS = ["", " ", "x", "1_0", " 5 ", "5 ", "1\n", "１", "٣", "²", "0x10", "1,5", "--1", "+-1", "-", "+", "1 0"]


@pytest.mark.parametrize("text", [*NO_NUMBERS, "1.0", "1e3", ".", "nan", "9" * 20, "9" * 5_000])
def test_whole_numbers_are_plain_digits_with_a_sign_or_without(text: str) -> None:
    assert whole_number(text) is None
    assert natural_number(text) is None


@pytest.mark.parametrize(("text", "number"), [("0", 0), ("007", 7), ("+5", 5), ("-5", -5), ("9" * 19, 10**19 - 1)])
def test_whole_numbers_are_read(text: str, number: int) -> None:
    assert whole_number(text) == number
    assert natural_number(text) == (number if text[0] not in "+-" else None)


@pytest.mark.parametrize(
    "text", [*NO_NUMBERS, ".", "e5", "1e", "1e5.0", "0_1", "0.1_0", "nan", "inf", "0.5f", "9" * 500]
)
def test_decimal_numbers_are_plain_digits_with_point_and_exponent(text: str) -> None:
    assert decimal_number(text) is None


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0.5", 0.5),
        ("10", 10.0),
        ("1e3", 1000.0),
        ("-.5", -0.5),
        ("5.", 5.0),
        ("1.7976931348623157E308", 1.7976931348623157e308),
    ],
)
def test_decimal_numbers_are_read(text: str, number: float) -> None:
    assert decimal_number(text) == number
