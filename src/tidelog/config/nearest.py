"""Suggestions for misspelled names."""

from collections.abc import Iterable

CUTOFF = 0.6
SETTING_CUTOFF = 0.7
"""Names of settings have many parts in common, so that more of them are similar."""


def nearest_name(name: str, valid: Iterable[str], cutoff: float = CUTOFF) -> str | None:
    """The most similar valid name, case-insensitive; None if no name is similar."""
    import difflib

    by_lower = {candidate.lower(): candidate for candidate in valid}
    close = difflib.get_close_matches(name.lower(), list(by_lower), n=1, cutoff=cutoff)
    return by_lower[close[0]] if close else None


def did_you_mean(name: str, valid: Iterable[str], *, quote: str = "", cutoff: float = CUTOFF) -> str:
    """End of an error message: `; did you mean x?`. Empty if no valid name is similar."""
    found = nearest_name(name, valid, cutoff)
    return "" if found is None else f"; did you mean {quote}{found}{quote}?"
