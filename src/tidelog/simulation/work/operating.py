"""Administrative work on topics in use: partitions, settings, DeleteRecords, elections."""

from collections.abc import Callable, Sequence
from contextlib import suppress

from tidelog.protocol.messages.elect_leaders import PREFERRED, UNCLEAN
from tidelog.simulation.clients import ClientErrors
from tidelog.simulation.work.base import Work
from tidelog.simulation.work.requests import (
    BROKER,
    CLUSTER_WIDE,
    add_partitions,
    alter_settings,
    delete_records,
    elect_leaders,
)
from tidelog.simulation.work.writing import ORDERS, ImpatientWrites, WorkOnOrders, orders
from tidelog.types import TopicPartition

MAX_PAUSE_MS = 6000
MAX_PARTITIONS = 5
LOSSY = "lossy"

Choices = Sequence[tuple[str, Sequence[str | None]]]


class AddedPartitions(Work):
    """Partitions are added while a topic is written and read."""

    name = "partition_growth"

    async def prepare(self) -> None:
        await orders(self.context)

    async def run(self, is_over: Callable[[], bool]) -> None:
        client, partitions = self.context.client(self.name), await orders(self.context)
        while not is_over() and len(partitions) < MAX_PARTITIONS:
            await self.rest(4 * MAX_PAUSE_MS)
            count = len(partitions) + 1
            with suppress(*ClientErrors):
                self.log_event(f"{ORDERS} is to have {count} partitions")
                await add_partitions(client, ORDERS, count)
                await self.context.admin(self.name).describe_topic(ORDERS)
                partitions.append(TopicPartition(ORDERS, count - 1))


class ChangedSettings(WorkOnOrders):
    """Settings of a topic in use change without loss of records; at the end they are reset."""

    name = "settings_changes"
    choices: Choices = (
        ("min.insync.replicas", ("2", "3")),
        ("segment.ms", ("500", "3000", None)),
        ("segment.bytes", ("1048576", None)),
        ("segment.index.bytes", ("24", "200", None)),
        ("segment.jitter.ms", ("400", None)),
        ("index.interval.bytes", ("0", "4096", None)),
        ("file.delete.delay.ms", ("0", None)),
        ("compression.type", ("gzip", "uncompressed", "producer", None)),
        # Not below the batches of writers: the broker would not recognise a batch split on retry as a duplicate.
        ("max.message.bytes", ("500000", None)),
        ("flush.messages", ("1", None)),
        ("retention.ms", ("86400000", None)),
        ("message.timestamp.type", ("LogAppendTime", None)),
    )
    broker_choices: Choices = (
        ("log.cleaner.min.cleanable.ratio", ("0.1", None)),
        ("log.retention.ms", ("86400000", None)),
        ("compression.type", ("gzip", None)),
    )

    async def run(self, is_over: Callable[[], bool]) -> None:
        while not is_over():
            await self.rest(MAX_PAUSE_MS)
            with suppress(*ClientErrors):
                if self.is_one_in(4):
                    name, values = self.one_of(self.broker_choices)
                    await self._set_for_all(name, self.one_of(values))
                else:
                    name, values = self.one_of(self.choices)
                    await self._set(name, self.one_of(values))

    async def _set(self, name: str, value: str | None) -> None:
        self.log_event(f"{ORDERS} {name}={value}")
        await alter_settings(self._client, ORDERS, {name: value})

    async def _set_for_all(self, name: str, value: str | None) -> None:
        self.log_event(f"all brokers {name}={value}")
        await alter_settings(self._client, CLUSTER_WIDE, {name: value}, resource=BROKER)

    async def settle(self) -> None:
        await self.until_done(lambda: self._set("min.insync.replicas", "2"))


class DeletedRecords(WorkOnOrders):
    """DeleteRecords up to any acknowledged offset: records at or above it stay."""

    name = "delete_records"

    async def run(self, is_over: Callable[[], bool]) -> None:
        partitions = await orders(self.context)
        while not is_over():
            await self.rest(MAX_PAUSE_MS)
            target = self.one_of(partitions)
            end_offset = self.history.ends[target]
            if end_offset:
                await self._delete(target, self.randomness.below(end_offset))

    async def _delete(self, target: TopicPartition, offset: int) -> None:
        self.log_event(f"delete {target} before {offset}")
        try:
            low_watermark = (await delete_records(self._client, {target: offset}))[target]
        except ClientErrors:
            return
        if low_watermark < offset:
            self.noted.append(f"delete-records {target} was deleted before {offset}, and begins at {low_watermark}")


class PreferredElections(Work):
    name = "elections"

    async def run(self, is_over: Callable[[], bool]) -> None:
        client = self.context.client(self.name)
        while not is_over():
            await self.rest(MAX_PAUSE_MS)
            with suppress(*ClientErrors):
                self.log_event("elect preferred leaders")
                await elect_leaders(client, PREFERRED, None)


class UncleanElections(ImpatientWrites):
    """A topic that may lose acknowledged records: replicas still agree, and no unknown record appears."""

    name = "unclean_elections"
    value_prefix = "u"

    async def prepare(self) -> None:
        self.history.lossy_topics.add(LOSSY)
        await self._topic()

    async def _topic(self) -> list[TopicPartition]:
        settings = {"unclean_leader_election_enable": "true", "min_insync_replicas": "1"}
        return await self.context.topic(LOSSY, 1, **settings)

    async def run(self, is_over: Callable[[], bool]) -> None:
        partitions = await self._topic()
        while not is_over():
            with suppress(*ClientErrors):
                await self._session(partitions, is_over)
            await self.rest(MAX_PAUSE_MS)
            with suppress(*ClientErrors):
                self.log_event("elect any leader")
                await elect_leaders(self._client, UNCLEAN, partitions)
