"""Estimated record sizes, from the next few batches of each partition.

Brokers report offsets, not bytes, so a limit in bytes relies on an estimate. It counts compressed bytes as on the wire,
and assumes that later batches resemble the next ones.
"""

from collections.abc import Mapping

from tidelog.client.consumer.range_reader import fetch_version
from tidelog.client.network.connection import ClientConnection
from tidelog.client.routing.cluster import Cluster
from tidelog.client.routing.leaders import Outcomes, ask_leaders
from tidelog.errors import NO_ERROR, CorruptMessage, OffsetOutOfRange, error_of
from tidelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from tidelog.protocol.record_batch import split_batches
from tidelog.runtime.disk import FileSlice
from tidelog.spark.offset_json import Offsets
from tidelog.spark.options.query import ReadOptions
from tidelog.spark.source.cluster_queries import Topics, with_retries
from tidelog.types import ZERO_UUID, TopicPartition

PARTITION_BYTES = 256 * 1024
RESPONSE_BYTES = 4 * 1024 * 1024
UNKNOWN_BYTES = 0.0


async def record_bytes(
    cluster: Cluster, options: ReadOptions, topics: Topics, start: Mapping[TopicPartition, int], available: Offsets
) -> dict[TopicPartition, float]:
    """Bytes per offset in the next batches of every partition that has some; 0 if unknown."""
    wanted = {key: offset for key, offset in start.items() if available.get(key, offset) > offset}
    if not wanted:
        return {}

    async def ask(connection: ClientConnection, epochs: Mapping[TopicPartition, int]) -> Outcomes[float]:
        has_topic_ids = all(key.topic in topics.topic_ids for key in epochs)
        response = await connection.ask(
            _request(topics, wanted, epochs),
            FetchResponse,
            timeout_s=cluster.request_timeout_s,
            version=fetch_version(connection, has_topic_ids=has_topic_ids),
        )
        if response.error_code != NO_ERROR:
            raise error_of(response.error_code, "fetch record sizes")
        return dict.fromkeys(epochs, UNKNOWN_BYTES) | _outcomes(topics, response)

    return await with_retries(
        cluster,
        options,
        "fetch record sizes",
        lambda remaining_s: ask_leaders(cluster, "fetch record sizes", wanted, ask, remaining_s),
    )


def _request(
    topics: Topics, wanted: Mapping[TopicPartition, int], epochs: Mapping[TopicPartition, int]
) -> FetchRequest:
    by_topic: dict[str, FetchTopic] = {}
    for key, leader_epoch in epochs.items():
        topic_id = topics.topic_ids.get(key.topic, ZERO_UUID)
        by_topic.setdefault(key.topic, FetchTopic(key.topic, topic_id, [])).partitions.append(
            FetchPartition(
                partition=key.partition,
                current_leader_epoch=leader_epoch,
                fetch_offset=wanted[key],
                partition_max_bytes=PARTITION_BYTES,
            )
        )
    return FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=RESPONSE_BYTES, topics=list(by_topic.values()))


def _outcomes(topics: Topics, response: FetchResponse) -> Outcomes[float]:
    names = {topic_id: name for name, topic_id in topics.topic_ids.items()}
    return {
        TopicPartition(topic.topic or names.get(topic.topic_id, ""), data.partition_index): _outcome(data)
        if data.error_code in (NO_ERROR, OffsetOutOfRange.code)
        else error_of(data.error_code, f"{topic.topic}-{data.partition_index}")
        for topic in response.responses
        for data in topic.partitions
    }


def _outcome(data: PartitionData) -> float:
    if not data.records or isinstance(data.records, FileSlice):
        return UNKNOWN_BYTES
    try:
        batches = [header for header, _ in split_batches(data.records)]
    except CorruptMessage:
        return UNKNOWN_BYTES  # malformed: the reader of the range reports it
    if not batches:
        return UNKNOWN_BYTES
    offsets = batches[-1].end_offset - batches[0].base_offset
    return sum(header.size_bytes for header in batches) / max(1, offsets)
