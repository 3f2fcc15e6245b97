"""InitProducerId: give an idempotent or transactional producer its id and epoch."""

from tidelog.protocol.fields import int16, int32, int64, string
from tidelog.protocol.structs import Request, Response


class InitProducerIdRequest(Request, key=22, versions="0-5", flexible="2+"):
    transactional_id: str | None = string(nullable="0+")  # null for a producer that is idempotent only
    transaction_timeout_ms: int = int32()
    producer_id: int = int64(
        versions="3+", default=-1
    )  # current id and epoch of a producer that requests its next epoch (KIP-360)
    producer_epoch: int = int16(versions="3+", default=-1)


class InitProducerIdResponse(Response, key=22, versions="0-5", flexible="2+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()
    # Specific to Tidelog: the last batch that a transaction group has committed.
    group_batch_id: int = int64(versions="2+", default=-1, tag=10000)
