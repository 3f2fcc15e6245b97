"""DescribeTransactions: transactions by their ids."""

from collections.abc import Sequence

from tidelog.protocol.fields import array, int16, int32, int64, string
from tidelog.protocol.structs import Request, Response, Struct


class DescribeTransactionsRequest(Request, key=65, versions="0", flexible="0+"):
    transactional_ids: Sequence[str] = array(string)


class TopicData(Struct):
    topic: str = string()
    partitions: Sequence[int] = array(int32)


class TransactionState(Struct):
    error_code: int = int16()
    transactional_id: str = string()
    transaction_state: str = string()
    transaction_timeout_ms: int = int32()
    transaction_start_time_ms: int = int64()
    producer_id: int = int64()
    producer_epoch: int = int16()
    topics: list[TopicData] = array(TopicData)


class DescribeTransactionsResponse(Response, key=65, versions="0", flexible="0+"):
    throttle_time_ms: int = int32()
    transaction_states: list[TransactionState] = array(TransactionState)
