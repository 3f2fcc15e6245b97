"""Commits that are tried again when another writer was first."""

import logging
from collections.abc import Callable

logger = logging.getLogger(__name__)

COMMITS_MAX = 10
"""How often a commit is tried when other writers change the table at the same time."""
REPLACEMENTS_MAX = 100
"""One of them comes between two batches of a pipeline that is running, however fast."""


def repeated(attempt: Callable[[], bool], conflict: type[Exception], attempts_max: int, what: str) -> bool:
    """`attempt` looks at the table anew each time."""
    for _ in range(attempts_max - 1):
        try:
            return attempt()
        except conflict as error:
            logger.info("tried again %s reason=%s", what, error)
    return attempt()
