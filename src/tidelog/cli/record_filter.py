"""Filter of consumed records: by key, by a pattern in the value, by time."""

# Core: no clock, no I/O, no await.

import re
from typing import NamedTuple

from tidelog.client.consumer.fetched_records import ConsumedRecord


class RecordFilter(NamedTuple):
    key: bytes | None = None
    pattern: re.Pattern[bytes] | None = None
    from_ms: int | None = None
    until_ms: int | None = None
    """Exclusive."""

    @property
    def is_by_time_only(self) -> bool:
        """Whether every record of the chosen time is shown."""
        return self.key is None and self.pattern is None

    def shows(self, record: ConsumedRecord) -> bool:
        if self.key is not None and record.key != self.key:
            return False
        if self.pattern is not None and (record.value is None or self.pattern.search(record.value) is None):
            return False
        if self.from_ms is not None and record.timestamp_ms < self.from_ms:
            return False
        return self.until_ms is None or record.timestamp_ms < self.until_ms
