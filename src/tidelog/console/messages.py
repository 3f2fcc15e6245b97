"""Messages of a topic: a page of records from an offset, a time, the end, or as they arrive.

Transaction markers and aborted records are shown as such. Only what is shown is read.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import aclosing
from typing import NamedTuple

from tidelog.client.consumer.fetched_records import TransactionFilter
from tidelog.client.consumer.offsets import BEGINNING, DEBUGGING_CONSUMER, END, list_offsets
from tidelog.client.consumer.range_reader import FetchedRange, RangeReader, RangeSettings
from tidelog.client.routing.cluster import Cluster
from tidelog.console.decoding import AS_IT_IS, Decoding
from tidelog.console.payload import at_path, shown, text_of
from tidelog.errors import CorruptMessage
from tidelog.protocol.record_batch import BatchHeader, split_batches
from tidelog.protocol.records import ControlType, Headers, Record, read_end_marker, slices_of
from tidelog.types import TopicPartition

MAX_RECORDS = 500
MAX_SCANNED = 200_000
"""Records that a filter looks at before the page shows how far it came."""
MAX_SCAN_S = 4.0
MAX_READ_BYTES = 64 * 1024 * 1024
"""Of keys and values for one page. A page of very large values has fewer records, and goes on from there."""
MAX_HEADERS_SHOWN = 100
FETCH_BYTES = 256 * 1024
FETCH_WAIT_MS = 200
TAIL_PAUSE_S = 0.3
"""Between two looks for new records: the page has them within a second."""
READ_COMMITTED = 1
BUCKETS = 60


class Query(NamedTuple):
    topic: str
    partitions: tuple[int, ...]
    """Empty for all."""
    start: str
    """`earliest`, `latest`, an offset, or a time in milliseconds as `@ms`."""
    limit: int
    key: str = ""
    value: str = ""
    header: str = ""
    path: str = ""
    """`path=text`: the JSON value at the path has this text."""

    @property
    def is_filtered(self) -> bool:
        return bool(self.key or self.value or self.header or self.path)


class Entry(NamedTuple):
    """A record as it was read, or what stands in its place: a transaction marker, or a batch that cannot be read."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    producer_id: int | None
    transaction: str | None = None
    """`open`, `committed` or `aborted`."""
    marker: str | None = None
    error: str | None = None


class Page(NamedTuple):
    records: list[dict[str, object]]
    next_offsets: dict[int, int]
    scanned: int
    is_at_end: bool


async def offsets_of(cluster: Cluster, topic: str) -> dict[int, dict[str, int]]:
    """Log start, last stable offset, high watermark and log end of each partition with a leader."""
    metadata = await cluster.ask_topics([topic])
    led = [
        TopicPartition(topic, number)
        for number, found in metadata.topic(topic).partitions.items()
        if found.leader in metadata.brokers
    ]
    if not led:
        return {}
    starts, stable, high_watermarks, ends = await asyncio.gather(
        list_offsets(cluster, dict.fromkeys(led, BEGINNING), timeout_s=5.0),
        list_offsets(cluster, dict.fromkeys(led, END), isolation_level=READ_COMMITTED, timeout_s=5.0),
        list_offsets(cluster, dict.fromkeys(led, END), timeout_s=5.0),
        list_offsets(cluster, dict.fromkeys(led, END), replica_id=DEBUGGING_CONSUMER, timeout_s=5.0),
    )
    return {
        where.partition: {
            "start": starts[where].offset,
            "last_stable": stable[where].offset,
            "high_watermark": high_watermarks[where].offset,
            "end": ends[where].offset,
        }
        for where in led
    }


async def read_page(
    cluster: Cluster, query: Query, cursor: Mapping[int, int] | None = None, decoding: Decoding = AS_IT_IS
) -> Page:
    """The records after `cursor` (next offset of each partition), or from the start of the query."""
    bounds = await offsets_of(cluster, query.topic)
    chosen = [number for number in bounds if not query.partitions or number in query.partitions]
    starts = await _starts(cluster, query, {number: bounds[number] for number in chosen}) if cursor is None else cursor
    found: list[dict[str, object]] = []
    next_offsets = {number: starts.get(number, bounds[number]["start"]) for number in chosen}
    effort = _Effort()
    share = max(1, -(-query.limit // max(1, len(chosen))))
    for number in chosen:
        taken = 0
        where, end = TopicPartition(query.topic, number), bounds[number]["high_watermark"]
        wanted = query.limit - len(found) if query.is_filtered else share
        entries = _read_range(cluster, where, next_offsets[number], end, bounds[number]["last_stable"])
        async with aclosing(entries):
            async for entry in entries:
                if taken >= wanted or effort.is_enough:
                    break
                effort.add(entry)
                next_offsets[number] = entry.offset + 1
                record = await described(entry, query.topic, decoding)
                if _matches(record, query):
                    found.append(_with_few_headers(record))
                    taken += 1
            else:
                next_offsets[number] = max(next_offsets[number], end)
    found = _by_time(found)
    is_at_end = all(next_offsets[number] >= bounds[number]["high_watermark"] for number in chosen)
    return Page(found, next_offsets, effort.scanned, is_at_end)


class _Effort:
    """How much was read for a page. It is enough after many records or bytes, or a few seconds."""

    def __init__(self) -> None:
        self.scanned = 0
        self._bytes = 0
        self._deadline = time.monotonic() + MAX_SCAN_S

    def add(self, entry: Entry) -> None:
        self.scanned += 1
        self._bytes += len(entry.key or b"") + len(entry.value or b"")

    @property
    def is_enough(self) -> bool:
        is_much = self.scanned >= MAX_SCANNED or self._bytes >= MAX_READ_BYTES
        return is_much or time.monotonic() > self._deadline


async def read_all(cluster: Cluster, query: Query, decoding: Decoding) -> AsyncIterator[Entry]:
    """Every record that matches, from the start of the query to what is the end now, one partition after another."""
    bounds = await offsets_of(cluster, query.topic)
    chosen = {number: bounds[number] for number in bounds if not query.partitions or number in query.partitions}
    starts = await _starts(cluster, query, chosen)
    for number, bound in chosen.items():
        where = TopicPartition(query.topic, number)
        entries = _read_range(cluster, where, starts[number], bound["high_watermark"], bound["last_stable"])
        async with aclosing(entries):
            async for entry in entries:
                if not query.is_filtered or _matches(await described(entry, query.topic, decoding), query):
                    yield entry


def _by_time(records: list[dict[str, object]]) -> list[dict[str, object]]:
    """By timestamp, but in a partition by offset: a record may be older than the one before it."""
    latest: dict[object, int] = {}
    order: list[tuple[int, int]] = []
    for index, record in enumerate(records):
        number = record["partition"]
        latest[number] = max(latest.get(number, -1), int(str(record["timestamp"])))
        order.append((latest[number], index))
    return [records[index] for _, index in sorted(order)]


async def _starts(cluster: Cluster, query: Query, bounds: Mapping[int, Mapping[str, int]]) -> dict[int, int]:
    if query.start.startswith("@"):
        asked = {TopicPartition(query.topic, number): int(query.start[1:]) for number in bounds}
        found = await list_offsets(cluster, asked, timeout_s=5.0) if asked else {}
        return {
            where.partition: each.offset if each.offset >= 0 else bounds[where.partition]["high_watermark"]
            for where, each in found.items()
        }
    if query.start == "latest":
        share = max(1, query.limit // max(1, len(bounds)))
        return {number: max(each["start"], each["high_watermark"] - share) for number, each in bounds.items()}
    wanted = 0 if query.start == "earliest" else int(query.start)
    return {number: min(max(each["start"], wanted), each["high_watermark"]) for number, each in bounds.items()}


async def _read_range(
    cluster: Cluster, where: TopicPartition, start: int, end: int, last_stable: int
) -> AsyncGenerator[Entry]:
    """Records up to the last stable offset with the state of their transactions, then those of open ones."""
    for first, last, isolation in ((start, min(end, last_stable), READ_COMMITTED), (max(start, last_stable), end, 0)):
        if first >= last:
            continue
        settings = RangeSettings(
            max_bytes=FETCH_BYTES, max_wait_ms=FETCH_WAIT_MS, isolation_level=isolation, timeout_s=5.0
        )
        async with RangeReader(cluster, where, first, last, settings) as reader:
            async for fetched in reader:
                for entry in _entries(where, fetched, is_open=not isolation):
                    if first <= entry.offset < last:
                        yield entry


def _entries(where: TopicPartition, fetched: FetchedRange, *, is_open: bool) -> Iterator[Entry]:
    transactions = TransactionFilter(fetched.aborted)
    for header, batch in split_batches(fetched.records):
        is_shown = transactions.shows(header, batch)
        if header.is_control:
            yield _bare(where, header)._replace(marker=_marker(batch))
            continue
        state = None
        if header.is_transactional:
            state = "open" if is_open else "committed" if is_shown else "aborted"
        try:
            for records in slices_of(batch):
                for record in records:
                    yield _entry(where, record, header, state)
        except CorruptMessage as error:
            yield _bare(where, header)._replace(error=str(error))


def _entry(where: TopicPartition, record: Record, header: BatchHeader, state: str | None) -> Entry:
    producer_id = header.producer_id if header.producer_id >= 0 else None
    content = (record.key, record.value, record.headers)
    return Entry(where.partition, record.offset, record.timestamp, *content, producer_id, state)


def _marker(batch: memoryview) -> str:
    try:
        marker = read_end_marker(batch)
    except CorruptMessage:
        marker = None
    if marker is None:
        return "control"
    return "commit" if marker.control_type == ControlType.COMMIT else "abort"


def _bare(where: TopicPartition, header: BatchHeader) -> Entry:
    producer_id = header.producer_id if header.producer_id >= 0 else None
    return Entry(where.partition, header.base_offset, header.max_timestamp, None, None, (), producer_id)


async def described(entry: Entry, topic: str, decoding: Decoding) -> dict[str, object]:
    """As the page shows it."""
    found: dict[str, object] = {
        "partition": entry.partition,
        "offset": entry.offset,
        "timestamp": entry.timestamp,
        "key": await decoding.shown_key(entry.key),
        "value": await decoding.shown_value(topic, entry.value),
        "headers": [[name, shown(value)] for name, value in entry.headers],
        "transaction": entry.transaction,
        "producer_id": entry.producer_id,
    }
    if entry.marker is not None:
        found["marker"] = entry.marker
    if entry.error is not None:
        found["error"] = entry.error
    return found


def _with_few_headers(record: dict[str, object]) -> dict[str, object]:
    """Filters look at all headers. The page shows the first, and says how many there are more."""
    headers = record["headers"]
    assert isinstance(headers, list)
    if len(headers) <= MAX_HEADERS_SHOWN:
        return record
    return record | {"headers": headers[:MAX_HEADERS_SHOWN], "more_headers": len(headers) - MAX_HEADERS_SHOWN}


def _matches(record: Mapping[str, object], query: Query) -> bool:
    if query.is_filtered and ("marker" in record or "error" in record):
        return False
    if query.key and query.key not in text_of(record["key"]):
        return False
    if query.value and query.value not in text_of(record["value"]):
        return False
    headers = record["headers"]
    assert isinstance(headers, list)
    if query.header and not any(query.header in f"{name}={text_of(value)}" for name, value in headers):
        return False
    if query.path:
        path, _, wanted = query.path.partition("=")
        found = at_path(text_of(record["value"]), path)
        return found is not None and (not wanted or str(found) == wanted)
    return True


async def tail(cluster: Cluster, query: Query, decoding: Decoding = AS_IT_IS) -> AsyncIterator[list[dict[str, object]]]:
    """New records as they arrive, until the caller stops."""
    bounds = await offsets_of(cluster, query.topic)
    cursor: Mapping[int, int] = {number: each["high_watermark"] for number, each in bounds.items()}
    while True:
        page = await read_page(cluster, query, cursor, decoding)
        cursor = {number: max(offset, cursor.get(number, 0)) for number, offset in page.next_offsets.items()}
        yield page.records
        await asyncio.sleep(TAIL_PAUSE_S if page.is_at_end else 0)


async def volume(cluster: Cluster, topic: str, from_ms: int, to_ms: int) -> list[tuple[int, int]]:
    """Records by time: the differences of offsets at the borders of each interval. No record is read."""
    metadata = await cluster.ask_topics([topic])
    led = [
        TopicPartition(topic, number)
        for number, found in metadata.topic(topic).partitions.items()
        if found.leader in metadata.brokers
    ]
    if not led or to_ms <= from_ms:
        return []
    step = max(1, (to_ms - from_ms) // BUCKETS)
    borders = [*(from_ms + index * step for index in range(BUCKETS)), to_ms]
    ends = await list_offsets(cluster, dict.fromkeys(led, END), timeout_s=5.0)
    answers = await asyncio.gather(
        *(list_offsets(cluster, dict.fromkeys(led, border), timeout_s=5.0) for border in borders)
    )
    counts = [
        sum(each.offset if each.offset >= 0 else ends[where].offset for where, each in found.items())
        for found in answers
    ]
    return [
        (border, max(0, after - before)) for border, before, after in zip(borders, counts, counts[1:], strict=False)
    ]
