"""EndTxn: commit or abort a transaction."""

from collections.abc import Sequence

from tidelog.protocol.fields import array, boolean, int16, int32, int64, string
from tidelog.protocol.structs import Request, Response


class EndTxnRequest(Request, key=26, versions="0-5", flexible="3+"):
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()
    # Specific to Tidelog, for a transaction group: the batch id, and the members to commit.
    group_batch_id: int = int64(versions="3+", default=-1, tag=10000)
    group_winners: Sequence[str] = array(string, versions="3+", tag=10001)


class EndTxnResponse(Response, key=26, versions="0-5", flexible="3+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64(versions="5+", default=-1)
    producer_epoch: int = int16(versions="5+", default=-1)
