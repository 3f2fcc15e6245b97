"""Consumer of `tidelog consume --group`: commits the offsets of printed records every few seconds."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType

from tidelog.client.consumer.consumer import ConsumedRecord, ConsumerSettings
from tidelog.client.consumer.offsets import BEGINNING, END
from tidelog.client.groups.group_consumer import FENCED_ERRORS, GroupConsumer, GroupConsumerSettings
from tidelog.client.routing.cluster import Cluster
from tidelog.types import TopicPartition

COMMIT_EVERY_S = 5.0


class CommittingConsumer:
    """Same interface as Consumer. Call `done` with the records that were printed: only those are committed."""

    def __init__(
        self,
        cluster: Cluster,
        group_id: str,
        topics: Sequence[str],
        *,
        from_beginning: bool,
        isolation_level: int,
        instance_id: str | None,
    ) -> None:
        start_at = BEGINNING if from_beginning else END
        reading = ConsumerSettings(isolation_level, reset_to=start_at)
        settings = GroupConsumerSettings(instance_id=instance_id, start_at=start_at, reading=reading)
        self._consumer = GroupConsumer(cluster, group_id, topics, settings, on_revoked=self._on_revoked)
        self._unprinted: list[ConsumedRecord] = []
        self._committed: dict[TopicPartition, int] = {}
        self._commit_at = 0.0

    async def __aenter__(self) -> "CommittingConsumer":
        await self._consumer.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self._commit()
        finally:
            await self._consumer.__aexit__(kind, error, traceback)

    def done(self, records: Sequence[ConsumedRecord]) -> None:
        del self._unprinted[: len(records)]

    async def poll(self, timeout_s: float | None = None) -> list[ConsumedRecord]:
        now = asyncio.get_running_loop().time
        deadline = None if timeout_s is None else now() + timeout_s
        while True:
            remaining_s = COMMIT_EVERY_S if deadline is None else min(deadline - now(), COMMIT_EVERY_S)
            records = await self._consumer.poll(max(remaining_s, 0.0))
            self._unprinted += records
            if now() >= self._commit_at:
                await self._commit()
            if records or (deadline is not None and remaining_s < COMMIT_EVERY_S):
                return records

    async def _on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        await self._commit()
        self._committed = {key: offset for key, offset in self._committed.items() if key not in partitions}

    async def _commit(self) -> None:
        """A member that was removed cannot commit: the group reads its records again from the last committed offset."""
        self._commit_at = asyncio.get_running_loop().time() + COMMIT_EVERY_S
        reached = self._printed_offsets()
        with suppress(*FENCED_ERRORS):
            await self._consumer.commit({key: at for key, at in reached.items() if self._committed.get(key) != at})
            self._committed = reached

    def _printed_offsets(self) -> dict[TopicPartition, int]:
        first_unprinted = {TopicPartition(each.topic, each.partition): each.offset for each in self._unprinted[::-1]}
        return {key: first_unprinted.get(key, at) for key, at in self._consumer.positions.items()}
