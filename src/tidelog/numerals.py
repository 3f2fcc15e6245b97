"""Numbers in texts that people and other programs write: plain decimal digits only.

Python's `int` and `float` also accept `1_000`, ` 5 `, `nan` and the digits of other scripts.
"""

# Core: no clock, no I/O, no await.

import re
from typing import Final

MAX_DIGITS: Final = 19
"""Those of a 64-bit number. Python refuses to convert thousands of them."""
WHITESPACE: Final = "".join(map(chr, range(33)))
"""What Java's `String.trim` removes at both ends."""
_WHOLE: Final = re.compile(rf"[+-]?[0-9]{{1,{MAX_DIGITS}}}")
_DECIMAL: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?")
_MAX_DECIMAL_CHARACTERS: Final = 400
"""The largest double has 309 digits before its point."""


def whole_number(text: str) -> int | None:
    """The number, with or without a sign; None if the text is anything else."""
    return int(text) if _WHOLE.fullmatch(text) else None


def natural_number(text: str) -> int | None:
    """The number without a sign; None if the text is anything else."""
    return None if text[:1] in ("+", "-") else whole_number(text)


def decimal_number(text: str) -> float | None:
    """The number, such as 0.5, 10 or 1e3; None if the text is anything else."""
    return float(text) if len(text) <= _MAX_DECIMAL_CHARACTERS and _DECIMAL.fullmatch(text) else None
