"""Log ends of replicas that restarted uncleanly, asked of their brokers before one of them is elected (R42)."""

from collections import defaultdict
from collections.abc import Iterable

from tidelog.controller.elections import to_be_asked
from tidelog.controller.events import LogEndsAnswered
from tidelog.controller.term import ControllerTerm
from tidelog.types import NO_BROKER, BrokerId, TopicPartition


def ask_for_log_ends(
    term: ControllerTerm, partitions: Iterable[TopicPartition]
) -> dict[BrokerId, list[TopicPartition]]:
    """Who is asked for what now. Each broker is asked once per incarnation and time without leader.

    Its channel repeats the question until it is answered or the broker is gone.
    """
    context = term.context
    found: dict[BrokerId, list[TopicPartition]] = defaultdict(list)
    for topic_partition in partitions:
        partition = context.find(topic_partition)
        if partition is None or partition.leader != NO_BROKER:
            continue
        for broker_id in to_be_asked(partition, context.health(topic_partition)):
            question = context.question(partition, broker_id)
            if question is None or context.asked.get(topic_partition, {}).get(broker_id) == question:
                continue
            context.asked.setdefault(topic_partition, {})[broker_id] = question
            term.ask_for_log_end(broker_id, topic_partition, question)
            found[broker_id].append(topic_partition)
    return found


def take_answers(term: ControllerTerm, event: LogEndsAnswered) -> list[TopicPartition]:
    """The partitions of which something new is known. An answer of an earlier incarnation or time counts no more."""
    context, answered = term.context, []
    for topic_partition, answer in sorted(event.answers):
        partition = context.find(topic_partition)
        if partition is None or partition.leader != NO_BROKER:
            continue
        if answer.asked == context.question(partition, event.broker_id):
            context.answers.setdefault(topic_partition, {})[event.broker_id] = answer
            answered.append(topic_partition)
    return answered
