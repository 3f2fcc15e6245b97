"""Settings of a consumer: fetch sizes and waits, isolation level, offset reset."""

from typing import NamedTuple

READ_UNCOMMITTED = 0
READ_COMMITTED = 1


class ConsumerSettings(NamedTuple):
    isolation_level: int = READ_UNCOMMITTED
    max_wait_ms: int = 500
    """Maximum wait of a broker for `min_bytes`."""
    min_bytes: int = 1
    max_bytes: int = 10 * 1024 * 1024
    partition_max_bytes: int = 1024 * 1024
    reset_to: int | None = None
    """Offset reset policy: BEGINNING or END; None raises OffsetOutOfRange."""
    lookup_timeout_s: float = 30.0
    missing_topic_timeout_s: float = 10.0
    """A topic that is unknown for this long counts as deleted."""


class AtTime(NamedTuple):
    """Start at the first record with this or a later timestamp."""

    timestamp_ms: int
