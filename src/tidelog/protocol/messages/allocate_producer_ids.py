"""AllocateProducerIds: a broker asks the controller for a block of producer ids (KIP-730)."""

from tidelog.protocol.fields import int16, int32, int64
from tidelog.protocol.structs import Request, Response


class AllocateProducerIdsRequest(Request, key=67, versions="0", flexible="0+"):
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)


class AllocateProducerIdsResponse(Response, key=67, versions="0", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id_start: int = int64()
    producer_id_len: int = int32()
