"""Key counts of raw batches, decoded like in Spark's readers."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.audit.hot_keys import KeyCounts
from tidelog.audit.replica_facts import MAX_OFFSET
from tidelog.spark.records.decoding import PartitionDecoder
from tidelog.types import TopicPartition


class KeyCounter:
    def __init__(self, topic_partition: TopicPartition) -> None:
        self.counts = KeyCounts()
        self._decoder = PartitionDecoder(topic_partition.topic, topic_partition.partition, ("key", "value"))

    def count(self, raw: memoryview) -> None:
        """Count the keys of `raw`. Raises CorruptMessage for unreadable records, without counting any."""
        decoded = list(self._decoder.decode(raw, 0, MAX_OFFSET))
        for batch in decoded:
            self._add(batch)

    def _add(self, batch: pa.RecordBatch) -> None:
        keys, values = batch.column(0), batch.column(1)
        self.counts.record_count += len(batch)
        self.counts.null_count += keys.null_count
        self.counts.payload_bytes += _bytes_in(keys) + _bytes_in(values)
        found = pc.value_counts(keys.drop_null())
        counts = found.field("counts").to_numpy(zero_copy_only=False)
        self._add_counts(found.field("values"), counts)

    def _add_counts(self, keys: pa.Array, counts: "np.typing.NDArray[np.int64]") -> None:
        """Like the shrinking of KeyCounts, but done before the many keys that occur once become Python objects."""
        capacity = self.counts.capacity
        if len(counts) > capacity:
            cut = int(np.partition(counts, len(counts) - capacity - 1)[len(counts) - capacity - 1])
            kept = counts > cut
            keys, counts = keys.filter(pa.array(kept)), counts[kept] - cut
            self.counts.error += cut
        self.counts.add(dict(zip(keys.to_pylist(), counts.tolist(), strict=True)))


def _bytes_in(column: pa.Array) -> int:
    return int(pc.sum(pc.binary_length(column)).as_py() or 0)
