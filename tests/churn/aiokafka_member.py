"""aiokafka as a member of a group."""

import asyncio
import time
from collections.abc import Iterable
from threading import Event
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import KafkaError

from tests.churn.journal import Ledger
from tests.churn.membership import (
    COMMIT_INTERVAL_S,
    FETCH_WAIT_MS,
    FORGOTTEN_CODES,
    HEARTBEAT_MS,
    POLL_MS,
    SESSION_MS,
    Options,
    Protocol,
)


class AiokafkaMember(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, options: Options, ledger: Ledger) -> None:
        assert options.protocol is Protocol.EAGER, "the only one that it has"
        self._topic = options.topic
        self._ledger = ledger
        self._consumer = AIOKafkaConsumer(**_settings(options))
        self._consumer.subscribe([options.topic], listener=self)

    async def start(self) -> None:
        await self._consumer.start()

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self._ledger.assigned(_numbers(assigned), self._consumer._coordinator.generation)

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        is_known = await self.commit()
        self._ledger.given_up(_numbers(revoked), is_lost=not is_known)

    async def poll(self) -> None:
        for place, records in (await self._consumer.getmany(timeout_ms=POLL_MS)).items():
            self._ledger.processed(place.partition, {record.offset: record.value for record in records})

    async def commit(self) -> bool:
        """Whether the coordinator still knows this member, as far as one can tell."""
        offsets = self._ledger.uncommitted()
        if not offsets:
            return True
        self._ledger.committing(offsets)
        try:
            await self._consumer.commit(
                {TopicPartition(self._topic, partition): offset for partition, offset in offsets.items()}
            )
        except KafkaError as error:
            self._ledger.rejected(offsets, repr(error))
            return getattr(error, "errno", None) not in FORGOTTEN_CODES and type(error).__name__ != "CommitFailedError"
        self._ledger.committed(offsets)
        return True

    async def close(self) -> None:
        await self.commit()
        await self._consumer.stop()


def run(options: Options, ledger: Ledger, ended: Event) -> None:
    asyncio.run(_run(options, ledger, ended))


async def _run(options: Options, ledger: Ledger, ended: Event) -> None:
    member = AiokafkaMember(options, ledger)
    await member.start()
    due_s = 0.0
    while not ended.is_set():
        await member.poll()
        if time.monotonic() >= due_s:
            await member.commit()
            due_s = time.monotonic() + COMMIT_INTERVAL_S
    await member.close()


def _numbers(places: Iterable[TopicPartition]) -> list[int]:
    return [place.partition for place in places]


def _settings(options: Options) -> dict[str, Any]:
    return {
        "bootstrap_servers": options.bootstrap,
        "group_id": options.group,
        "group_instance_id": options.instance_id,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "fetch_max_wait_ms": FETCH_WAIT_MS,
        "heartbeat_interval_ms": HEARTBEAT_MS,
        "session_timeout_ms": SESSION_MS,
        "partition_assignment_strategy": [RangePartitionAssignor],
    }
