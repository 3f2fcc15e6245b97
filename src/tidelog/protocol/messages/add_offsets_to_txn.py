"""AddOffsetsToTxn: adds the offsets of a group to a transaction."""

from tidelog.protocol.fields import int16, int32, int64, string
from tidelog.protocol.structs import Request, Response


class AddOffsetsToTxnRequest(Request, key=25, versions="0-4", flexible="3+"):
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


class AddOffsetsToTxnResponse(Response, key=25, versions="0-4", flexible="3+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
