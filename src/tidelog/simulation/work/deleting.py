"""Work on a topic that is deleted and recreated with the same name while it is written."""

import asyncio
from collections.abc import Callable, Iterable, Iterator

from tidelog.client.consumer.consumer import BEGINNING, Consumer
from tidelog.client.consumer.offsets import END, list_offsets
from tidelog.client.producer.producer import Producer, ProducerSettings
from tidelog.errors import KafkaError, TopicAlreadyExists, UnknownTopicOrPartition
from tidelog.simulation.clients import ClientErrors
from tidelog.simulation.work.base import ADMIN_TIMEOUT_S, MIN_IN_SYNC, REPLICAS, RETRY_S, Work, WorkContext, together
from tidelog.types import TopicPartition, Uuid

NAME = "seasonal"
PARTITIONS = 2
WRITERS = 2
MAX_LIFE_MS = 10_000
MAX_PAUSE_MS = 100
TIMEOUT_S = 3.0


class Generations:
    """Assignment of records to the successive topics of one name.

    A record sent after a topic was created and acknowledged before its deletion was requested is in that topic and in
    no later one. Nothing is known about other records.
    """

    def __init__(self) -> None:
        self.current: int | None = None
        self._last = 0
        self._sent: dict[bytes, int | None] = {}
        self._held: dict[int, list[bytes]] = {}

    def on_created(self) -> None:
        self._last += 1
        self.current = self._last
        self._held[self._last] = []

    def on_deleting(self) -> None:
        self.current = None

    def on_sent(self, value: bytes) -> None:
        self._sent[value] = self.current

    def on_acknowledged(self, value: bytes) -> None:
        if self.current is not None and self._sent[value] == self.current:
            self._held[self.current].append(value)

    def judge(self, found: Iterable[bytes]) -> Iterator[str]:
        """`found`: values in the current topic."""
        held = list(found)
        values = set(held)
        if len(held) != len(values):
            yield f"duplicate {NAME} holds {len(held)} records, and {len(values)} values"
        for value in held:
            if value not in self._sent:
                yield f"phantom {NAME} holds {value!r}, which nobody wrote"
        for generation, acknowledged in self._held.items():
            for value in acknowledged:
                if generation == self.current and value not in values:
                    yield f"lost-write {NAME} lacks {value!r}, which generation {generation} acknowledged"
                elif generation != self.current and value in values:
                    yield f"resurrected {NAME} holds {value!r}, of the topic of generation {generation}"


class RecreatedTopic(Work):
    name = "topic_churn"

    def __init__(self, context: WorkContext) -> None:
        super().__init__(context)
        self._admin = context.admin(self.name)
        self._clients = [context.client(f"{self.name}-{number}") for number in range(WRITERS)]
        self._reader = context.client(f"{self.name}-reader")
        self._topic_id: Uuid | None = None
        self._generations = Generations()
        self._sent = 0
        self._stage = "begins"

    async def run(self, is_over: Callable[[], bool]) -> None:
        await together([self._recreate(is_over), *(self._write(number, is_over) for number in range(WRITERS))])

    # ---- topic

    async def _recreate(self, is_over: Callable[[], bool]) -> None:
        while True:
            await self.until_done(self._create)
            self._generations.on_created()
            await self.rest(MAX_LIFE_MS)
            if is_over():
                return
            self._generations.on_deleting()
            await self.until_done(self._delete)

    async def _create(self) -> None:
        """Create the topic and wait until its id differs from the last one."""
        self._stage = f"creates {NAME}"
        self.log_event(f"create {NAME}")
        try:
            found = await self._admin.create_topic(
                NAME,
                partitions=PARTITIONS,
                replication_factor=min(REPLICAS, len(self.context.cluster.machines)),
                settings={"min.insync.replicas": MIN_IN_SYNC},
            )
        except TopicAlreadyExists:
            found = await self._admin.describe_topic(NAME)
        if found.topic_id == self._topic_id:
            # After the loss of the store, a log that was left of the deleted topic brings it back (R44).
            await self._delete()
        while found.topic_id == self._topic_id or len(found.partitions) < PARTITIONS:
            await asyncio.sleep(RETRY_S)
            found = await self._admin.describe_topic(NAME)
        self._topic_id = found.topic_id
        self._stage = f"has created {NAME}"

    async def _delete(self) -> None:
        self._stage = f"deletes {NAME}"
        self.log_event(f"delete {NAME}")
        try:
            await self._admin.delete_topic(NAME)
        except KafkaError as error:
            if error.code != UnknownTopicOrPartition.code:  # otherwise an earlier attempt deleted it
                raise
        self._stage = f"has deleted {NAME}"

    # ---- records

    async def _write(self, number: int, is_over: Callable[[], bool]) -> None:
        settings = ProducerSettings(
            request_timeout_s=1.0,
            delivery_timeout_s=TIMEOUT_S,
            metadata_timeout_s=TIMEOUT_S,
            may_create_topics=False,
        )
        while not is_over():
            try:
                async with Producer(self._clients[number], self.context.cluster.clock, settings) as producer:
                    while not is_over():
                        await self.pace(MAX_PAUSE_MS)
                        await self._write_one(producer)
            except ClientErrors:
                await self.pause(10 * MAX_PAUSE_MS)

    async def _write_one(self, producer: Producer) -> None:
        self._sent += 1
        value = f"s{self._sent}".encode()
        self._generations.on_sent(value)
        await producer.send(NAME, value, partition=self.randomness.below(PARTITIONS))
        self._generations.on_acknowledged(value)

    # ---- at the end

    async def settle(self) -> None:
        self._stage = f"reads {NAME}"
        found = await self.until_done(self._read_all)
        self.noted += self._generations.judge(found)
        self._stage = ""

    async def _read_all(self) -> list[bytes]:
        partitions = [TopicPartition(NAME, index) for index in range(PARTITIONS)]
        missing = {
            each: found.offset
            for each, found in (await list_offsets(self._reader, dict.fromkeys(partitions, END))).items()
        }
        values: list[bytes] = []
        async with Consumer(self._reader) as consumer:
            await consumer.assign(dict.fromkeys(partitions, BEGINNING))
            while any(consumer.positions.get(each, 0) < end for each, end in missing.items()):
                values += [record.value or b"" for record in await consumer.poll(1.0)]
        return values

    def unsettled(self) -> Iterator[str]:
        if self._stage:
            yield f"I7 who recreates {NAME} still {self._stage} ({ADMIN_TIMEOUT_S} s for each attempt)"
