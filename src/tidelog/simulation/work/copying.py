"""Exactly-once copying: workers of one group read a topic and write their output with transactions.

A read_committed consumer checks that each input has its output once, in order, and that there is nothing else. Checked
during the run and at the end:

- G1 a partition has one owner in a generation, or member epoch, of its group (`workers.Claims`)
- G2 committed offsets of the group never decrease
- T1 records of aborted or open transactions are never read
- T2 each input has its output once, in order; the writes of a transaction to two topics are atomic
- T3 no transaction stays open: after the last write, all committed records can be read
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import ClassVar

from tidelog.client.admin.group_admin import GroupAdmin
from tidelog.client.consumer.consumer import BEGINNING, Consumer, ConsumerSettings
from tidelog.client.consumer.consumer_settings import READ_COMMITTED
from tidelog.client.routing.cluster import Cluster
from tidelog.protocol.records import records_of
from tidelog.simulation.clients import REQUEST_TIMEOUT_S, ClientErrors, Writer
from tidelog.simulation.coordinator_audit import acting
from tidelog.simulation.copy_workers import (
    FETCH_WAIT_MS,
    GROUP,
    INPUT,
    NEVER,
    OUTPUT,
    PARTITIONS,
    TOTALS,
    Claims,
    Worker,
    WorkerOptions,
)
from tidelog.simulation.inspection import batches, replica, stored_partition
from tidelog.simulation.work.base import SEEDS, Work, WorkContext, together
from tidelog.simulation.work.groups import COORDINATOR_SETTINGS as GROUP_SETTINGS
from tidelog.simulation.work.transacting import COORDINATOR_SETTINGS as TRANSACTION_SETTINGS
from tidelog.storage.log import Log
from tidelog.transactions.machine import TransactionMachine
from tidelog.transactions.states import ONGOING
from tidelog.types import NO_BROKER, TopicPartition

WORKERS = 3
FEEDERS = 2
FEEDING_PAUSES = 2
"""Pauses of a writer between two writes of a feeder: each input costs a transaction of a worker."""
CHECK_S = 0.25
PROBE_S = 0.4
QUIET_S = 3.0
MAX_PAUSE_MS = 5000
MAX_READ_MS = 20_000
MAX_SLEEP_MS = 12_000
MANNERS = (
    [WorkerOptions(is_classic=False, is_explicit=False)],
    [WorkerOptions(is_classic=True, is_explicit=True)],
    [WorkerOptions(is_classic=False, is_explicit=True), WorkerOptions(is_classic=False, is_explicit=False)],
    [WorkerOptions(is_classic=True, is_explicit=False)],
    [WorkerOptions(is_classic=True, is_explicit=True), WorkerOptions(is_classic=False, is_explicit=False)],
)
"""Options of the workers in turn; drawn for each simulation."""
INPUTS = [TopicPartition(INPUT, index) for index in range(PARTITIONS)]
OUTPUTS = [*(TopicPartition(OUTPUT, index) for index in range(PARTITIONS)), TopicPartition(TOTALS, 0)]


class CommittedReader:
    """Reads all committed outputs, repeatedly from the beginning."""

    def __init__(self, context: WorkContext) -> None:
        self._client = context.client("copying-reader")
        self._randomness = context.new_randomness()
        self.seen: dict[TopicPartition, dict[int, bytes]] = defaultdict(dict)
        self.violations: list[str] = []
        self.reads = 0

    async def run(self) -> None:
        """Until cancelled."""
        now = asyncio.get_running_loop().time
        while True:
            end = now() + self._randomness.below(MAX_READ_MS) / 1000
            try:
                await self.read_until(lambda end=end: now() > end)  # type: ignore[misc]
            except ClientErrors:
                await asyncio.sleep(1)

    async def read_until(self, is_over: Callable[[], bool]) -> None:
        await self._client.topics_in_use([OUTPUT, TOTALS])  # sorted, so that the order does not depend on string hashes
        async with Consumer(
            self._client, ConsumerSettings(isolation_level=READ_COMMITTED, max_wait_ms=FETCH_WAIT_MS)
        ) as consumer:
            await consumer.assign(dict.fromkeys(OUTPUTS, BEGINNING))
            last: dict[TopicPartition, int] = {}
            while not is_over():
                for record in await consumer.poll(QUIET_S):
                    key = TopicPartition(record.topic, record.partition)
                    self._record(key, last.get(key, -1), record.offset, record.value or b"")
                    last[key] = record.offset

    def _record(self, key: TopicPartition, last_offset: int, offset: int, value: bytes) -> None:
        self.reads += 1
        seen = self.seen[key]
        if value == NEVER:
            self.violations.append(f"T1 {key}@{offset} was aborted, and is read")
        if seen.setdefault(offset, value) != value:
            self.violations.append(f"T1 {key}@{offset} was {seen[offset]!r} and is {value!r}")
        if any(between in seen for between in range(last_offset + 1, offset)):
            self.violations.append(f"T1 {key} was read between {last_offset} and {offset} before, and now is not")


class Probe:
    """Fetches the committed offsets of the group repeatedly (G2)."""

    def __init__(self, client: Cluster) -> None:
        self._admin = GroupAdmin(client, timeout_s=REQUEST_TIMEOUT_S)
        self.offsets: dict[TopicPartition, int] = {}
        self.violations: list[str] = []

    async def run(self) -> None:
        while True:
            with suppress(*ClientErrors):
                self.take({key: found.offset for key, found in (await self._admin.offsets(GROUP)).items()})
            await asyncio.sleep(PROBE_S)

    def take(self, offsets: Mapping[TopicPartition, int]) -> None:
        for key, previous in self.offsets.items():
            if offsets.get(key, -1) < previous:
                self.violations.append(f"G2 {key} was committed up to {previous}, and now to {offsets.get(key)}")
        self.offsets |= offsets


class Copying(Work):
    name = "copying"
    broker_settings: ClassVar = {**GROUP_SETTINGS, **TRANSACTION_SETTINGS}

    def __init__(self, context: WorkContext) -> None:
        super().__init__(context)
        cluster = context.cluster
        manners = self.one_of(MANNERS)
        self._claims = Claims(may_restart_generations=len({manner.is_classic for manner in manners}) > 1)
        self._is_copied = False
        self._workers = [
            Worker(
                cluster,
                number,
                self.randomness.below(SEEDS),
                manners[number % len(manners)],
                self._claims,
                lambda: self._is_copied,
            )
            for number in range(WORKERS)
        ]
        self._feeders = [
            Writer(
                cluster,
                context.history,
                f"in{number}",
                self.randomness.below(SEEDS),
                longest_pause_ms=FEEDING_PAUSES * context.longest_pause_ms,
            )
            for number in range(FEEDERS)
        ]
        self._reader = CommittedReader(context)
        self._probe = Probe(context.client("copying-probe"))
        self._observers: list[asyncio.Task[None]] = []
        self._missing = ["the workers have not begun"]

    async def prepare(self) -> None:
        await self.context.topic(INPUT, PARTITIONS)
        admin = self.context.admin(self.name)
        for topic, partitions in ((OUTPUT, PARTITIONS), (TOTALS, 1)):
            await admin.create_topic(
                topic, partitions=partitions, replication_factor=3, settings={"min.insync.replicas": "2"}
            )

    async def run(self, is_over: Callable[[], bool]) -> None:
        self.log_event(f"workers {[worker.manner for worker in self._workers]}")
        loop = asyncio.get_running_loop()
        self._observers = [loop.create_task(self._reader.run()), loop.create_task(self._probe.run())]
        for worker in self._workers:
            worker.start()
        await together([self._disturb_workers(is_over), *(feeder.run(INPUTS, is_over) for feeder in self._feeders)])

    async def _disturb_workers(self, is_over: Callable[[], bool]) -> None:
        while not is_over():
            await self.rest(MAX_PAUSE_MS)
            self._disturb_worker()
        for worker in self._workers:
            worker.resume()
            if not worker.is_running:
                worker.start()

    def _disturb_worker(self) -> None:
        worker = self.one_of(self._workers)
        match self.randomness.below(4):
            case 0:
                self.log_event(f"kill -9 worker {worker.number}, and start it again")
                worker.kill()
                worker.start()
            case 1 | 2:
                self._pause_worker(worker)
            case _:
                self._pause_worker(worker)
                self.log_event(f"start worker {worker.number} once more")
                worker.start()

    def _pause_worker(self, worker: Worker) -> None:
        sleep_s = self.randomness.below(self.within_run_ms(MAX_SLEEP_MS)) / 1000
        self.log_event(f"SIGSTOP worker {worker.number} for {sleep_s} s")
        worker.pause()
        asyncio.get_running_loop().call_later(sleep_s, worker.resume)

    # ---- at the end

    async def settle(self) -> None:
        await self._until_nothing(self._not_copied)
        self._is_copied = True
        await self._until_nothing(self._not_quiet)
        for task in self._observers:
            task.cancel()
        transactions = sum(worker.committed for worker in self._workers)
        self.log_event(f"all is copied after {transactions} transactions")
        final = await self.until_done(self._read_all)
        self.noted += self._judged(final)
        self._missing = []

    async def _until_nothing(self, missing: Callable[[], Iterator[str]]) -> None:
        while found := list(missing()):
            self._missing = found
            await asyncio.sleep(CHECK_S)

    async def _read_all(self) -> CommittedReader:
        deadline = self.context.now + 2 * QUIET_S
        final = CommittedReader(self.context)
        await final.read_until(lambda: self.context.now > deadline)
        return final

    def unsettled(self) -> Iterator[str]:
        yield from self._missing

    def violations(self) -> Iterator[str]:
        yield from self.noted
        for feeder in self._feeders:
            yield from feeder.failures
        for worker in self._workers:
            worker.note_claims()
            yield from worker.failures
        for judge in (self._claims, self._reader, self._probe):
            yield from judge.violations

    def _not_copied(self) -> Iterator[str]:
        for key in INPUTS:
            log = self._leader_log(key)
            if log is None or self._probe.offsets.get(key, 0) < log.log_end_offset:
                yield f"T2 {key} is copied up to {self._probe.offsets.get(key)} only"

    def _leader_log(self, key: TopicPartition) -> Log | None:
        stored = stored_partition(self.context.cluster.store_state, key)
        if stored is None or stored.state.leader == NO_BROKER:
            return None
        found = replica(self.context.cluster, stored.state.leader, key)
        return None if found is None else found.log

    def _not_quiet(self) -> Iterator[str]:
        """T3"""
        for worker in self._workers:
            if worker.is_running:
                yield f"I7 worker {worker.number} does not end"
        for shard in acting(self.context.cluster):
            if isinstance(shard.machine, TransactionMachine):
                for each in shard.machine.state_manager:
                    if each.state is ONGOING or each.state.is_prepared:
                        yield f"T3 the transaction of {each.transactional_id} is still {each.state}"
        for key in OUTPUTS:
            log = self._leader_log(key)
            if log is None or log.last_stable_offset < log.log_end_offset:
                yield f"T3 {key} is stable up to {log and log.last_stable_offset} only"

    # ---- final check

    def _judged(self, final: CommittedReader) -> Iterator[str]:
        yield from final.violations
        for key, seen in self._reader.seen.items():
            for offset, value in seen.items():
                if final.seen[key].get(offset) != value:
                    yield f"T1 {key}@{offset} was read as {value!r} and is {final.seen[key].get(offset)!r} in the end"
        for key in INPUTS:
            given, made = self._inputs(key), [*final.seen[TopicPartition(OUTPUT, key.partition)].values()]
            if given != made:
                yield f"T2 {key}: {_first_difference(given, made)}"
            yield from _totals_of(key.partition, len(given), final.seen[TopicPartition(TOTALS, 0)].values())

    def _inputs(self, key: TopicPartition) -> list[bytes]:
        log = self._leader_log(key)
        assert log is not None
        return [
            record.value or b""
            for _, batch in batches(log, log.log_start_offset, log.log_end_offset)
            for record in records_of(batch)
        ]


def _totals_of(partition: int, count: int, totals: Iterable[bytes]) -> Iterator[str]:
    copied = 0
    for total in totals:
        of, records, end_offset = map(int, total.split())
        if of == partition:
            copied += records
            if copied != end_offset:
                yield f"T2 {copied} records of partition {partition} were copied up to offset {end_offset}"
    if copied != count:
        yield f"T2 {copied} records of partition {partition} are counted of {count}"


def _first_difference(given: list[bytes], made: list[bytes]) -> str:
    at = next((at for at, (a, b) in enumerate(zip(given, made, strict=False)) if a != b), min(len(given), len(made)))
    return f"{len(given)} records became {len(made)}; at {at}, {given[at : at + 2]} became {made[at : at + 2]}"
