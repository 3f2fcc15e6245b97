"""ListTransactions: the transactions that a broker coordinates."""

from collections.abc import Sequence

from tidelog.protocol.fields import array, int16, int32, int64, string
from tidelog.protocol.structs import Request, Response, Struct


class ListTransactionsRequest(Request, key=66, versions="0-2", flexible="0+"):
    state_filters: Sequence[str] = array(string)
    producer_id_filters: Sequence[int] = array(int64)
    duration_filter: int = int64(versions="1+", default=-1)
    transactional_id_pattern: str | None = string(versions="2+", nullable="2+")


class TransactionState(Struct):
    transactional_id: str = string()
    producer_id: int = int64()
    transaction_state: str = string()


class ListTransactionsResponse(Response, key=66, versions="0-2", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    unknown_state_filters: Sequence[str] = array(string)
    transaction_states: list[TransactionState] = array(TransactionState)
