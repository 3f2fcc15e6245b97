"""How a consumer fetches, and where it goes when its place no longer exists."""

from typing import NamedTuple

READ_UNCOMMITTED = 0
READ_COMMITTED = 1


class ConsumerSettings(NamedTuple):
    isolation_level: int = READ_UNCOMMITTED
    max_wait_ms: int = 500
    """How long a broker may wait for `min_bytes` to come."""
    min_bytes: int = 1
    max_bytes: int = 10 * 1024 * 1024
    partition_max_bytes: int = 1024 * 1024
    reset_to: int | None = None
    """BEGINNING or END, where to go on when the records at the position were deleted; None: raise OffsetOutOfRange."""
    lookup_timeout_s: float = 30.0
    missing_topic_timeout_s: float = 10.0
    """A topic that brokers do not know for so long has been deleted."""


class AtTime(NamedTuple):
    """Start at the first record that is not older than this."""

    timestamp_ms: int
