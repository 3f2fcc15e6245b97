"""Logs that were there before the coordination store: a new store on the directories of an Apache Kafka broker, say."""

import logging
from collections.abc import Callable

from tidelog.cluster import znodes
from tidelog.cluster.image import Topic
from tidelog.controller.found_topics import found_topic, register_found_topics
from tidelog.controller.registration import ControllerTerm
from tidelog.storage.log import Log
from tidelog.storage.log_manager import LogManager
from tidelog.store.interface import Store
from tidelog.types import BrokerId, Uuid

logger = logging.getLogger(__name__)


async def take_over_logs(
    store: Store, term: ControllerTerm, logs: LogManager, broker_id: BrokerId, new_topic_id: Callable[[], Uuid]
) -> None:
    """If the store knows no topic, enter every log as a partition that this broker alone has, and leads."""
    if not logs.logs or await store.children(znodes.TOPICS):
        return
    brokers = await store.children(znodes.BROKER_IDS)
    if brokers != [str(broker_id)]:
        logger.warning(
            "logs are left alone: the store knows no topics, and several brokers are there brokers=%s",
            ",".join(brokers),
        )
        return
    by_topic: dict[str, dict[int, Log]] = {}
    for topic_partition, log in logs.logs.items():
        by_topic.setdefault(topic_partition.topic, {})[topic_partition.partition] = log
    topics = [_topic(name, found, term, broker_id, new_topic_id) for name, found in sorted(by_topic.items())]
    await register_found_topics(store, term, topics)
    logger.info("took over the topics found in the log dirs topics=%s", ",".join(topic.name for topic in topics))


def _topic(
    name: str, logs: dict[int, Log], term: ControllerTerm, broker_id: BrokerId, new_topic_id: Callable[[], Uuid]
) -> Topic:
    known_ids = [log.topic_id for log in logs.values() if log.topic_id is not None]
    topic_id = known_ids[0] if known_ids else new_topic_id()
    for log in logs.values():
        if log.topic_id is None:
            log.assign_topic_id(topic_id)
    latest_epochs = {index: log.leader_epochs.latest_epoch for index, log in logs.items()}
    return found_topic(name, topic_id, latest_epochs, broker_id, term)
