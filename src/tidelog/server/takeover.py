"""Logs that were there before the coordination store: a new store on the directories of an Apache Kafka broker, say."""

import logging

from tidelog.cluster.image import Topic
from tidelog.controller.elections import found_topic, register_found_topics
from tidelog.server.cluster_state import ClusterState
from tidelog.server.membership import Membership
from tidelog.storage.log import Log
from tidelog.storage.log_manager import LogManager

logger = logging.getLogger(__name__)


async def take_over_logs(membership: Membership, cluster: ClusterState, logs: LogManager) -> None:
    """Enter every log as a partition that this broker alone has, and leads."""
    by_topic: dict[str, dict[int, Log]] = {}
    for topic_partition, log in logs.logs.items():
        by_topic.setdefault(topic_partition.topic, {})[topic_partition.partition] = log
    topics = [_topic(name, found, membership) for name, found in sorted(by_topic.items())]
    await register_found_topics(membership.store, membership.term, topics)
    cluster.apply(cluster.image.with_topics(*topics))
    logger.info("took over the topics found in the log dirs topics=%s", ",".join(topic.name for topic in topics))


def _topic(name: str, logs: dict[int, Log], membership: Membership) -> Topic:
    known_ids = [log.topic_id for log in logs.values() if log.topic_id is not None]
    topic_id = known_ids[0] if known_ids else membership.topics.new_topic_id()
    for log in logs.values():
        if log.topic_id is None:
            log.assign_topic_id(topic_id)
    latest_epochs = {index: log.leader_epochs.latest_epoch for index, log in logs.items()}
    return found_topic(name, topic_id, latest_epochs, membership.broker.id, membership.term)
