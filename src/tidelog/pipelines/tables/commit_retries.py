"""Retries of table commits that conflict with another writer."""

import logging
from collections.abc import Callable

logger = logging.getLogger(__name__)

COMMITS_MAX = 10
"""Attempts of a commit while other writers change the table."""
REPLACEMENTS_MAX = 100
"""More attempts: a replacement has to fit between two batches of a running pipeline."""


def retry_on_conflict(attempt: Callable[[], bool], conflict: type[Exception], attempts_max: int, what: str) -> bool:
    """`attempt` reads the table again each time."""
    for _ in range(attempts_max - 1):
        try:
            return attempt()
        except conflict as error:
            logger.info("commit conflict, retrying %s reason=%s", what, error)
    return attempt()


def commit_batch(
    batch_id: int,
    last_batch: Callable[[], int | None],
    commit: Callable[[], None],
    conflict: type[Exception],
    attempts_max: int,
    what: str,
) -> bool:
    """Commit a batch with retries. False if the table has it already."""

    def attempt() -> bool:
        last = last_batch()
        if last is not None and last >= batch_id:
            return False
        commit()
        return True

    return retry_on_conflict(attempt, conflict, attempts_max, what)
