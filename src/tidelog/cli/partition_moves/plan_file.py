"""Plan files: Kafka's reassignment JSON, as `kafka-reassign-partitions` reads and prints it."""

import json
from collections.abc import Mapping
from typing import Any, TypeGuard

from tidelog.cli.command_error import CommandError
from tidelog.cluster.move_planner import Plan, Replicas
from tidelog.types import TopicPartition

ANY_LOG_DIR = "any"
EXAMPLE = '{"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [1, 2]}]}'


def parse_plan(text: str, name: str) -> Plan:
    """Raises CommandError with the first mistake."""
    try:
        found = json.loads(text)
    except ValueError as error:
        raise CommandError(f"{name} is not JSON ({error}); a plan looks like {EXAMPLE}") from None
    if not isinstance(found, dict) or not isinstance(found.get("partitions"), list):
        raise CommandError(f"{name} has no list of partitions; a plan looks like {EXAMPLE}")
    if found.get("version", 1) != 1:
        raise CommandError(f"{name} has version {found['version']!r}; only version 1 is known")
    plan: Plan = {}
    for number, entry in enumerate(found["partitions"], 1):
        topic_partition, replicas = _entry(entry, f"{name}, partition entry {number}")
        if topic_partition in plan:
            raise CommandError(f"{name} names {topic_partition} twice")
        plan[topic_partition] = replicas
    return plan


def _entry(entry: Any, where: str) -> tuple[TopicPartition, Replicas]:
    if not isinstance(entry, dict):
        raise CommandError(f"{where}: expected an object with topic, partition and replicas")
    topic, partition, replicas = entry.get("topic"), entry.get("partition"), entry.get("replicas")
    if not isinstance(topic, str) or not _is_id(partition):
        raise CommandError(f"{where}: expected a topic name and a partition number")
    if not isinstance(replicas, list) or not replicas or not all(map(_is_id, replicas)):
        raise CommandError(f"{where}: expected a list of broker ids as replicas of {topic}-{partition}")
    if len(set(replicas)) != len(replicas):
        raise CommandError(f"{where}: {topic}-{partition} would have two replicas on one broker")
    if any(each != ANY_LOG_DIR for each in entry.get("log_dirs", [])):
        raise CommandError(f'{where}: log directories other than "any" cannot be chosen here')
    return TopicPartition(topic, partition), tuple(replicas)


def _is_id(value: object) -> TypeGuard[int]:
    return type(value) is int and value >= 0


def plan_json(replicas: Mapping[TopicPartition, Replicas]) -> str:
    partitions = [
        {"topic": topic, "partition": partition, "replicas": list(brokers), "log_dirs": [ANY_LOG_DIR] * len(brokers)}
        for (topic, partition), brokers in sorted(replicas.items())
    ]
    return json.dumps({"version": 1, "partitions": partitions})
