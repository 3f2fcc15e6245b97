"""WriteTxnMarkers: sent by a transaction coordinator; commit or abort markers for partitions."""

from collections.abc import Sequence

from tidelog.protocol.fields import array, boolean, int8, int16, int32, int64, string
from tidelog.protocol.structs import Request, Response, Struct


class WritableTxnMarkerTopic(Struct):
    name: str = string()
    partition_indexes: Sequence[int] = array(int32)


class WritableTxnMarker(Struct):
    producer_id: int = int64()
    producer_epoch: int = int16()
    transaction_result: bool = boolean()
    topics: list[WritableTxnMarkerTopic] = array(WritableTxnMarkerTopic)
    coordinator_epoch: int = int32()
    transaction_version: int = int8(versions="2+")


class WriteTxnMarkersRequest(Request, key=27, versions="1-2", flexible="1+"):
    markers: list[WritableTxnMarker] = array(WritableTxnMarker)
    # Specific to Tidelog, skipped by others: the coordinator proves that it is a broker.
    broker_id: int = int32(default=-1, tag=10000)
    broker_epoch: int = int64(default=-1, tag=10001)


class WritableTxnMarkerPartitionResult(Struct):
    partition_index: int = int32()
    error_code: int = int16()


class WritableTxnMarkerTopicResult(Struct):
    name: str = string()
    partitions: list[WritableTxnMarkerPartitionResult] = array(WritableTxnMarkerPartitionResult)


class WritableTxnMarkerResult(Struct):
    producer_id: int = int64()
    topics: list[WritableTxnMarkerTopicResult] = array(WritableTxnMarkerTopicResult)


class WriteTxnMarkersResponse(Response, key=27, versions="1-2", flexible="1+"):
    markers: list[WritableTxnMarkerResult] = array(WritableTxnMarkerResult)
