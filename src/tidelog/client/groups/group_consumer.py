"""Consumer in a group: `poll` reads the assigned partitions, `commit` commits offsets."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from tidelog.client.consumer.consumer import ConsumedRecord, Consumer
from tidelog.client.consumer.consumer_settings import READ_COMMITTED
from tidelog.client.consumer.fetched_records import NO_RECORDS, ConsumedRecords
from tidelog.client.consumer.offsets import list_offsets
from tidelog.client.groups.classic_member import ClassicMember
from tidelog.client.groups.consumer_member import ConsumerMember
from tidelog.client.groups.group_member import GroupConsumerSettings, Membership
from tidelog.client.groups.group_offsets import GroupMember, commit_offsets, fetch_offsets
from tidelog.client.routing.cluster import Cluster
from tidelog.client.routing.coordinators import Coordinators
from tidelog.errors import FencedMemberEpoch, IllegalGeneration, StaleMemberEpoch, UnknownMemberId
from tidelog.types import NO_OFFSET, TopicPartition

__all__ = ["GroupConsumer", "GroupConsumerSettings"]

FENCED_ERRORS = (StaleMemberEpoch, FencedMemberEpoch, UnknownMemberId, IllegalGeneration)
"""The member epoch or generation is outdated; the next heartbeat returns the current one."""
RETRY_PAUSE_S = 0.1
MAX_STALE_COMMITS = 50

OnRevoked = Callable[[frozenset[TopicPartition]], Awaitable[None]]


class GroupConsumer:
    """`async with GroupConsumer(cluster, "group", ["topic"]) as consumer`; for one task.

    The assignment changes within `poll` only, so that a caller does not lose a partition while it processes records.
    Exceptions: the session has expired, or the caller has not polled for `max_poll_interval_ms`; then commits are
    refused. `on_revoked` is the last chance to commit offsets of revoked partitions.
    """

    def __init__(
        self,
        cluster: Cluster,
        group_id: str,
        topics: Sequence[str],
        settings: GroupConsumerSettings | None = None,
        *,
        on_revoked: OnRevoked | None = None,
    ) -> None:
        self._cluster = cluster
        self._settings = settings or GroupConsumerSettings()
        self._coordinators = Coordinators(cluster)
        self._on_revoked = on_revoked
        kind = ClassicMember if self._settings.is_classic else ConsumerMember
        self._membership: Membership = kind(cluster, group_id, topics, self._settings)
        self._reader: Consumer | None = None
        self._reading: asyncio.Task[ConsumedRecords] | None = None
        self.positions: dict[TopicPartition, int] = {}
        """Next offset of each partition: after the records that `poll` returned, and after records that are never
        returned, such as transaction markers."""

    async def __aenter__(self) -> "GroupConsumer":
        await self._cluster.topics_in_use(self._membership.topics)
        self._membership.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Leave the group, so that it need not wait for the session to expire."""
        try:
            await self._stop_reading()
        finally:
            await self._membership.close()

    @property
    def member(self) -> GroupMember:
        """For `TransactionalProducer.send_offsets`."""
        return self._membership.member

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        return self._membership.owned

    # ---- reading

    async def poll(self, timeout_s: float | None = None) -> list[ConsumedRecord]:
        """The next fetched records; empty after the timeout."""
        return list(await self.poll_batch(timeout_s))

    async def poll_batch(self, timeout_s: float | None = None) -> ConsumedRecords:
        """Like `poll`; all records are of one partition."""
        with self._membership.polling():
            return await self._poll(timeout_s)

    async def _poll(self, timeout_s: float | None) -> ConsumedRecords:
        loop = asyncio.get_running_loop()
        deadline = None if timeout_s is None else loop.time() + timeout_s
        membership = self._membership
        while True:
            membership.changed.clear()
            if membership.failure is not None:
                raise membership.failure
            if membership.assigned != membership.owned:
                await self._apply_assignment(membership.assigned)
            remaining_s = None if deadline is None else max(deadline - loop.time(), 0.0)
            is_waiting = not await self._start_reading()
            records = await self._read(RETRY_PAUSE_S if is_waiting else remaining_s)
            is_over = remaining_s == 0.0 if is_waiting else remaining_s is not None
            if records or (is_over and not membership.changed.is_set()):
                return records

    async def _read(self, timeout_s: float | None) -> ConsumedRecords:
        """Wait for records or a new assignment. Records that arrive after the timeout go to the next poll."""
        reader = self._reader
        if reader is not None and self._reading is None:
            self._reading = asyncio.ensure_future(reader.poll_batch())
        changed = asyncio.ensure_future(self._membership.changed.wait())
        waiting: list[asyncio.Task[Any]] = [changed] if self._reading is None else [changed, self._reading]
        try:
            await asyncio.wait(waiting, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()
        if reader is None:
            return NO_RECORDS
        self.positions |= reader.positions
        return self._completed_records()

    def _completed_records(self) -> ConsumedRecords:
        reading = self._reading
        if reading is None or not reading.done():
            return NO_RECORDS
        self._reading = None
        return reading.result()

    async def _apply_assignment(self, assigned: frozenset[TopicPartition]) -> None:
        revoked = self._membership.owned - assigned
        if revoked and self._on_revoked is not None:
            with contextlib.suppress(*FENCED_ERRORS):
                await self._on_revoked(revoked)
        await self._stop_reading()
        self._membership.own(assigned)
        owned = self._membership.owned
        self.positions = {key: offset for key, offset in self.positions.items() if key in owned}

    async def _start_reading(self) -> bool:
        """False if the committed offsets cannot be fetched now."""
        owned = self._membership.owned
        if self._reader is None and owned:
            try:
                await self._find_positions(owned - self.positions.keys())
            except FENCED_ERRORS:
                self._membership.heartbeat_now()
                return False
            reader = Consumer(self._cluster, self._settings.reading)
            await reader.assign(self.positions)
            await reader.__aenter__()
            self._reader = reader
        return True

    async def _find_positions(self, partitions: frozenset[TopicPartition]) -> None:
        if not partitions:
            return
        reading = self._settings.reading
        committed = await fetch_offsets(
            self._coordinators,
            self.member,
            sorted(partitions),
            require_stable=reading.isolation_level == READ_COMMITTED,
            timeout_s=self._settings.timeout_s,
        )
        positions = {key: found.offset for key, found in committed.items()}
        new = {key: self._settings.start_at for key, offset in positions.items() if offset == NO_OFFSET}
        if new:
            found = await list_offsets(self._cluster, new, isolation_level=reading.isolation_level)
            positions |= {key: found[key].offset for key in new}
        self.positions |= positions

    async def _stop_reading(self) -> None:
        """Fetched records that were not returned are dropped; the next owner reads them."""
        reader, self._reader = self._reader, None
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.cancel()
        if reader is not None:
            await reader.__aexit__(None, None, None)
        if reading is not None:
            await asyncio.gather(reading, return_exceptions=True)

    # ---- committed offsets

    async def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Commit `offsets`, by default of all records that `poll` returned. Raises an error if no longer a member."""
        offsets = dict(self.positions) if offsets is None else offsets
        stale_commits = 0
        while offsets:
            try:
                await commit_offsets(self._coordinators, self.member, offsets, timeout_s=self._settings.timeout_s)
                return
            except StaleMemberEpoch:  # still a member, but with an outdated epoch
                stale_commits += 1
                if stale_commits > MAX_STALE_COMMITS:
                    raise
            self._membership.heartbeat_now()
            await asyncio.sleep(RETRY_PAUSE_S)

    async def rewind(self) -> None:
        """Go back to the committed offsets: records since then are read again."""
        await self._stop_reading()
        self.positions = {}
