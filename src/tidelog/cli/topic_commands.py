"""`tidelog topic create`, `list`, `describe`, `alter` and `delete`."""

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tidelog.cli.client_command import no_such_topic, note
from tidelog.cli.command_error import CommandError
from tidelog.cli.config_commands import known_entries, reject_duplicates
from tidelog.cli.config_view import is_set, settings_json, settings_lines
from tidelog.client.admin.admin import Admin
from tidelog.client.admin.config_admin import ConfigAdmin, Resource, ResourceKind
from tidelog.client.admin.partition_counts import create_partitions
from tidelog.client.consumer.offsets import BEGINNING, END, list_offsets
from tidelog.client.network.in_flight import ConnectionLost
from tidelog.client.network.retries import GaveUp
from tidelog.client.routing.cluster import Cluster
from tidelog.client.routing.metadata import PartitionMetadata, TopicMetadata
from tidelog.errors import KafkaError, UnknownTopicOrPartition
from tidelog.protocol.messages.describe_configs import DescribeConfigsResourceResult
from tidelog.terminal.plurals import plural
from tidelog.terminal.tables import table
from tidelog.types import TopicPartition, uuid_text

OFFSETS_TIMEOUT_S = 5.0
HEALTHY = "healthy"


class OffsetRange(NamedTuple):
    """Offsets of one partition; None if its leader does not answer."""

    start: int | None = None
    end: int | None = None

    def cells(self) -> tuple[object, object]:
        return "-" if self.start is None else self.start, "-" if self.end is None else self.end


async def create(cluster: Cluster, options: argparse.Namespace) -> None:
    reject_duplicates([name for name, _ in options.settings])
    topic = await Admin(cluster).create_topic(
        options.topic,
        partitions=options.partitions,
        replication_factor=options.replication_factor,
        settings=dict(options.settings),
    )
    if options.json:
        print(json.dumps(_as_json(topic)))
        return
    count = plural(len(topic.partitions), "partition")
    print(f"created topic {topic.name}: {count}, replication factor {_copies(topic)}")
    if (state := health(topic)) != HEALTHY:
        note(f"{state}; `tidelog status` says why")


async def list_topics(cluster: Cluster, options: argparse.Namespace) -> None:
    topics = await Admin(cluster).list_topics()
    if options.json:
        print(json.dumps([_as_json(topic) for topic in topics]))
        return
    if not topics:
        print("no topics yet; `tidelog topic create NAME` creates one")
        return
    rows = [(topic.name, len(topic.partitions), _copies(topic), health(topic)) for topic in topics]
    print("\n".join(table(["TOPIC", "PARTITIONS", "REPLICAS", "STATE"], rows)))


async def describe(cluster: Cluster, options: argparse.Namespace) -> None:
    topic = await _find_topic(cluster, options.topic)
    found = await ConfigAdmin(cluster).describe(Resource(ResourceKind.TOPIC, topic.name))
    settings = [each for each in found if options.all_settings or is_set(each)]
    ranges = await _offsets(cluster, topic)
    if options.json:
        described = _as_json(topic) | {
            "settings": settings_json(settings),
            "partitions": [
                _partition_json(number, partition, ranges[number])
                for number, partition in sorted(topic.partitions.items())
            ],
        }
        print(json.dumps(described))
        return
    print("\n".join([*_head_lines(topic, settings), "", *_partition_lines(topic, ranges)]))


def _head_lines(topic: TopicMetadata, settings: Sequence[DescribeConfigsResourceResult]) -> list[str]:
    lines = [
        f"topic     {topic.name}",
        f"id        {uuid_text(topic.topic_id)}",
        f"state     {health(topic)}",
        f"settings  {'' if settings else 'all at their defaults'}".rstrip(),
    ]
    return lines + [f"  {line}" for line in (settings_lines(settings) if settings else ())]


def _partition_lines(topic: TopicMetadata, ranges: Mapping[int, OffsetRange]) -> list[str]:
    rows = [
        (
            number,
            "none" if partition.leader < 0 else partition.leader,
            _ids(partition.replicas),
            _ids(partition.in_sync_replicas),
            *ranges[number].cells(),
            _missing(partition),
        )
        for number, partition in sorted(topic.partitions.items())
    ]
    return table(["PARTITION", "LEADER", "REPLICAS", "IN SYNC", "START", "END", ""], rows)


async def alter(cluster: Cluster, options: argparse.Namespace) -> None:
    """Everything is checked before anything is changed."""
    if not (options.settings or options.unset or options.partitions):
        raise CommandError("nothing to change; give --set KEY=VALUE, --unset KEY or --partitions N")
    reject_duplicates([name for name, _ in options.settings] + options.unset)
    topic = await _find_topic(cluster, options.topic)
    resource, admin = Resource(ResourceKind.TOPIC, topic.name), ConfigAdmin(cluster)
    _reject_fewer(topic, options.partitions)
    if options.unset:
        await known_entries(cluster, resource, options.unset)
    if options.partitions:
        await create_partitions(cluster, topic.name, options.partitions, validate_only=True)
    if options.settings or options.unset:
        await admin.alter(resource, dict(options.settings), options.unset, validate_only=options.dry_run)
    if options.partitions and not options.dry_run:
        await create_partitions(cluster, topic.name, options.partitions)
    if options.json:
        changed = {**dict(options.settings), **dict.fromkeys(options.unset)}
        print(
            json.dumps(
                {
                    "name": topic.name,
                    "settings": changed,
                    "partitions": options.partitions or len(topic.partitions),
                    "dry_run": options.dry_run,
                }
            )
        )
        return
    parts = [f"{name}={value}" for name, value in options.settings] + [f"{name} is unset" for name in options.unset]
    parts += [plural(options.partitions, "partition")] if options.partitions else []
    what = "valid, and nothing was changed: topic" if options.dry_run else "changed topic"
    print(f"{what} {topic.name}: {', '.join(parts)}")


def _reject_fewer(topic: TopicMetadata, wanted: int | None) -> None:
    have = len(topic.partitions)
    if wanted is not None and wanted <= have:
        raise CommandError(
            f"topic {topic.name} has {plural(have, 'partition')} already; partitions can only be added: the records of"
            " removed ones would be lost"
        )


async def delete(cluster: Cluster, options: argparse.Namespace) -> None:
    await _find_topic(cluster, options.topic)
    await Admin(cluster).delete_topic(options.topic)
    print(json.dumps({"name": options.topic, "deleted": True}) if options.json else f"deleted topic {options.topic}")


async def _find_topic(cluster: Cluster, name: str) -> TopicMetadata:
    try:
        return await Admin(cluster).describe_topic(name)
    except UnknownTopicOrPartition:
        raise no_such_topic(name) from None


async def _offsets(cluster: Cluster, topic: TopicMetadata) -> dict[int, OffsetRange]:
    led = [number for number, partition in topic.partitions.items() if partition.leader >= 0]
    ranges = dict.fromkeys(topic.partitions, OffsetRange())
    try:
        starts, ends = [
            await list_offsets(
                cluster, {TopicPartition(topic.name, number): where for number in led}, timeout_s=OFFSETS_TIMEOUT_S
            )
            for where in (BEGINNING, END)
        ]
    except (GaveUp, ConnectionLost, KafkaError):
        return ranges
    return ranges | {key.partition: OffsetRange(starts[key].offset, ends[key].offset) for key in starts}


def _as_json(topic: TopicMetadata) -> dict[str, object]:
    return {
        "name": topic.name,
        "id": uuid_text(topic.topic_id),
        "partitions": len(topic.partitions),
        "replication_factor": _copies(topic),
        "state": health(topic),
    }


def _partition_json(number: int, partition: PartitionMetadata, offsets: OffsetRange) -> dict[str, object]:
    return {
        "partition": number,
        "leader": None if partition.leader < 0 else partition.leader,
        "leader_epoch": partition.leader_epoch,
        "replicas": list(partition.replicas),
        "isr": list(partition.in_sync_replicas),
        "start_offset": offsets.start,
        "end_offset": offsets.end,
    }


def _copies(topic: TopicMetadata) -> int:
    return max(len(partition.replicas) for partition in topic.partitions.values())


def health(topic: TopicMetadata) -> str:
    partitions = topic.partitions.values()
    leaderless = sum(partition.leader < 0 for partition in partitions)
    behind = sum(len(partition.in_sync_replicas) < len(partition.replicas) for partition in partitions)
    if leaderless:
        return f"{plural(leaderless, 'partition')} without a leader"
    return f"{plural(behind, 'partition')} with replicas out of sync" if behind else HEALTHY


def _missing(partition: PartitionMetadata) -> str:
    missing = [replica for replica in partition.replicas if replica not in partition.in_sync_replicas]
    return f"out of sync: {_ids(missing)}" if missing else ""


def _ids(replicas: Sequence[int]) -> str:
    return ",".join(map(str, replicas))
