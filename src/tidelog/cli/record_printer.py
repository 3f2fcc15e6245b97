"""Printer of consumed records: chosen, decoded, formatted, and written without blocking the event loop."""

import argparse
import asyncio
import sys
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Protocol

from tidelog.cli.output import Output
from tidelog.cli.record_filter import RecordFilter
from tidelog.cli.record_format import formatter, json_line
from tidelog.client.consumer.fetched_records import ConsumedRecord
from tidelog.terminal.plurals import plural
from tidelog.types import TopicPartition


class Polled(Protocol):
    async def poll(self, timeout_s: float | None = None) -> list[ConsumedRecord]: ...


class RecordPrinter:
    def __init__(self, options: argparse.Namespace, chosen: RecordFilter) -> None:
        from tidelog.cli.value_decoding import decoder_of

        decode = None if options.value_schema is None else decoder_of(options.value_schema, options.message)
        self._format: Callable[[ConsumedRecord], bytes]
        if options.json:
            self._format = lambda record: json_line(record, decode)
        else:
            self._format = formatter(options.format, decode)
        self._chosen = chosen
        self._output = Output(sys.stdout.fileno())
        self._max_records: int | None = options.max_messages
        self._timeout_s: float | None = options.timeout
        self._idle_s = 0.0
        self.read = 0
        self.printed = 0
        self.ends: Mapping[TopicPartition, int] = {}
        """Offsets from which on nothing is shown."""
        self.on_printed: Callable[[Sequence[ConsumedRecord]], None] | None = None

    def summary(self, topics: str) -> str:
        if self._chosen.is_by_time_only:
            return f"{plural(self.printed, 'record')} read from {topics}"
        return f"{plural(self.printed, 'record')} shown of {self.read:,} read from {topics}"

    async def print_all(self, consumer: Polled) -> None:
        """Until the requested number of records is printed, or nothing arrives within the timeout."""
        while self._has_room:
            records = await consumer.poll(self._timeout_s)
            if not records:
                return
            await self._print(records)

    async def print_for(self, consumer: Polled, wait_s: float) -> bool:
        """Print what arrives within `wait_s`. False if the command is to end."""
        if self._timeout_s is not None:
            wait_s = min(wait_s, self._timeout_s)
        records = await consumer.poll(wait_s)
        self._idle_s = 0.0 if records else self._idle_s + wait_s
        await self._print(records)
        return self._has_room and (self._timeout_s is None or self._idle_s < self._timeout_s)

    @property
    def _has_room(self) -> bool:
        return self._max_records is None or self.printed < self._max_records

    def _is_before_end(self, record: ConsumedRecord) -> bool:
        end = self.ends.get(TopicPartition(record.topic, record.partition))
        return end is None or record.offset < end

    async def _print(self, records: Sequence[ConsumedRecord]) -> None:
        """Records that are not shown count as printed when the ones before them are."""
        lines: list[bytes] = []
        room = sys.maxsize if self._max_records is None else self._max_records - self.printed
        for record in records:
            if room == 0:
                break
            is_shown = self._chosen.shows(record) and self._is_before_end(record)
            lines.append(self._format(record) if is_shown else b"")
            room -= is_shown
        before_bytes = self._output.written_bytes
        try:
            await self._output.write(b"".join(lines))
        except asyncio.CancelledError:  # Ctrl-C: whole records that were written count
            written_bytes = self._output.written_bytes - before_bytes
            self._on_written(records, lines[: bisect_right([*accumulate(map(len, lines))], written_bytes)])
            raise
        self._on_written(records, lines)

    def _on_written(self, records: Sequence[ConsumedRecord], lines: Sequence[bytes]) -> None:
        self.read += len(lines)
        self.printed += sum(map(bool, lines))
        if self.on_printed is not None:
            self.on_printed(records[: len(lines)])
