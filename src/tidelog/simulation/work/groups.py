"""Work of consumer groups of both protocols, whose members join, leave, are paused and killed."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from tidelog.client.admin.group_admin import GroupAdmin
from tidelog.client.consumer.consumer import BEGINNING, ConsumerSettings
from tidelog.client.groups.group_consumer import GroupConsumer, GroupConsumerSettings
from tidelog.client.groups.group_member import Membership
from tidelog.client.network.bootstrap import Address
from tidelog.client.routing.cluster import Cluster
from tidelog.runtime.randomness import SeededRandomness
from tidelog.simulation.clients import REQUEST_TIMEOUT_S, ClientErrors, Writer
from tidelog.simulation.cluster import PORT, host_of
from tidelog.simulation.copy_workers import Claims
from tidelog.simulation.processes import Process
from tidelog.simulation.work.base import SEEDS, Work, WorkContext
from tidelog.simulation.work.ownership import NOTHING, Ownership, Progress
from tidelog.types import TopicPartition

PARTITIONS = 4
FIRST_MEMBERS = 2
MAX_MEMBERS = 4
SESSION_TIMEOUT_MS = 3000
HEARTBEAT_MS = 700
REBALANCE_TIMEOUT_MS = 6000
POLL_S = 0.4
REST_S = 0.5
PROBE_S = 0.3
MAX_PAUSE_MS = 5000
MAX_SLEEP_MS = 9000
MAX_DAWDLE_MS = 1500
TIMEOUT_S = 8.0
COORDINATOR_SETTINGS: Mapping[str, object] = {
    "min_insync_replicas": 2,
    "offsets_topic_num_partitions": 2,
    "offsets_topic_replication_factor": 3,
    "group_initial_rebalance_delay_ms": 500,
    "group_min_session_timeout_ms": SESSION_TIMEOUT_MS,
    "group_consumer_min_session_timeout_ms": SESSION_TIMEOUT_MS,
    "group_consumer_session_timeout_ms": SESSION_TIMEOUT_MS,
    "group_consumer_min_heartbeat_interval_ms": 500,
    "group_consumer_heartbeat_interval_ms": HEARTBEAT_MS,
}


class GroupMember:
    """One process with a consumer, from its start to its end."""

    def __init__(self, host: str, seed: int) -> None:
        self.host = host
        self.randomness = SeededRandomness(seed)
        self.process = Process(host)
        self._stops: list[float] = []
        """Times at which it was stopped, until a heartbeat that was sent later is accepted."""
        self.is_leaving = False
        self.ids: list[str] = []
        self.consumer: GroupConsumer | None = None
        self.task: asyncio.Task[None] | None = None

    @property
    def stopped_at(self) -> float | None:
        """The first of the stops; None if the group has heard of it since all of them."""
        return self._stops[0] if self._stops else None

    def on_stopped(self, now: float) -> None:
        self._stops.append(now)

    def on_heartbeat(self, sent_at: float) -> None:
        """It was accepted. The member may have been stopped again since it was sent."""
        self._stops = [stopped_at for stopped_at in self._stops if stopped_at >= sent_at]


class GroupWork(Work):
    """A group processes a topic: each record at least once, each partition by one member at a time."""

    broker_settings = COORDINATOR_SETTINGS
    is_classic: bool

    def __init__(self, context: WorkContext) -> None:
        super().__init__(context)
        self._topic_name = f"{self.name}-queue"
        self._writer = Writer(
            context.cluster,
            context.history,
            self.name,
            self.randomness.below(SEEDS),
            longest_pause_ms=context.longest_pause_ms,
        )
        self._probe = GroupAdmin(context.client(f"{self.name}-probe"), timeout_s=REQUEST_TIMEOUT_S)
        self._ownership = Ownership(
            session_timeout_s=SESSION_TIMEOUT_MS / 1000,
            rebalance_timeout_s=REBALANCE_TIMEOUT_MS / 1000,
        )
        self._claims = Claims(may_restart_generations=False)
        self._progress = Progress()
        self._members: list[GroupMember] = []
        self._starts = 0
        self._probing: asyncio.Task[None] | None = None
        self._is_written = self._is_drained = False

    async def prepare(self) -> None:
        await self._topic()

    async def _topic(self) -> list[TopicPartition]:
        return await self.context.topic(self._topic_name, PARTITIONS)

    async def run(self, is_over: Callable[[], bool]) -> None:
        partitions = await self._topic()
        self._probing = asyncio.get_running_loop().create_task(self._probe_repeatedly())
        writing = asyncio.get_running_loop().create_task(self._writer.run(partitions, is_over))
        for _ in range(FIRST_MEMBERS):
            self._start()
        while not is_over():
            await self.rest(MAX_PAUSE_MS)
            self._disturb_member()
        for member in self._members:
            member.process.resume()
        await writing
        self._is_written = True

    async def settle(self) -> None:
        while list(self._not_worked_off()):
            if all(member.is_leaving for member in self._members):
                self._start()
            await asyncio.sleep(PROBE_S)
        self._is_drained = True
        for member in list(self._members):
            if member.task is not None:
                await asyncio.wait([member.task])
        if self._probing is not None:
            self._probing.cancel()
        acknowledged = {key: self.history.acknowledged[key].values() for key in await self._topic()}
        self.noted += self._progress.skipped(acknowledged)

    def _not_worked_off(self) -> Iterator[str]:
        for key in self.context.partitions[self._topic_name]:
            if self._progress.committed.get(key, 0) < self.history.ends[key]:
                yield f"I7 {key} is worked off up to {self._progress.committed.get(key)} of {self.history.ends[key]}"

    def unsettled(self) -> Iterator[str]:
        if not self._is_written:
            yield f"I7 the writer of {self._topic_name} still waits"
        yield from self._not_worked_off()
        if self._members:
            yield f"I7 members of {self.name} do not end: {[member.host for member in self._members]}"

    def violations(self) -> Iterator[str]:
        yield from self.noted
        yield from self._writer.failures
        for judge in (self._ownership, self._claims, self._progress):
            yield from judge.violations

    async def _probe_repeatedly(self) -> None:
        while True:
            with suppress(*ClientErrors):
                found = await self._probe.offsets(self.name)
                self._progress.on_committed({key: each.offset for key, each in found.items()})
            await asyncio.sleep(PROBE_S)

    # ---- members

    def _disturb_member(self) -> None:
        if not self._members or (len(self._members) < MAX_MEMBERS and self.is_one_in(3)):
            self._start()
            return
        member = self.one_of(self._members)
        match self.randomness.below(4):
            case 0:
                self.log_event(f"kill -9 {member.host}")
                self._kill(member)
            case 1:
                self.log_event(f"{member.host} leaves")
                member.is_leaving = True
            case _:
                sleep_s = self.randomness.below(self.within_run_ms(MAX_SLEEP_MS)) / 1000
                self.log_event(f"SIGSTOP {member.host} for {sleep_s} s")
                member.process.stop()
                member.on_stopped(self.context.now)
                asyncio.get_running_loop().call_later(sleep_s, self._wake, member)

    def _wake(self, member: GroupMember) -> None:
        if member in self._members:  # otherwise it was killed
            member.process.resume()

    def _start(self) -> None:
        self._starts += 1
        member = GroupMember(f"{self.name}-{self._starts}", self.randomness.below(SEEDS))
        self.log_event(f"start {member.host}")
        member.task = member.process.start(self._live(member))
        member.task.add_done_callback(lambda done: self._on_end(member, done))
        self._members.append(member)

    def _kill(self, member: GroupMember) -> None:
        member.process.kill()
        self.context.cluster.network.power_off(member.host)
        self._clean_up(member)

    def _clean_up(self, member: GroupMember) -> None:
        if member in self._members:
            self._members.remove(member)
        for member_id in member.ids:
            self._ownership.on_gone(member_id)

    def _on_end(self, member: GroupMember, done: "asyncio.Task[None]") -> None:
        self._clean_up(member)
        if not done.cancelled() and done.exception() is not None:
            self.noted.append(f"a member of {self.name} failed: {done.exception()!r}")

    async def _live(self, member: GroupMember) -> None:
        while not (self._is_drained or member.is_leaving):
            try:
                await self._consume(member)
            except ClientErrors:
                await asyncio.sleep(REST_S)

    async def _consume(self, member: GroupMember) -> None:
        bootstrap = [Address(host_of(broker_id), PORT) for broker_id in self.context.cluster.machines]
        network = self.context.cluster.network.at(member.host)
        client = Cluster(
            network,
            bootstrap,
            member.randomness,
            client_id=member.host,
            client_rack=self.context.cluster.client_rack(len(self._members)),
            request_timeout_s=REQUEST_TIMEOUT_S,
        )
        async with client:
            consumer = GroupConsumer(client, self.name, [self._topic_name], self._settings())
            self._watch(member, consumer._membership)
            member.consumer = consumer
            async with consumer:
                while not (self._is_drained or member.is_leaving):
                    await self._work_off(member, consumer)

    async def _work_off(self, member: GroupMember, consumer: GroupConsumer) -> None:
        records = await consumer.poll(POLL_S)
        self._claims.note(consumer)
        for record in records:
            key = TopicPartition(record.topic, record.partition)
            self._progress.on_processed(key, record.offset)
            if record.value is not None:
                self.history.on_read(key, record.offset, record.value, reader=member.host)
        if member.randomness.below(2) == 0:
            await asyncio.sleep(member.randomness.below(MAX_DAWDLE_MS) / 1000)
        if records:
            await consumer.commit()

    def _settings(self) -> GroupConsumerSettings:
        return GroupConsumerSettings(
            is_classic=self.is_classic,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            start_at=BEGINNING,
            timeout_s=TIMEOUT_S,
            reading=ConsumerSettings(reset_to=BEGINNING),
        )

    # ---- membership events

    def _watch(self, member: GroupMember, membership: Membership) -> None:
        """Reports heartbeats and owned partitions to the checker, in the step in which the member learns of them."""
        beat, own, want, close = membership._heartbeat, membership.own, membership._set_assigned, membership.close
        is_answered = False

        async def watched_beat() -> float:
            nonlocal is_answered
            is_answered = True
            sent_at = self.context.now
            pause_s = await beat()
            if is_answered and self._is_member(membership):
                self._ownership.on_heartbeat(membership.member_id, sent_at, membership.assigned)
                member.on_heartbeat(sent_at)
            return pause_s

        def watched_want(partitions: Any) -> None:
            nonlocal is_answered
            if partitions == NOTHING and membership.owned:
                is_answered = False
                self._ownership.on_rebalance(membership.member_id)
            want(partitions)

        def watched_own(partitions: Any) -> None:
            own(partitions)
            if membership.member_id not in member.ids:
                member.ids.append(membership.member_id)
            self._ownership.on_owned(
                membership.member_id, membership.owned, self.context.now, stopped_at=member.stopped_at
            )

        async def watched_close() -> None:
            """The member stops reading and leaves the group."""
            self._ownership.on_gone(membership.member_id)
            await close()

        membership._heartbeat = watched_beat  # type: ignore[method-assign]
        membership.close = watched_close  # type: ignore[method-assign]
        membership._set_assigned = watched_want  # type: ignore[method-assign]
        membership.own = watched_own  # type: ignore[method-assign]

    def _is_member(self, membership: Any) -> bool:
        return bool(
            membership._has_member_id and not membership._must_join if self.is_classic else membership._is_joined
        )


class ClassicGroup(GroupWork):
    """JoinGroup and SyncGroup: the group leader assigns partitions."""

    name = "classic_groups"
    is_classic = True


class ConsumerGroup(GroupWork):
    """KIP-848: the coordinator assigns partitions."""

    name = "consumer_groups"
    is_classic = False
