"""Times and durations on the command line, in milliseconds."""

# Core: no clock, no I/O, no await.

import argparse
import re
from datetime import datetime

NOW = -1
"""The moment at which the command runs."""
UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
MAX_DURATION_MS = 1e15
"""Since long before the first computer."""
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|min|m|h|d)")


def time_option(text: str) -> int:
    """Local time unless the text has a time zone; NOW for `now`."""
    if text == "now":
        return NOW
    try:
        return max(int(datetime.fromisoformat(text).timestamp() * 1000), 0)
    except (ValueError, OverflowError, OSError):
        raise argparse.ArgumentTypeError(
            f"expected a time such as 2026-01-31T12:00 or 2026-01-31T12:00:00Z, found {text!r}"
        ) from None


def duration_option(text: str) -> int:
    """`10m`, `1h30m`, `45s`."""
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise argparse.ArgumentTypeError(f"expected a duration such as 30s, 10m, 2h or 1d, found {text!r}")
    return int(min(sum(float(number) * UNITS_MS[unit] for number, unit in parts), MAX_DURATION_MS))
