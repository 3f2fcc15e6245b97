"""Work of `tidelog consume`: which partitions from which offsets, alone or in a group, until when."""

import argparse
import asyncio
import sys
import time
from collections.abc import Mapping

from tidelog.cli.client_command import cancel_on_interrupt, no_such_partition, note
from tidelog.cli.command_error import CommandError
from tidelog.cli.committing_consumer import CommittingConsumer
from tidelog.cli.record_filter import RecordFilter
from tidelog.cli.record_printer import RecordPrinter
from tidelog.cli.time_options import NOW
from tidelog.cli.topic_patterns import chosen_topics, is_pattern
from tidelog.client.admin.admin import Admin
from tidelog.client.consumer.consumer import Consumer, ConsumerSettings
from tidelog.client.consumer.consumer_settings import READ_COMMITTED, READ_UNCOMMITTED, AtTime
from tidelog.client.consumer.offsets import BEGINNING, END, list_offsets
from tidelog.client.routing.cluster import Cluster
from tidelog.client.routing.metadata import TopicMetadata
from tidelog.errors import FencedInstanceId, UnknownTopicOrPartition, UnreleasedInstanceId
from tidelog.terminal.plurals import plural
from tidelog.types import TopicPartition

POLL_S = 0.5
"""Pause between two looks at the clock, with --until."""


async def consume(cluster: Cluster, options: argparse.Namespace) -> None:
    _reject_contradictions(options)
    now_ms = time.time_ns() // 1_000_000
    if options.since is not None:
        options.from_ms = max(now_ms - options.since, 0)
    for name in ("from_ms", "until_ms"):
        if getattr(options, name) == NOW:
            setattr(options, name, now_ms)
    if options.from_ms is not None and options.until_ms is not None and options.until_ms < options.from_ms:
        raise CommandError("the time of --until is before the start; no record is between them")
    cluster.client_rack = options.rack or ""
    topics = await _topics(cluster, options)
    partitions = [TopicPartition(topic.name, each) for topic in topics for each in _wanted(topic, options)]
    printer = RecordPrinter(options, _filter(options))
    try:
        cancel_on_interrupt()
        if sys.stderr.isatty():
            note(_greeting(options, [topic.name for topic in topics], len(partitions)))
        if options.group is None:
            await _read_alone(cluster, partitions, printer, options)
        else:
            await _read_in_group(cluster, [topic.name for topic in topics], printer, options)
    except asyncio.CancelledError:
        pass  # Ctrl-C is the normal way to end
    note(printer.summary(_named([topic.name for topic in topics])))


def _reject_contradictions(options: argparse.Namespace) -> None:
    if options.group is not None and (options.partition or options.offset is not None):
        raise CommandError(
            "--group cannot be combined with --partition or --offset: the group assigns partitions and offsets"
        )
    if options.group is not None and (options.since, options.from_ms, options.until_ms) != (None, None, None):
        raise CommandError(
            "--group cannot be combined with --since, --from or --until: a group continues from its committed offsets;"
            f" `tidelog group reset-offsets {options.group} --to-time TIME` moves them"
        )
    if options.group is None and options.instance_id is not None:
        raise CommandError("--instance-id needs --group")
    if options.message is not None and options.value_schema is None:
        raise CommandError("--message needs --value-schema FILE, a descriptor set made by protoc")


def _filter(options: argparse.Namespace) -> RecordFilter:
    key = None if options.key is None else options.key.encode()
    return RecordFilter(key, options.grep, options.from_ms, options.until_ms)


async def _topics(cluster: Cluster, options: argparse.Namespace) -> list[TopicMetadata]:
    admin = Admin(cluster)
    if any(map(is_pattern, options.topics)):
        known = {topic.name: topic for topic in await admin.list_topics()}
        chosen = chosen_topics(options.topics, known)
        found = [known[name] for name in chosen]
    else:
        found = [await _find_topic(admin, name) for name in dict.fromkeys(options.topics)]
    if len(found) > 1 and (options.partition or options.offset is not None):
        raise CommandError("--partition and --offset are for one topic; several were given")
    return found


async def _find_topic(admin: Admin, name: str) -> TopicMetadata:
    try:
        return await admin.describe_topic(name)
    except UnknownTopicOrPartition:
        raise CommandError(f"topic {name} does not exist; `tidelog topic create {name}` creates it") from None


def _wanted(topic: TopicMetadata, options: argparse.Namespace) -> list[int]:
    for number in options.partition or ():
        if number not in topic.partitions:
            raise no_such_partition(topic.name, len(topic.partitions), number)
    return sorted(options.partition or topic.partitions)


async def _read_alone(
    cluster: Cluster, partitions: list[TopicPartition], printer: RecordPrinter, options: argparse.Namespace
) -> None:
    settings = ConsumerSettings(isolation_level=_isolation_level(options), reset_to=BEGINNING)
    async with Consumer(cluster, settings) as consumer:
        await consumer.assign(await _starts(cluster, partitions, options))
        if options.until_ms is None:
            await printer.print_all(consumer)
            return
        while time.time_ns() // 1_000_000 < options.until_ms:
            if not await printer.print_for(consumer, POLL_S):
                return
        printer.ends = ends = await _ends(cluster, partitions, options)
        while any(consumer.positions.get(each, 0) < end for each, end in ends.items()):
            if not await printer.print_for(consumer, POLL_S):
                return


async def _ends(
    cluster: Cluster, partitions: list[TopicPartition], options: argparse.Namespace
) -> dict[TopicPartition, int]:
    """The first offset at or after the time; the end of partitions without such a record."""
    level = _isolation_level(options)
    ends = await list_offsets(cluster, dict.fromkeys(partitions, END), isolation_level=level)
    found = await list_offsets(cluster, dict.fromkeys(partitions, options.until_ms), isolation_level=level)
    return {key: at.offset if at.offset >= 0 else ends[key].offset for key, at in found.items()}


async def _read_in_group(
    cluster: Cluster, topics: list[str], printer: RecordPrinter, options: argparse.Namespace
) -> None:
    reading = CommittingConsumer(
        cluster,
        options.group,
        topics,
        from_beginning=options.from_beginning,
        isolation_level=_isolation_level(options),
        instance_id=options.instance_id,
    )
    try:
        async with reading:
            printer.on_printed = reading.done
            await printer.print_all(reading)
    except (FencedInstanceId, UnreleasedInstanceId):
        raise CommandError(
            f"instance id {options.instance_id} is in use by another member of group {options.group}; choose another"
            " id, or stop that member (after a crash the id is free again when the session times out)"
        ) from None


async def _starts(
    cluster: Cluster, partitions: list[TopicPartition], options: argparse.Namespace
) -> Mapping[TopicPartition, int | AtTime]:
    if options.from_ms is not None:
        return dict.fromkeys(partitions, AtTime(options.from_ms))
    if options.offset is None:
        return dict.fromkeys(partitions, BEGINNING if options.from_beginning else END)
    starts, ends = [
        await list_offsets(cluster, dict.fromkeys(partitions, where), isolation_level=_isolation_level(options))
        for where in (BEGINNING, END)
    ]
    found: dict[TopicPartition, int | AtTime] = {}
    for key in partitions:
        start, end = starts[key].offset, ends[key].offset
        wanted = options.offset if options.offset >= 0 else max(start, end + options.offset)
        found[key] = chosen = min(max(wanted, start), end)
        if chosen != wanted:
            there = f"has offsets {start} to {end - 1}" if start < end else "is empty"
            note(f"{key} {there}: reading starts at offset {chosen}")
    return found


def _isolation_level(options: argparse.Namespace) -> int:
    return READ_COMMITTED if options.committed else READ_UNCOMMITTED


def _named(topics: list[str]) -> str:
    return topics[0] if len(topics) == 1 else plural(len(topics), "topic")


def _greeting(options: argparse.Namespace, topics: list[str], count: int) -> str:
    name = _named(topics)
    if options.group is not None:
        return f"waiting for records of {name} as a member of group {options.group}; stop with Ctrl-C"
    has_start = options.from_beginning or options.offset is not None or options.from_ms is not None
    hint = "" if has_start else "; --from-beginning prints the existing ones, too"
    what = "records" if has_start else "new records"
    return f"waiting for {what} of {name} ({plural(count, 'partition')}){hint}; stop with Ctrl-C"
