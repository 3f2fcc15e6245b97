"""Records of __transaction_state."""

from collections.abc import Sequence

from tidelog.protocol.fields import array, int8, int16, int32, int64, string
from tidelog.protocol.structs import Message, Struct


class TransactionLogKey(Message, versions="0"):
    transactional_id: str = string()


class PartitionsSchema(Struct):
    topic: str = string()
    partition_ids: Sequence[int] = array(int32)


class TransactionLogValue(Message, versions="0-1", flexible="1+"):
    """Kafka writes version 1 from `transaction.version` 1 on."""

    producer_id: int = int64()
    producer_epoch: int = int16()
    transaction_timeout_ms: int = int32()
    transaction_status: int = int8()
    transaction_partitions: list[PartitionsSchema] | None = array(PartitionsSchema, nullable="0+")
    transaction_last_update_timestamp_ms: int = int64()
    transaction_start_timestamp_ms: int = int64()
    previous_producer_id: int = int64(versions="1+", default=-1, tag=0)
    next_producer_id: int = int64(versions="1+", default=-1, tag=1)
    client_transaction_version: int = int16(versions="1+", tag=2)
    next_producer_epoch: int = int16(versions="1+", default=-1, tag=3)  # Kafka 4.3 declares it and never writes it
    # Specific to Tidelog, skipped by Kafka: the last committed batch of a transaction group, the members that the
    # current commit includes, and the epoch before a producer's own bump (KIP-360), which Kafka loses when the
    # coordinator changes.
    group_batch_id: int = int64(versions="1+", default=-1, tag=10000)
    group_winners: Sequence[str] = array(string, versions="1+", tag=10001)
    last_producer_epoch: int = int16(versions="1+", default=-1, tag=10002)
