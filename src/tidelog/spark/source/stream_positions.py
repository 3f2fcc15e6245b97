"""Positions at which a stream continues: last positions, new partitions, lost records, recreated topics."""

import asyncio
import logging
from collections.abc import Mapping
from typing import NamedTuple

from tidelog.client.consumer.offsets import BEGINNING
from tidelog.client.routing.cluster import Cluster
from tidelog.spark.errors import DataLost, TopicRecreated
from tidelog.spark.offset_json import Offsets, Positions, TopicIds, partitions_text
from tidelog.spark.options.query import ReadOptions
from tidelog.spark.source.cluster_queries import Topics, TopicWatch, latest, log_ends, offsets_at
from tidelog.spark.source.data_loss import report_loss
from tidelog.types import TopicPartition

logger = logging.getLogger(__name__)

PAUSES_S = (0.1, 0.3, 1.0, 2.0)
"""Apparent losses are checked again: a broker that has just started or become leader may have old metadata."""


class NextOffsets(NamedTuple):
    """Offsets that the next micro-batch can choose from."""

    topics: Topics
    start: Offsets
    available: Offsets
    """End of every partition of `start`, never before it."""


async def find_next_offsets(
    cluster: Cluster, options: ReadOptions, positions: Positions, watch: TopicWatch | None = None
) -> NextOffsets:
    """Resolves current topics and partitions, and compares them with the positions of the stream."""
    topics = await _topics_with_all_of(positions, cluster, watch or TopicWatch(options))
    start = await resume_offsets(cluster, options, topics, positions)
    available = await _ends_not_before(cluster, options, topics, start)
    behind = [key for key in start if available[key] < start[key]]
    log_end = await log_ends(cluster, options, behind)
    lost = {key: end for key, end in log_end.items() if end < start[key]}
    if lost:
        where = ", ".join(f"{key} ends at {end}, read up to {start[key]}" for key, end in sorted(lost.items()))
        report_loss(options, DataLost(f"records that were read before are gone from the log: {where}"))
    start |= lost
    return NextOffsets(topics, start, {key: max(start[key], end) for key, end in available.items()})


async def resume_offsets(cluster: Cluster, options: ReadOptions, topics: Topics, positions: Positions) -> Offsets:
    """Start of each partition of `topics`: the stream's position, or the beginning for a new partition."""
    recreated = recreated_topics(positions.topic_ids, topics.topic_ids)
    if recreated:
        names = ", ".join(map(repr, recreated))
        report_loss(
            options, TopicRecreated(f"topic {names} was deleted and created again since this query last read it")
        )
    if gone := gone_partitions(positions, topics):
        report_loss(options, DataLost(f"partitions that this query reads are gone: {partitions_text(gone)}"))
    positions_kept = {key: offset for key, offset in positions.offsets.items() if key.topic not in recreated}
    new = [key for key in topics.partitions if key not in positions_kept]
    begin = await offsets_at(cluster, options, dict.fromkeys(new, BEGINNING))
    return {key: positions_kept[key] if key in positions_kept else begin[key] for key in topics.partitions}


def recreated_topics(before: TopicIds, now: TopicIds) -> list[str]:
    """Topics whose id has changed."""
    return sorted(topic for topic, topic_id in before.items() if topic in now and now[topic] != topic_id)


def gone_partitions(positions: Positions, topics: Topics) -> list[TopicPartition]:
    """Partitions that were read and no longer exist, although the topic is the same."""
    there, recreated = set(topics.partitions), recreated_topics(positions.topic_ids, topics.topic_ids)
    return [key for key in positions.offsets if key not in there and key.topic not in recreated]


async def _topics_with_all_of(positions: Positions, cluster: Cluster, watch: TopicWatch) -> Topics:
    """Current topics. If anything that was read seems to be gone, only after several attempts."""
    topics = await watch.resolve(cluster)
    for pause_s in PAUSES_S:
        if not (recreated_topics(positions.topic_ids, topics.topic_ids) or gone_partitions(positions, topics)):
            break
        await asyncio.sleep(pause_s)
        topics = await watch.resolve(cluster)
    return topics


async def _ends_not_before(
    cluster: Cluster, options: ReadOptions, topics: Topics, start: Mapping[TopicPartition, int]
) -> Offsets:
    ends = await latest(cluster, topics, options)
    for pause_s in PAUSES_S:
        if all(ends[key] >= offset for key, offset in start.items()):
            break
        await asyncio.sleep(pause_s)
        ends = await latest(cluster, topics, options)
    return ends
