"""`tidelog produce`: write each line of standard input to a topic."""

import argparse
import asyncio
import sys
from typing import TYPE_CHECKING

from tidelog.cli.client_command import (
    add_client_options,
    cancel_on_interrupt,
    name_option,
    note,
    number_option,
    run_command,
    settings_option,
)
from tidelog.cli.command_error import CommandError
from tidelog.terminal.plurals import plural

if TYPE_CHECKING:
    from tidelog.cli.produce_waiting import Waiting
    from tidelog.client.producer.producer import Producer
    from tidelog.client.routing.cluster import Cluster

DESCRIPTION = """\
Write each line of standard input to a topic as one record. A topic that does not exist is created if the cluster
allows it. The command returns when all records are acknowledged.
"""
ACKS = {"all": -1, "1": 1, "0": 0}
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
DELIVERY_TIMEOUT_S = 60.0
METADATA_TIMEOUT_S = 10.0
REQUEST_TIMEOUT_S = 10.0


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser("produce", help="write lines to a topic", description=DESCRIPTION)
    parser.add_argument("topic", metavar="TOPIC", type=name_option)
    parser.add_argument(
        "--key-separator",
        metavar="TEXT",
        type=_separator_option,
        help="text between key and value in each line; \\t is a tab",
    )
    parser.add_argument("--partition", metavar="N", type=number_option, help="write only to this partition")
    parser.add_argument(
        "--header",
        metavar="KEY=VALUE",
        action="append",
        type=settings_option,
        default=[],
        dest="headers",
        help="add a header to every record; may be repeated",
    )
    parser.add_argument(
        "--acks", choices=ACKS, default="all", help="acknowledgements to wait for (all: every in-sync replica)"
    )
    parser.add_argument("--compression", choices=COMPRESSIONS, default="none", help="compression of batches (none)")
    add_client_options(parser)
    parser.set_defaults(run=lambda options: run_command("produce", _produce, options))


def _separator_option(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("the separator must not be empty; without this option a line is a value")
    from tidelog.cli.record_format import unescaped

    return unescaped(text)


async def _produce(cluster: "Cluster", options: argparse.Namespace) -> None:
    from tidelog.cli.produce_waiting import Waiting
    from tidelog.client.producer.producer import Producer, ProducerSettings
    from tidelog.protocol.compression import Codec
    from tidelog.runtime.clock import SystemClock

    settings = ProducerSettings(
        acks=ACKS[options.acks],
        compression=Codec[options.compression.upper()],
        delivery_timeout_s=DELIVERY_TIMEOUT_S,
        metadata_timeout_s=METADATA_TIMEOUT_S,
        request_timeout_s=REQUEST_TIMEOUT_S,
    )
    if sys.stdin.isatty():
        note(f"each line becomes a record of {options.topic}; end with Ctrl-D")
    producer = Producer(cluster, SystemClock(), settings)
    waiting = Waiting(cluster, producer, options.topic)
    try:
        async with producer, waiting.explained():
            await _write_lines(producer, waiting, options)
            await producer.flush()
    finally:
        how = "sent" if settings.acks == 0 else "written"
        note(f"{plural(producer.acknowledged_records, 'record')} {how} to {options.topic}")


async def _write_lines(producer: "Producer", waiting: "Waiting", options: argparse.Namespace) -> None:
    """Until the end of input; Ctrl-C also ends it."""
    reading = asyncio.current_task()
    assert reading is not None
    cancel_on_interrupt()
    try:
        await _enqueue_lines(producer, waiting, options)
    except asyncio.CancelledError:
        reading.uncancel()
    except CommandError:
        await producer.flush()
        raise


async def _enqueue_lines(producer: "Producer", waiting: "Waiting", options: argparse.Namespace) -> None:
    from tidelog.cli.input_lines import input_lines

    headers = tuple((key, value.encode()) for key, value in options.headers)
    async for line in input_lines(sys.stdin.fileno()):
        key, value = _split(line, waiting.lines_read + 1, options.key_separator)
        waiting.lines_read += 1
        await producer.enqueue(options.topic, value, key=key, partition=options.partition, headers=headers)
        producer.raise_failure()


def _split(line: bytes, number: int, separator: str | None) -> tuple[bytes | None, bytes]:
    if not separator:
        return None, line
    key, found, value = line.partition(separator.encode())
    if not found:
        raise CommandError(
            f"line {number} has no {separator!r} between key and value; the lines before it were written"
        )
    return key, value
