"""Log end queries to replicas that restarted uncleanly, before one is elected (R42, KIP-966 `GetReplicaLogInfo`)."""

from collections import defaultdict
from collections.abc import Iterable

from tidelog.controller.elections import replicas_to_query
from tidelog.controller.events import LogEndsResponseReceived
from tidelog.controller.term import ControllerTerm
from tidelog.types import NO_BROKER, BrokerId, TopicPartition


def query_log_ends(term: ControllerTerm, partitions: Iterable[TopicPartition]) -> dict[BrokerId, list[TopicPartition]]:
    """Enqueue the missing queries and return them by broker: one per broker incarnation and leader epoch.

    The channel retries a query until the broker answers or is gone.
    """
    context = term.context
    found: dict[BrokerId, list[TopicPartition]] = defaultdict(list)
    for topic_partition in partitions:
        partition = context.find(topic_partition)
        if partition is None or partition.leader != NO_BROKER:
            continue
        for broker_id in replicas_to_query(partition, context.health(topic_partition)):
            log_end_query = context.log_end_query(partition, broker_id)
            if (
                log_end_query is None
                or context.pending_log_end_queries.get(topic_partition, {}).get(broker_id) == log_end_query
            ):
                continue
            context.pending_log_end_queries.setdefault(topic_partition, {})[broker_id] = log_end_query
            term.enqueue_log_end_query(broker_id, topic_partition, log_end_query)
            found[broker_id].append(topic_partition)
    return found


def record_log_ends(term: ControllerTerm, event: LogEndsResponseReceived) -> list[TopicPartition]:
    """Record answers and return their partitions. An answer for an earlier incarnation or leader epoch is ignored."""
    context, answered = term.context, []
    for topic_partition, response in sorted(event.responses):
        partition = context.find(topic_partition)
        if partition is None or partition.leader != NO_BROKER:
            continue
        if response.query == context.log_end_query(partition, event.broker_id):
            context.responses.setdefault(topic_partition, {})[event.broker_id] = response
            answered.append(topic_partition)
    return answered
