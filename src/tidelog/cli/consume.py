"""`tidelog consume`: print the records of a topic as they arrive."""

import argparse
import asyncio
import sys
from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING

from tidelog.cli.client_command import (
    add_client_options,
    cancel_on_interrupt,
    count_option,
    name_option,
    no_such_partition,
    note,
    number_option,
    run_command,
    seconds_option,
)
from tidelog.cli.command_error import CommandError
from tidelog.cli.output import Output
from tidelog.terminal.plurals import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidelog.cli.committing_consumer import CommittingConsumer
    from tidelog.client.consumer.consumer import ConsumedRecord, Consumer
    from tidelog.client.routing.cluster import Cluster
    from tidelog.types import TopicPartition

DESCRIPTION = """\
Print the records of a topic, one per line, and wait for more until Ctrl-C. By default, starts at the end of the topic:
only new records are printed.
"""
FORMAT_HELP = """\
output format of a record: %%t topic, %%p partition, %%o offset, %%T timestamp in milliseconds, %%k key, %%v value,
%%h headers, \\t a tab, \\n a new line ('%%v')
"""


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser("consume", help="print the records of a topic", description=DESCRIPTION)
    parser.add_argument("topic", metavar="TOPIC", type=name_option)
    parser.add_argument(
        "--group",
        metavar="NAME",
        type=name_option,
        help="read as a member of this consumer group: share its partitions with the other members and continue from"
        " its committed offsets; --from-beginning applies to a group without committed offsets",
    )
    parser.add_argument(
        "--instance-id",
        metavar="NAME",
        type=name_option,
        help="with --group: static member id (group.instance.id), unique in the group. When this command ends, its"
        " partitions are kept for the next member with this id until the session times out",
    )
    start = parser.add_mutually_exclusive_group()
    start.add_argument("--from-beginning", action="store_true", help="start with the oldest record")
    start.add_argument(
        "--offset",
        metavar="N",
        type=_offset_option,
        help="start at this offset; -N starts N records before the end of each partition",
    )
    parser.add_argument(
        "--partition",
        metavar="N",
        type=number_option,
        action="append",
        help="read only this partition; may be repeated",
    )
    parser.add_argument(
        "--committed",
        action="store_true",
        help="print only records of committed transactions; wait for open transactions to end",
    )
    parser.add_argument(
        "--rack",
        metavar="NAME",
        type=name_option,
        help="read from replicas in this rack (client.rack), if the brokers' replica.selector.class is rack-aware",
    )
    _add_limits(parser)
    _add_output_options(parser)
    add_client_options(parser)
    parser.set_defaults(run=lambda options: run_command("consume", _consume, options))


def _add_limits(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--max-messages", metavar="N", type=count_option, help="exit after N records")
    parser.add_argument(
        "--timeout", metavar="SECONDS", type=seconds_option, help="exit if no record arrives for this long"
    )


def _add_output_options(parser: argparse.ArgumentParser) -> None:
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--format", metavar="TEXT", type=_format_option, default="%v", help=FORMAT_HELP)
    output.add_argument("--json", action="store_true", help="print each record as a line of JSON")


def _offset_option(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a number, found {text!r}") from None


def _format_option(text: str) -> str:
    from tidelog.cli.record_format import BadFormat, check_format

    try:
        return check_format(text)
    except BadFormat as error:
        raise argparse.ArgumentTypeError(str(error)) from None


async def _consume(cluster: "Cluster", options: argparse.Namespace) -> None:
    if options.group is not None and (options.partition or options.offset is not None):
        raise CommandError(
            "--group cannot be combined with --partition or --offset: the group assigns partitions and offsets"
        )
    if options.group is None and options.instance_id is not None:
        raise CommandError("--instance-id needs --group")
    cluster.client_rack = options.rack or ""
    partitions = await _partitions(cluster, options)
    printer = _Printer(options)
    try:
        cancel_on_interrupt()
        if sys.stderr.isatty():
            note(_greeting(options, len(partitions)))
        if options.group is None:
            await _read_alone(cluster, partitions, printer, options)
        else:
            await _read_in_group(cluster, printer, options)
    except asyncio.CancelledError:
        pass  # Ctrl-C is the normal way to end
    note(f"{plural(printer.printed, 'record')} read from {options.topic}")


async def _read_alone(
    cluster: "Cluster", partitions: "list[TopicPartition]", printer: "_Printer", options: argparse.Namespace
) -> None:
    from tidelog.client.consumer.consumer import BEGINNING, Consumer, ConsumerSettings

    settings = ConsumerSettings(isolation_level=_isolation_level(options), reset_to=BEGINNING)
    async with Consumer(cluster, settings) as consumer:
        await consumer.assign(await _starts(cluster, partitions, options))
        await printer.print_all(consumer)


async def _read_in_group(cluster: "Cluster", printer: "_Printer", options: argparse.Namespace) -> None:
    from tidelog.cli.committing_consumer import CommittingConsumer
    from tidelog.errors import FencedInstanceId, UnreleasedInstanceId

    reading = CommittingConsumer(
        cluster,
        options.group,
        options.topic,
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


async def _partitions(cluster: "Cluster", options: argparse.Namespace) -> "list[TopicPartition]":
    from tidelog.client.admin.admin import Admin
    from tidelog.errors import UnknownTopicOrPartition
    from tidelog.types import TopicPartition

    try:
        topic = await Admin(cluster).describe_topic(options.topic)
    except UnknownTopicOrPartition:
        hint = f"`tidelog topic create {options.topic}` creates it"
        raise CommandError(f"topic {options.topic} does not exist; {hint}") from None
    for number in options.partition or ():
        if number not in topic.partitions:
            raise no_such_partition(topic.name, len(topic.partitions), number)
    return [TopicPartition(topic.name, number) for number in sorted(options.partition or topic.partitions)]


async def _starts(
    cluster: "Cluster", partitions: "list[TopicPartition]", options: argparse.Namespace
) -> "dict[TopicPartition, int]":
    from tidelog.client.consumer.offsets import BEGINNING, END, list_offsets

    if options.offset is None:
        return dict.fromkeys(partitions, BEGINNING if options.from_beginning else END)
    starts, ends = [
        await list_offsets(cluster, dict.fromkeys(partitions, where), isolation_level=_isolation_level(options))
        for where in (BEGINNING, END)
    ]
    found = {}
    for key in partitions:
        start, end = starts[key].offset, ends[key].offset
        wanted = options.offset if options.offset >= 0 else max(start, end + options.offset)
        found[key] = min(max(wanted, start), end)
        if found[key] != wanted:
            there = f"has offsets {start} to {end - 1}" if start < end else "is empty"
            note(f"{key} {there}: reading starts at offset {found[key]}")
    return found


def _isolation_level(options: argparse.Namespace) -> int:
    from tidelog.client.consumer.consumer_settings import READ_COMMITTED, READ_UNCOMMITTED

    return READ_COMMITTED if options.committed else READ_UNCOMMITTED


def _greeting(options: argparse.Namespace, count: int) -> str:
    if options.group is not None:
        return f"waiting for records of {options.topic} as a member of group {options.group}; stop with Ctrl-C"
    what = "records" if options.from_beginning or options.offset is not None else "new records"
    hint = "" if what == "records" else "; --from-beginning prints the existing ones, too"
    return f"waiting for {what} of {options.topic} ({plural(count, 'partition')}){hint}; stop with Ctrl-C"


class _Printer:
    def __init__(self, options: argparse.Namespace) -> None:
        from tidelog.cli.record_format import formatter, json_line

        self._format = json_line if options.json else formatter(options.format)
        self._output = Output(sys.stdout.fileno())
        self._max_records: int | None = options.max_messages
        self._timeout_s: float | None = options.timeout
        self.printed = 0
        self.on_printed: Callable[[Sequence[ConsumedRecord]], None] | None = None

    async def print_all(self, consumer: "Consumer | CommittingConsumer") -> None:
        """Until the requested number of records is printed, or nothing arrives within the timeout."""
        while self._max_records is None or self.printed < self._max_records:
            records = await consumer.poll(self._timeout_s)
            if not records:
                return
            if self._max_records is not None:
                del records[self._max_records - self.printed :]
            await self._print(records)

    async def _print(self, records: "Sequence[ConsumedRecord]") -> None:
        lines = [*map(self._format, records)]
        before_bytes = self._output.written_bytes
        try:
            await self._output.write(b"".join(lines))
        except asyncio.CancelledError:  # Ctrl-C: whole records that were written count
            written_bytes = self._output.written_bytes - before_bytes
            self._on_written(records[: bisect_right([*accumulate(map(len, lines))], written_bytes)])
            raise
        self._on_written(records)

    def _on_written(self, records: "Sequence[ConsumedRecord]") -> None:
        self.printed += len(records)
        if self.on_printed is not None:
            self.on_printed(records)
