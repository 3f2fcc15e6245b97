"""Observer: polls the cluster, keeps its newest snapshot, timeline and samples, and notifies every open page.

It works only as often as its cost allows (MAX_SHARE of a core), and rarely while no page is open.
"""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress

from tidelog.client.admin.group_admin import GroupAdmin, GroupSummary
from tidelog.client.consumer.offsets import END, list_offsets
from tidelog.client.network.in_flight import ConnectionLost
from tidelog.client.network.retries import GaveUp, reason_of
from tidelog.client.routing.cluster import Cluster
from tidelog.console.broker_latencies import BrokerLatencies
from tidelog.console.broker_metrics import BrokerMetrics
from tidelog.console.group_batches import GroupBatches
from tidelog.console.group_events import GroupWatch
from tidelog.console.round_trips import round_trips_s
from tidelog.console.samples import INTERVAL_S, Latencies, Rates, Samples
from tidelog.console.snapshot import Snapshot, as_json, difference, snapshot_of
from tidelog.console.timeline import Kind, Timeline
from tidelog.errors import KafkaError
from tidelog.types import BrokerId

logger = logging.getLogger(__name__)

WATCHED_INTERVAL_S = 0.4
UNWATCHED_INTERVAL_S = 5.0
MAX_SHARE = 0.04
MAX_QUEUED = 200
"""Messages for a page that does not read. Above it the page is disconnected; it then connects again."""
KEEP_ALIVE_S = 15.0
SETTLING_LOOKS = 4
"""Looks without a long pause after brokers came or went: elections follow."""
GROUPS_TIMEOUT_S = 3.0

CLIENT_ERRORS = (KafkaError, ConnectionLost, GaveUp, TimeoutError)


class Observer:
    def __init__(self, cluster: Cluster, metrics: BrokerMetrics) -> None:
        self.cluster = cluster
        self.snapshot = Snapshot()
        self.timeline = Timeline()
        self.samples = Samples()
        self.error: str | None = None
        """Why the cluster does not answer; None if it does."""
        self._metrics = metrics
        self._rates = Rates()
        self._round_trips = Latencies()
        self._latencies = BrokerLatencies()
        self._groups = GroupWatch()
        self._group_admin = GroupAdmin(cluster, timeout_s=GROUPS_TIMEOUT_S)
        self._group_batches = GroupBatches(cluster, timeout_s=GROUPS_TIMEOUT_S)
        self._pages: set[asyncio.Queue[bytes | None]] = set()
        self._page_opened = asyncio.Event()
        self._settling = 0
        self.sample_lags: Callable[[Sequence[GroupSummary]], Awaitable[float | None]] | None = None
        """Samples lags of some groups, and returns the lag of all."""

    # ---- polling

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._repeat(self.poll, WATCHED_INTERVAL_S, self.has_other_brokers))
            tasks.create_task(self._repeat(self.sample, INTERVAL_S))

    async def _repeat(
        self,
        step: Callable[[], Awaitable[None]],
        interval_s: float,
        is_urgent: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        while True:
            began_s = time.process_time()
            try:
                await step()
            except Exception:  # pages would show an old state for ever
                logger.exception("observing the cluster failed, continuing")
            pause_s = max(interval_s, (time.process_time() - began_s) / MAX_SHARE)
            if is_urgent is not None and self._settling > 0:
                self._settling -= 1
                pause_s = interval_s
            await self._pause(pause_s, interval_s, is_urgent)

    async def _pause(self, pause_s: float, interval_s: float, is_urgent: Callable[[], Awaitable[bool]] | None) -> None:
        """While a page is open, a long pause ends as soon as something is urgent."""
        if not self._pages:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._page_opened.wait(), max(pause_s, UNWATCHED_INTERVAL_S))
            return
        loop = asyncio.get_running_loop()
        until_s = loop.time() + pause_s
        while (left_s := until_s - loop.time()) > 0:
            await asyncio.sleep(min(left_s, interval_s))
            if left_s > interval_s and is_urgent is not None and await is_urgent():
                return

    async def has_other_brokers(self) -> bool:
        """A cheap look, for clusters with so many partitions that a whole one is rare: brokers and controller only."""
        try:
            metadata = await self.cluster.ask_topics([])
        except CLIENT_ERRORS:
            return True
        up = {broker_id for broker_id, broker in self.snapshot.brokers.items() if broker.is_up}
        return metadata.brokers.keys() != up or metadata.controller_id != self.snapshot.controller

    async def poll(self) -> None:
        before = self.snapshot
        try:
            metadata = await self.cluster.ask_topics(None)
        except CLIENT_ERRORS as error:
            self._set_error(reason_of(error))
            return
        self._set_error(None)
        self.snapshot = snapshot_of(metadata, before, now_ms())
        changed = difference(before, self.snapshot)
        if before.brokers != self.snapshot.brokers:
            self._settling = SETTLING_LOOKS
        if changed is not None:
            self._publish("change", changed)
        events = self.timeline.observe(before, self.snapshot)
        if events:
            self._publish("events", [event._asdict() for event in events])

    def metrics_page(self, broker_id: BrokerId) -> str | None:
        return self._metrics.urls.get(broker_id)

    def note(self, kind: Kind, text: str) -> None:
        """An event that only the console knows, such as a change made with it."""
        self._publish("events", [event._asdict() for event in self.timeline.note(now_ms(), kind, text)])

    def _set_error(self, error: str | None) -> None:
        if error != self.error:
            self.error = error
            self._publish("reachable", {"error": error})

    async def sample(self) -> None:
        """Values for the charts, and events of groups."""
        snapshot, cluster = self.snapshot, self.cluster
        reading = await self._metrics.read(cluster)
        counters = await self._record_counts() | dict(reading.counters)
        for seconds in await round_trips_s(cluster):
            self._round_trips.add(now_ms(), seconds)
        at_ms = now_ms()
        self._latencies.add(at_ms, reading.histograms)
        partitions = snapshot.partitions.values()
        values = self._rates.of(at_ms, counters) | {
            "under_replicated": float(sum(found.is_under_replicated for found in partitions)),
            "leaderless": float(sum(found.leader is None for found in partitions)),
            "brokers_down": float(sum(not found.is_up for found in snapshot.brokers.values())),
        }
        values |= {f"round_trip_{name}": value for name, value in self._round_trips.percentiles(at_ms).items()}
        values |= self._latencies.percentiles()
        self.samples.add(at_ms, values)
        charted = {name: round(value, 3) for name, value in values.items() if "/" not in name}
        self._publish("sample", {"at_ms": at_ms, "values": charted})
        await self.watch_groups()

    async def _record_counts(self) -> dict[str, float]:
        snapshot = self.snapshot
        led = [where for where, found in snapshot.partitions.items() if found.leader in self.cluster.metadata.brokers]
        counts: dict[str, float] = {}
        with suppress(*CLIENT_ERRORS):
            found = await list_offsets(self.cluster, dict.fromkeys(led, END), timeout_s=3.0) if led else {}
            for where, each in found.items():
                if not snapshot.partitions[where].is_internal:
                    for name in ("records", f"records/{where.topic}"):
                        counts[name] = counts.get(name, 0) + each.offset
        return counts

    async def watch_groups(self) -> None:
        with suppress(*CLIENT_ERRORS):
            groups = {each.group_id: each for each in await self._group_admin.list_groups()}
            findings = self._groups.on_states({each.group_id: each.state for each in groups.values()})
            described = [groups[name] for name in self._groups.next_to_describe()]
            findings += self._groups.on_members(await self._group_batches.members(described))
            if findings:
                self._publish("events", [event._asdict() for event in self.timeline.add(now_ms(), findings)])
            lag = None if self.sample_lags is None else await self.sample_lags(list(groups.values()))
            if lag is not None:
                at_ms = now_ms()
                self.samples.add(at_ms, {"lag": lag})
                self._publish("sample", {"at_ms": at_ms, "values": {"lag": lag}})

    # ---- pages

    @property
    def is_watched(self) -> bool:
        return bool(self._pages)

    async def stream(self) -> AsyncIterator[bytes]:
        """Server-sent events: the whole cluster first, then what changes."""
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._pages.add(queue)
        self._page_opened.set()
        try:
            yield message_of("cluster", as_json(self.snapshot) | {"error": self.error})
            yield message_of("events", [event._asdict() for event in self.timeline])
            while True:
                try:
                    message = await asyncio.wait_for(queue.get(), KEEP_ALIVE_S)
                except TimeoutError:
                    message = b": still here\n\n"
                if message is None:
                    return
                yield message
        finally:
            self._pages.discard(queue)
            if not self._pages:
                self._page_opened.clear()

    def close(self) -> None:
        for queue in self._pages:
            queue.put_nowait(None)

    def _publish(self, name: str, data: object) -> None:
        message = message_of(name, data) if self._pages else b""
        for queue in self._pages:
            queue.put_nowait(message if queue.qsize() < MAX_QUEUED else None)


def message_of(name: str, data: object) -> bytes:
    return f"event: {name}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n".encode()


def now_ms() -> int:
    return time.time_ns() // 1_000_000
