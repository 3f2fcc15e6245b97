"""Work on compacted topics and topics with short retention."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import ClassVar, NamedTuple

from tidelog.client.consumer.consumer import BEGINNING, Consumer
from tidelog.client.consumer.offsets import END, list_offsets
from tidelog.client.producer.producer import Producer, ProducerSettings
from tidelog.cluster.topic_names import GROUP_TOPIC, TRANSACTION_TOPIC
from tidelog.simulation.clients import ClientErrors, Writer
from tidelog.simulation.history import Write
from tidelog.simulation.work.base import SEEDS, Work, WorkContext
from tidelog.simulation.work.requests import alter_settings
from tidelog.types import NO_OFFSET, TopicPartition

PROFILES, EVENTS = "profiles", "events"
KEYS = 12
MAX_PAUSE_MS = 150
TIMEOUT_S = 4.0
INTERNAL_TOPICS = (GROUP_TOPIC, TRANSACTION_TOPIC)
CLEANED_SOON = (
    {"segment.ms": "1500", "min.cleanable.dirty.ratio": "0.01"},
    {"max.compaction.lag.ms": "1500", "min.cleanable.dirty.ratio": "0.9"},
    {"segment.ms": "700", "min.compaction.lag.ms": "1000", "min.cleanable.dirty.ratio": "0.3"},
)
RETENTIONS = (
    {"retention_ms": "4000", "segment_ms": "1000"},
    {"retention_bytes": "4000", "segment_ms": "700"},
    {"retention_ms": "8000", "retention_bytes": "8000", "segment_ms": "1000"},
    {"retention_bytes": "900", "segment_ms": "2500"},
)


class Sent(NamedTuple):
    value: bytes | None
    offset: int
    """-1 while unknown."""


class KeyedRecords:
    """Records sent for each key of a compacted partition, and the check of what remains."""

    def __init__(self) -> None:
        self._sent: dict[tuple[TopicPartition, bytes], dict[int, Sent]] = defaultdict(dict)
        self._count = 0

    def on_sent(self, place: TopicPartition, key: bytes, value: bytes | None) -> int:
        self._count += 1
        self._sent[place, key][self._count] = Sent(value, NO_OFFSET)
        return self._count

    def on_acknowledged(self, place: TopicPartition, key: bytes, number: int, offset: int) -> None:
        self._sent[place, key][number] = self._sent[place, key][number]._replace(offset=offset)

    def judge(self, found: Mapping[TopicPartition, Iterable[tuple[int, bytes, bytes | None]]]) -> Iterator[str]:
        """`found` has offset, key and value of all remaining records, in order."""
        left = {(place, key): (offset, value) for place, held in found.items() for offset, key, value in held}
        for (place, key), sent in self._sent.items():
            yield from self._judge_key(place, key, list(sent.values()), left.get((place, key)))

    def _judge_key(
        self, place: TopicPartition, key: bytes, sent: list[Sent], last: tuple[int, bytes | None] | None
    ) -> Iterator[str]:
        newest = max((each for each in sent if each.offset != NO_OFFSET), key=lambda each: each.offset, default=None)
        unknown = [each.value for each in sent if each.offset == NO_OFFSET]
        if newest is None:
            return
        what = f"compaction {place} key {key!r}: {newest.value!r} was acknowledged last, at {newest.offset}, and"
        if last is None:
            if newest.value is not None and None not in unknown:
                yield f"{what} nothing is left"
        elif last[0] < newest.offset:
            if newest.value is not None or last[1] is not None:
                yield f"{what} {last[1]!r} at {last[0]} is the last that is left"
        elif last[0] == newest.offset:
            if last[1] != newest.value:
                yield f"{what} {last[1]!r} is there now"
        elif last[1] not in unknown:
            yield f"{what} {last[1]!r} at {last[0]} comes after it"


class Compaction(Work):
    """Compaction keeps the newest value of each key; tombstones delete; an offset never gets another record."""

    name = "compaction"
    broker_settings: ClassVar = {"log_cleaner_backoff_ms": 700}

    def __init__(self, context: WorkContext) -> None:
        super().__init__(context)
        self._client = context.client(self.name)
        self._records = KeyedRecords()
        self._sent = 0
        self._is_done = False
        self._cleaned_soon = self.one_of(CLEANED_SOON)

    async def prepare(self) -> None:
        self.history.compacted_topics.add(PROFILES)
        await self._topic()

    async def _topic(self) -> list[TopicPartition]:
        settings = {"cleanup.policy": "compact", "delete.retention.ms": "2000", **self._cleaned_soon}
        return await self.context.topic(PROFILES, 1, **settings)

    async def run(self, is_over: Callable[[], bool]) -> None:
        for topic in INTERNAL_TOPICS:
            with suppress(*ClientErrors):  # the topic may not exist yet
                await alter_settings(self._client, topic, self._cleaned_soon)
        (place,) = await self._topic()
        settings = ProducerSettings(
            request_timeout_s=1.0, delivery_timeout_s=TIMEOUT_S, metadata_timeout_s=TIMEOUT_S, may_create_topics=False
        )
        while not is_over():
            with suppress(*ClientErrors):
                async with Producer(self._client, self.context.cluster.clock, settings) as producer:
                    while not is_over():
                        await self._write(producer, place)
                        await self.pace(MAX_PAUSE_MS)

    async def _write(self, producer: Producer, place: TopicPartition) -> None:
        """Write one record at a time, so that a later record of a key has a later offset."""
        self._sent += 1
        key = f"k{self.randomness.below(KEYS)}".encode()
        value = None if self.is_one_in(6) else f"c{self._sent}".encode()
        number = self._records.on_sent(place, key, value)
        write = None
        if value is None:
            self.history.on_tombstone(place, key)
        else:
            write = self.history.begin(Write(place, value, self.name, key=key))
        acknowledgement = await producer.send(place.topic, value, key=key, partition=place.partition)
        self._records.on_acknowledged(place, key, number, acknowledgement.offset)
        if write is not None:
            self.history.acknowledge(write, acknowledgement.offset)

    async def settle(self) -> None:
        found = await self.until_done(self._read_all)
        self.noted += self._records.judge(found)
        self._is_done = True

    async def _read_all(self) -> dict[TopicPartition, list[tuple[int, bytes, bytes | None]]]:
        (place,) = await self._topic()
        end_offset = (await list_offsets(self._client, {place: END}))[place].offset
        held: list[tuple[int, bytes, bytes | None]] = []
        async with Consumer(self._client) as consumer:
            await consumer.assign({place: BEGINNING})
            while consumer.positions.get(place, 0) < end_offset:
                held += [(each.offset, each.key or b"", each.value) for each in await consumer.poll(1.0)]
        return {place: held}

    def unsettled(self) -> Iterator[str]:
        if not self._is_done:
            yield f"I7 {PROFILES} is not read to its end"


class Retention(Work):
    """Old segments are deleted by age or size; records above the log start offset stay."""

    name = "retention"
    broker_settings: ClassVar = {"log_retention_check_interval_ms": 1000}

    def __init__(self, context: WorkContext) -> None:
        super().__init__(context)
        self._writer = Writer(
            context.cluster,
            context.history,
            "e",
            self.randomness.below(SEEDS),
            longest_pause_ms=context.longest_pause_ms,
        )
        self._is_done = False
        self._settings = self.one_of(RETENTIONS)

    async def prepare(self) -> None:
        await self._topic()

    async def _topic(self) -> list[TopicPartition]:
        return await self.context.topic(EVENTS, 1, **self._settings)

    async def run(self, is_over: Callable[[], bool]) -> None:
        await self._writer.run(await self._topic(), is_over)
        self._is_done = True

    def unsettled(self) -> Iterator[str]:
        if not self._is_done:
            yield f"I7 the writer of {EVENTS} still waits"

    def violations(self) -> Iterator[str]:
        yield from self._writer.failures
