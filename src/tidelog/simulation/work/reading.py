"""Work of consumers that seek: to the beginning, to an offset or to a time, at both isolation levels."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence

from tidelog.client.consumer.consumer import BEGINNING, AtTime, Consumer, ConsumerSettings
from tidelog.client.consumer.consumer_settings import READ_COMMITTED, READ_UNCOMMITTED
from tidelog.client.consumer.offsets import END, list_offsets
from tidelog.errors import OffsetOutOfRange
from tidelog.simulation.clients import ClientErrors
from tidelog.simulation.history import ConsumerHistory
from tidelog.simulation.work.base import Work, WorkContext, together
from tidelog.simulation.work.writing import orders
from tidelog.types import NO_OFFSET, TopicPartition

READERS = 2
POLL_S = 0.5
MAX_READ_MS = 15_000
MAX_LOOK_BACK_MS = 20_000
READ_BYTES = (500, 1 << 20)


class RewindingReads(Work):
    """Each session of a consumer starts at another position and must get every record from there on, in order."""

    name = "rewinding_reads"

    def __init__(self, context: WorkContext) -> None:
        super().__init__(context)
        self._clients = [context.client(f"reader-{number}") for number in range(READERS)]
        self._sessions = 0

    async def prepare(self) -> None:
        await orders(self.context)

    async def run(self, is_over: Callable[[], bool]) -> None:
        await together(self._read_repeatedly(number, is_over) for number in range(READERS))

    async def _read_repeatedly(self, number: int, is_over: Callable[[], bool]) -> None:
        while not is_over():
            topic = self.one_of(sorted(self.context.partitions))
            partitions = list(self.context.partitions[topic])
            end = self.context.now + self.randomness.below(self.within_run_ms(MAX_READ_MS)) / 1000
            if partitions:
                await self._session(number, partitions, lambda end=end: is_over() or self.context.now > end)  # type: ignore[misc]
            else:
                await asyncio.sleep(POLL_S)

    async def _session(self, number: int, partitions: Sequence[TopicPartition], is_over: Callable[[], bool]) -> None:
        self._sessions += 1
        is_read_committed = self.is_one_in(2)
        seen = self.history.consumer(f"reader-{number}-{self._sessions}", is_read_committed=is_read_committed)
        settings = ConsumerSettings(
            isolation_level=READ_COMMITTED if is_read_committed else READ_UNCOMMITTED,
            partition_max_bytes=self.one_of(READ_BYTES),
        )
        try:
            async with Consumer(self._clients[number], settings) as consumer:
                await self._read(consumer, partitions, seen, is_over)
        except* OffsetOutOfRange:
            self._check_range(seen)
        except* ClientErrors:
            await asyncio.sleep(1)

    async def _read(
        self,
        consumer: Consumer,
        partitions: Sequence[TopicPartition],
        seen: ConsumerHistory,
        is_over: Callable[[], bool],
    ) -> None:
        starts = {each: self._start(each) for each in partitions}
        seen.on_assigned(await consumer.assign(starts | await self._look_up(consumer, starts, seen.name)))
        while not is_over():
            records = await consumer.poll(POLL_S)
            seen.on_poll((TopicPartition(each.topic, each.partition), each.offset, each.value) for each in records)

    async def _look_up(
        self, consumer: Consumer, starts: Mapping[TopicPartition, int | AtTime], name: str
    ) -> dict[TopicPartition, int]:
        """Offsets by time: the record at the offset is not older. The beginning if all records are older."""
        times = {each: start.timestamp_ms for each, start in starts.items() if isinstance(start, AtTime)}
        if not times:
            return {}
        found = await list_offsets(consumer._cluster, times, isolation_level=consumer.settings.isolation_level)
        for each, response in found.items():
            if response.offset != NO_OFFSET and response.timestamp_ms < times[each]:
                self.noted.append(f"early-offset {name} asked {each} for time {times[each]} and got {response}")
        return {each: BEGINNING if it.offset == NO_OFFSET else it.offset for each, it in found.items()}

    def _start(self, topic_partition: TopicPartition) -> int | AtTime:
        end_offset = self.history.ends.get(topic_partition, 0)
        match self.randomness.below(4):
            case 0:
                return AtTime(self.context.cluster.clock.now_ms() - self.randomness.below(MAX_LOOK_BACK_MS))
            case 1 if end_offset > self.history.log_starts[topic_partition]:
                first = self.history.log_starts[topic_partition]
                return first + self.randomness.below(end_offset - first)
            case _:
                return BEGINNING

    def _check_range(self, seen: ConsumerHistory) -> None:
        """A position may be out of range only if records were deleted or lost in an unclean election."""
        for topic_partition, position in seen.positions.items():
            if topic_partition.topic in self.history.lossy_topics:
                return
            if position is None or position < self.history.log_starts[topic_partition]:
                return
        self.noted.append(f"lost-position {seen.name} got OffsetOutOfRange for one of {seen.positions}")


class FinalReads(Work):
    """At the end everything is read again from beginning to end, at both isolation levels."""

    name = "final_reads"

    def __init__(self, context: WorkContext) -> None:
        super().__init__(context)
        self._client = context.client(self.name)
        self._missing: dict[TopicPartition, int] = {}
        self._is_done = False

    async def run(self, is_over: Callable[[], bool]) -> None:
        """Nothing to do during the run."""

    async def settle(self) -> None:
        for is_read_committed in (False, True):
            await self.until_done(lambda to=is_read_committed: self._read_all(is_read_committed=to))  # type: ignore[misc]
        self._is_done = True

    async def _read_all(self, *, is_read_committed: bool) -> None:
        partitions = [each for topic in sorted(self.context.partitions) for each in self.context.partitions[topic]]
        if not partitions:
            return
        level = READ_COMMITTED if is_read_committed else READ_UNCOMMITTED
        # Sorted, so that the order does not depend on string hashes.
        await self._client.topics_in_use(sorted(self.context.partitions))
        # read_committed consumers, too, read to the end of the log: abandoned transactions end by their timeout (T3).
        ends = await list_offsets(self._client, dict.fromkeys(partitions, END))
        name = f"final-{'committed' if is_read_committed else 'uncommitted'}"
        seen = self.history.consumer(name, is_read_committed=is_read_committed)
        settings = ConsumerSettings(isolation_level=level, reset_to=BEGINNING)
        async with Consumer(self._client, settings) as consumer:
            seen.on_assigned(await consumer.assign(dict.fromkeys(partitions, BEGINNING)))
            self._missing = {each: found.offset for each, found in ends.items()}
            while self._missing:
                records = await consumer.poll(POLL_S)
                seen.on_poll((TopicPartition(each.topic, each.partition), each.offset, each.value) for each in records)
                self._missing = {
                    each: end for each, end in self._missing.items() if consumer.positions.get(each, 0) < end
                }

    def unsettled(self) -> Iterator[str]:
        if not self._is_done:
            yield f"I7 the final reader has not read up to {self._missing}"
