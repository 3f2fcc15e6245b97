"""`tidelog topic`: create, list, describe and delete topics."""

import argparse
from typing import TYPE_CHECKING

from tidelog.cli.client_command import (
    add_client_options,
    count_option,
    no_such_topic,
    run_command,
    settings_option,
)
from tidelog.terminal.plurals import plural

if TYPE_CHECKING:
    from tidelog.client.admin.admin import Admin
    from tidelog.client.routing.cluster import Cluster
    from tidelog.client.routing.metadata import PartitionMetadata, TopicMetadata

OFFSETS_TIMEOUT_S = 5.0


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "topic", help="create, list, describe and delete topics", description="Create, list, describe, delete topics."
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions", required=True)
    _add_create(actions)
    _add_list(actions)
    _add_describe(actions)
    _add_delete(actions)


def _add_create(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = actions.add_parser(
        "create", help="create a topic", description="Create a topic. Returns when it accepts writes."
    )
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument(
        "--partitions",
        metavar="N",
        type=count_option,
        default=-1,
        help="number of partitions (default: num.partitions of the cluster)",
    )
    parser.add_argument(
        "--replication-factor",
        metavar="N",
        type=count_option,
        default=-1,
        help="replicas of each partition (default: default.replication.factor of the cluster)",
    )
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        type=settings_option,
        default=[],
        dest="settings",
        help="a topic setting, such as retention.ms=3600000; may be repeated",
    )
    add_client_options(parser)
    parser.set_defaults(run=lambda options: run_command("topic create", _create, options))


def _add_list(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = actions.add_parser("list", help="list all topics", description="List all topics, with their health.")
    add_client_options(parser)
    parser.set_defaults(run=lambda options: run_command("topic list", _list, options))


def _add_describe(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = actions.add_parser(
        "describe",
        help="show partitions, leaders, replicas, settings",
        description="Show the partitions of a topic with leader, replicas and in-sync replicas, and its settings.",
    )
    parser.add_argument("topic", metavar="TOPIC")
    add_client_options(parser)
    parser.set_defaults(run=lambda options: run_command("topic describe", _describe, options))


def _add_delete(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = actions.add_parser(
        "delete",
        help="delete a topic and its records",
        description="Delete a topic and all its records. This cannot be undone.",
    )
    parser.add_argument("topic", metavar="TOPIC")
    add_client_options(parser)
    parser.set_defaults(run=lambda options: run_command("topic delete", _delete, options))


async def _create(cluster: "Cluster", options: argparse.Namespace) -> None:
    from tidelog.client.admin.admin import Admin

    topic = await Admin(cluster).create_topic(
        options.topic,
        partitions=options.partitions,
        replication_factor=options.replication_factor,
        settings=dict(options.settings),
    )
    copies = max(len(partition.replicas) for partition in topic.partitions.values())
    print(f"created topic {topic.name}: {plural(len(topic.partitions), 'partition')}, replication factor {copies}")


async def _list(cluster: "Cluster", options: argparse.Namespace) -> None:
    from tidelog.client.admin.admin import Admin
    from tidelog.terminal.tables import table

    topics = await Admin(cluster).list_topics()
    if not topics:
        print("no topics yet; `tidelog topic create NAME` creates one")
        return
    rows = [(topic.name, len(topic.partitions), _copies(topic), _health(topic)) for topic in topics]
    print("\n".join(table(["TOPIC", "PARTITIONS", "REPLICAS", "STATE"], rows)))


async def _describe(cluster: "Cluster", options: argparse.Namespace) -> None:
    from tidelog.client.admin.admin import Admin, own_settings
    from tidelog.terminal.tables import table
    from tidelog.types import uuid_text

    admin = Admin(cluster)
    topic = await _find_topic(admin, options.topic)
    settings = own_settings((await admin.topic_settings(topic.name))[topic.name])
    print(f"topic     {topic.name}")
    print(f"id        {uuid_text(topic.topic_id)}")
    print(f"state     {_health(topic)}")
    print(
        f"settings  {', '.join(f'{key}={value}' for key, value in sorted(settings.items())) or 'all at their defaults'}"
    )
    print()
    ranges = await _offsets(cluster, topic)
    rows = [
        (
            number,
            "none" if partition.leader < 0 else partition.leader,
            _ids(partition.replicas),
            _ids(partition.in_sync_replicas),
            *ranges[number],
            _missing(partition),
        )
        for number, partition in sorted(topic.partitions.items())
    ]
    print("\n".join(table(["PARTITION", "LEADER", "REPLICAS", "IN SYNC", "START", "END", ""], rows)))


async def _delete(cluster: "Cluster", options: argparse.Namespace) -> None:
    from tidelog.client.admin.admin import Admin

    admin = Admin(cluster)
    await _find_topic(admin, options.topic)
    await admin.delete_topic(options.topic)
    print(f"deleted topic {options.topic}")


async def _find_topic(admin: "Admin", name: str) -> "TopicMetadata":
    from tidelog.errors import UnknownTopicOrPartition

    try:
        return await admin.describe_topic(name)
    except UnknownTopicOrPartition:
        raise no_such_topic(name) from None


async def _offsets(cluster: "Cluster", topic: "TopicMetadata") -> dict[int, tuple[object, object]]:
    """Log start and end offsets; "-" for partitions whose leader does not answer."""
    from tidelog.client.consumer.offsets import BEGINNING, END, list_offsets
    from tidelog.client.network.in_flight import ConnectionLost
    from tidelog.client.network.retries import GaveUp
    from tidelog.errors import KafkaError
    from tidelog.types import TopicPartition

    led = [number for number, partition in topic.partitions.items() if partition.leader >= 0]
    ranges: dict[int, tuple[object, object]] = dict.fromkeys(topic.partitions, ("-", "-"))
    try:
        starts, ends = [
            await list_offsets(
                cluster, {TopicPartition(topic.name, number): where for number in led}, timeout_s=OFFSETS_TIMEOUT_S
            )
            for where in (BEGINNING, END)
        ]
    except (GaveUp, ConnectionLost, KafkaError):
        return ranges
    return ranges | {key.partition: (starts[key].offset, ends[key].offset) for key in starts}


def _copies(topic: "TopicMetadata") -> int:
    return max(len(partition.replicas) for partition in topic.partitions.values())


def _health(topic: "TopicMetadata") -> str:
    partitions = topic.partitions.values()
    leaderless = sum(partition.leader < 0 for partition in partitions)
    behind = sum(len(partition.in_sync_replicas) < len(partition.replicas) for partition in partitions)
    if leaderless:
        return f"{plural(leaderless, 'partition')} without a leader"
    return f"{plural(behind, 'partition')} with replicas out of sync" if behind else "healthy"


def _missing(partition: "PartitionMetadata") -> str:
    missing = [replica for replica in partition.replicas if replica not in partition.in_sync_replicas]
    return f"out of sync: {_ids(missing)}" if missing else ""


def _ids(replicas: "tuple[int, ...] | list[int]") -> str:
    return ",".join(map(str, replicas))
