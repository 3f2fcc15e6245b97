"""Instructions for workers that copy in transactions, whatever client they are."""

from typing import NamedTuple

RECORDS_AT_ONCE = 200
TRANSACTION_TIMEOUT_MS = 20_000
"""Longer than a busy machine takes to commit: a worker that takes longer is fenced."""
ABORT_EVERY = 4
ABORTED = b"aborted "
"""Before values that nobody who reads committed records may see."""


class Job(NamedTuple):
    bootstrap: str
    group: str
    source: str
    target: str
    transactional_id: str
    partition: int
    """Of the source, for workers that do not let a group share the partitions out."""
