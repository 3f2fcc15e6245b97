"""Mistakes in settings, as `tidelog broker` and `tidelog up` show them."""

from collections.abc import Sequence

MAX_SHOWN = 10
SHOWN_OF_MANY = 3


def shown_mistakes(mistakes: Sequence[str], config: str | None) -> list[str]:
    """All, or a few if there are many: then the file is probably something else."""
    if len(mistakes) <= MAX_SHOWN:
        return list(mistakes)
    hint = "" if config is None else f"; is {config} a server.properties file?"
    return [*mistakes[:SHOWN_OF_MANY], f"and {len(mistakes) - SHOWN_OF_MANY} more mistakes{hint}"]
