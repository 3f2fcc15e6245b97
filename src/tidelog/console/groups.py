"""Groups as the page shows them: members, lag in records and in seconds, its trend, and offsets to reset."""

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from tidelog.client.admin.group_admin import GroupAdmin, GroupSummary
from tidelog.client.admin.offset_reset import parse_target, reset_offsets
from tidelog.client.consumer.offsets import END, list_offsets
from tidelog.client.consumer.range_reader import RangeReader, RangeSettings
from tidelog.client.routing.cluster import Cluster
from tidelog.console.group_batches import GroupBatches
from tidelog.console.observer import CLIENT_ERRORS, now_ms
from tidelog.console.samples import Samples
from tidelog.errors import UnknownMemberId
from tidelog.protocol.record_batch import read_header
from tidelog.types import BrokerId, TopicPartition

MAX_AT_ONCE = 50
TIMEOUT_S = 5.0
HEADER_FETCH_BYTES = 4096
MIN_APART_MS = 4_000


class Groups:
    def __init__(self, cluster: Cluster, samples: Samples) -> None:
        self._cluster = cluster
        self._samples = samples
        self._admin = GroupAdmin(cluster, timeout_s=TIMEOUT_S)
        self._batches = GroupBatches(cluster, timeout_s=TIMEOUT_S)
        self._known: dict[str, GroupSummary] = {}
        """Groups as last listed, with their coordinators."""
        self._turns: dict[str, None] = {}
        """Queue of groups whose lag is sampled, the one sampled least recently first."""

    async def list_groups(self) -> list[dict[str, object]]:
        return [
            {"id": found.group_id, "kind": found.kind.lower(), "state": found.state, "coordinator": found.coordinator}
            for found in await self._listed()
        ]

    async def _listed(self) -> list[GroupSummary]:
        groups = await self._admin.list_groups()
        self._known = {each.group_id: each for each in groups}
        return groups

    async def lags(self, group_ids: Sequence[str]) -> dict[str, dict[str, object]]:
        """Lag of the groups that the page shows at the moment. Those of which a broker does not answer are missing.

        The number of requests depends on the number of brokers, not of groups.
        """
        chosen = group_ids[:MAX_AT_ONCE]
        if not all(each in self._known for each in chosen):
            await self._listed()
        committed = await self._batches.offsets([self._known[each] for each in chosen if each in self._known])
        ends, unknown = await self._ends_by_leader({where for offsets in committed.values() for where in offsets})
        return {
            group_id: self._lag(group_id, offsets, ends)
            for group_id, offsets in committed.items()
            if unknown.isdisjoint(offsets)
        }

    def _lag(
        self, group_id: str, committed: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> dict[str, object]:
        if not committed:
            return {"lag": None, "trend": None}
        lag = sum(max(0, ends[where] - offset) for where, offset in committed.items() if where in ends)
        self._note(group_id, lag)
        return {"lag": lag, "trend": self._samples.trend(f"lag/{group_id}")}

    def _note(self, group_id: str, lag: int) -> None:
        """For the trend and the chart. Pages and the observer ask for the same lag: one sample in a while is enough."""
        name, now = f"lag/{group_id}", now_ms()
        newest = self._samples.newest_ms(name)
        if newest is None or now - newest >= MIN_APART_MS:
            self._samples.add(now, {name: float(lag)})

    async def sample_lags(self, groups: Sequence[GroupSummary]) -> float | None:
        """Lags of the groups whose turn it is, so that a page finds their trend. Returns the newest lag of all groups.

        None if the lag of no group is known.
        """
        self._known = {each.group_id: each for each in groups}
        self._turns = {name: None for name in self._turns if name in self._known}
        self._turns |= dict.fromkeys(sorted(self._known.keys() - self._turns.keys()))
        chosen = list(self._turns)[:MAX_AT_ONCE]
        for name in chosen:  # to the end of the queue
            self._turns[name] = self._turns.pop(name)
        await self.lags(chosen)
        found = [lag for name in self._known if (lag := self._samples.newest(f"lag/{name}")) is not None]
        return sum(found) if found else None

    async def describe(self, group_id: str) -> dict[str, object]:
        found = await self._admin.describe(group_id)
        committed = await self._committed(group_id)
        owners = {where: member for member in found.members for where in member.partitions}
        keys = sorted({*committed, *owners})
        ends = await self._ends(keys)
        behind = {where: offset for where, offset in committed.items() if offset < ends.get(where, 0)}
        seconds = await self._lag_seconds(behind)
        # A group that has committed nothing has no lag, which is not the same as a lag of 0.
        total = sum(ends[where] - offset for where, offset in behind.items()) if committed else None
        if total is not None:
            self._note(group_id, total)
        return {
            "id": group_id,
            "kind": found.kind,
            "state": found.state,
            "assignor": found.assignor,
            "lag": total,
            "trend": self._samples.trend(f"lag/{group_id}"),
            "history": self._samples.get(f"lag/{group_id}"),
            "members": [
                {
                    "id": member.member_id,
                    "instance": member.instance_id,
                    "client": member.client_id,
                    "host": member.host.removeprefix("/"),
                    "partitions": len(member.partitions),
                }
                for member in found.members
            ],
            "partitions": [
                {
                    "topic": where.topic,
                    "partition": where.partition,
                    "committed": committed.get(where),
                    "end": ends.get(where),
                    "lag": max(0, ends[where] - committed[where]) if where in ends and where in committed else None,
                    "seconds": seconds.get(where, 0.0 if where in committed and where not in behind else None),
                    "member": owners[where].instance_id or owners[where].member_id if where in owners else None,
                }
                for where in keys
            ],
        }

    async def preview(self, group_id: str, target: str, topics: Sequence[str]) -> list[dict[str, object]]:
        """What a reset would change. Raises ValueError if the target cannot be read."""
        wanted = parse_target(target)
        committed = await self._committed(group_id)
        chosen = [where for where in sorted(committed) if not topics or where.topic in topics]
        new = await reset_offsets(self._cluster, chosen, committed, wanted, timeout_s=TIMEOUT_S)
        return [
            {"topic": where.topic, "partition": where.partition, "committed": committed[where], "new": new[where]}
            for where in chosen
        ]

    async def reset(self, group_id: str, target: str, topics: Sequence[str]) -> list[dict[str, object]]:
        rows = await self.preview(group_id, target, topics)
        offsets = {TopicPartition(str(row["topic"]), int(str(row["partition"]))): int(str(row["new"])) for row in rows}
        try:
            await self._admin.commit(group_id, offsets)
        except UnknownMemberId:
            raise ValueError(f"group {group_id} has members: stop its consumers first") from None
        return rows

    async def _committed(self, group_id: str) -> dict[TopicPartition, int]:
        found = await self._admin.offsets(group_id)
        return {where: each.offset for where, each in found.items() if each.offset >= 0}

    async def _ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        led = [where for found in (await self._by_leader(partitions)).values() for where in found]
        return await self._ends_of_led(led)

    async def _ends_of_led(self, led: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        if not led:
            return {}
        found = await list_offsets(self._cluster, dict.fromkeys(led, END), timeout_s=TIMEOUT_S)
        return {where: each.offset for where, each in found.items()}

    async def _ends_by_leader(
        self, partitions: Iterable[TopicPartition]
    ) -> tuple[dict[TopicPartition, int], set[TopicPartition]]:
        """The ends, and the partitions whose leader does not answer, which those of other leaders do not wait for."""
        led = await self._by_leader(partitions)
        answers = await asyncio.gather(*map(self._ends_of_led, led.values()), return_exceptions=True)
        ends: dict[TopicPartition, int] = {}
        unknown: set[TopicPartition] = set()
        for found, answer in zip(led.values(), answers, strict=True):
            if isinstance(answer, CLIENT_ERRORS):
                unknown.update(found)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                ends |= answer
        return ends, unknown

    async def _by_leader(self, partitions: Iterable[TopicPartition]) -> dict[BrokerId, list[TopicPartition]]:
        """Partitions that exist and have a leader."""
        partitions = list(partitions)
        if not partitions:
            return {}
        metadata = await self._cluster.ask_topics({topic for topic, _ in partitions})
        led: dict[BrokerId, list[TopicPartition]] = {}
        for where in partitions:
            topic = metadata.topics.get(where.topic)
            found = None if topic is None else topic.partitions.get(where.partition)
            if found is not None and found.leader in metadata.brokers:
                led.setdefault(found.leader, []).append(where)
        return led

    async def _lag_seconds(self, behind: Mapping[TopicPartition, int]) -> dict[TopicPartition, float]:
        """How old the first record is that was not processed yet: only the head of its batch is read."""
        chosen = list(behind)[:MAX_AT_ONCE]
        found = await asyncio.gather(*(self._first_timestamp(where, behind[where]) for where in chosen))
        now = time.time()
        return {
            where: max(0.0, now - timestamp / 1000)
            for where, timestamp in zip(chosen, found, strict=True)
            if timestamp is not None
        }

    async def _first_timestamp(self, where: TopicPartition, offset: int) -> int | None:
        settings = RangeSettings(max_bytes=HEADER_FETCH_BYTES, max_wait_ms=100, timeout_s=TIMEOUT_S)
        with suppress(*CLIENT_ERRORS):
            async with RangeReader(self._cluster, where, offset, offset + 1, settings) as reader:
                async for fetched in reader:
                    return read_header(fetched.records).max_timestamp
        return None
