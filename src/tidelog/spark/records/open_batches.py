"""Buffers of open batches, one per target, as arrays that kernels write to."""

from typing import NamedTuple

import numpy as np

from tidelog.spark.records.kernels import Bytes, Longs


class OpenBatches(NamedTuple):
    """The records of target `t` are the first `filled_bytes[t]` bytes of its share of the arena."""

    arena: Bytes
    capacity_bytes: int
    max_records: int
    filled_bytes: Longs
    record_counts: Longs
    base_timestamps: Longs
    max_timestamps: Longs


def open_batches(target_count: int, capacity_bytes: int, max_records: int) -> OpenBatches:
    def numbers() -> Longs:
        return np.zeros(target_count, np.int64)

    arena = np.empty(target_count * capacity_bytes, np.uint8)
    return OpenBatches(arena, capacity_bytes, max_records, numbers(), numbers(), numbers(), numbers())
