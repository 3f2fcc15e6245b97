"""Suggestions for misspelled names."""

from collections.abc import Iterable

CUTOFF = 0.6


def nearest_name(name: str, valid: Iterable[str], cutoff: float = CUTOFF) -> str | None:
    """The most similar valid name, case-insensitive; None if no name is similar."""
    import difflib

    by_lower = {candidate.lower(): candidate for candidate in valid}
    close = difflib.get_close_matches(name.lower(), list(by_lower), n=1, cutoff=cutoff)
    return by_lower[close[0]] if close else None
