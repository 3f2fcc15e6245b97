"""Work of `tidelog produce`: lines to records, at a rate, repeated, until the end of input."""

import argparse
import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable

from tidelog.cli.client_command import cancel_on_interrupt, note
from tidelog.cli.command_error import CommandError
from tidelog.cli.input_lines import input_lines
from tidelog.cli.produce import ACKS
from tidelog.cli.produce_waiting import Waiting
from tidelog.cli.record_input import BadRecord, InputRecord, json_record
from tidelog.client.producer.producer import Producer, ProducerSettings
from tidelog.client.routing.cluster import Cluster
from tidelog.protocol.compression import Codec
from tidelog.runtime.clock import SystemClock
from tidelog.terminal.plurals import plural

DELIVERY_TIMEOUT_S = 60.0
METADATA_TIMEOUT_S = 10.0
REQUEST_TIMEOUT_S = 10.0


async def produce(cluster: Cluster, options: argparse.Namespace) -> None:
    settings = ProducerSettings(
        acks=ACKS[options.acks],
        compression=Codec[options.compression.upper()],
        delivery_timeout_s=DELIVERY_TIMEOUT_S,
        metadata_timeout_s=METADATA_TIMEOUT_S,
        request_timeout_s=REQUEST_TIMEOUT_S,
    )
    if options.input == "json" and options.key_separator is not None:
        raise CommandError('--key-separator is for --input lines; in JSON the key is the field "key"')
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
        if options.json:
            print(json.dumps({"topic": options.topic, how: producer.acknowledged_records}))
        else:
            note(f"{plural(producer.acknowledged_records, 'record')} {how} to {options.topic}")


async def _write_lines(producer: Producer, waiting: Waiting, options: argparse.Namespace) -> None:
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


async def _enqueue_lines(producer: Producer, waiting: Waiting, options: argparse.Namespace) -> None:
    common = tuple((key, value.encode()) for key, value in options.headers)
    pace = Pace(options.rate, asyncio.get_running_loop().time()) if options.rate else None
    parse = _parser(options)
    async for number, line in repeated(input_lines(sys.stdin.fileno()), options.repeat):
        try:
            record = parse(line)
        except BadRecord as error:
            raise CommandError(f"line {number} {error}; the lines before it were written") from None
        if pace is not None and (wait_s := pace.wait_s(asyncio.get_running_loop().time())) > 0:
            await asyncio.sleep(wait_s)
        waiting.lines_read += 1
        await producer.enqueue(
            options.topic,
            record.value,
            key=record.key,
            partition=options.partition if record.partition is None else record.partition,
            headers=(*common, *record.headers),
            timestamp_ms=record.timestamp_ms,
        )
        producer.raise_failure()


async def repeated(lines: AsyncIterator[bytes], times: int) -> AsyncIterator[tuple[int, bytes]]:
    """Lines with their numbers. They are kept only if they are to be repeated."""
    kept: list[bytes] = []
    number = 0
    async for line in lines:
        number += 1
        if times > 1:
            kept.append(line)
        yield number, line
    for _ in range(times - 1):
        for number, line in enumerate(kept, 1):
            yield number, line


class Pace:
    """Even distribution of records over time. Time that was lost is not made up for: no burst follows a pause."""

    def __init__(self, rate: float, now_s: float) -> None:
        self._interval_s = 1 / rate
        self._next_s = now_s

    def wait_s(self, now_s: float) -> float:
        """Before the next record."""
        wait_s = max(self._next_s - now_s, 0.0)
        self._next_s = max(self._next_s, now_s - self._interval_s) + self._interval_s
        return wait_s


def _parser(options: argparse.Namespace) -> Callable[[bytes], InputRecord]:
    if options.input == "json":
        return json_record
    separator = options.key_separator
    if not separator:
        return lambda line: InputRecord(None, line)
    return lambda line: keyed_record(line, separator)


def keyed_record(line: bytes, separator: str) -> InputRecord:
    key, found, value = line.partition(separator.encode())
    if not found:
        raise BadRecord(f"has no {separator!r} between key and value")
    return InputRecord(key, value)
