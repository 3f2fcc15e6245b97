"""Exactly-once copying: workers of one group read a topic and write what they make of it with transactions.

The verdict is that of a reader of committed records: each input is there once, in its order, and nothing else is. All
along, and in the end:

- G1 a partition has one owner in a generation, or member epoch, of its group (`workers.Claims`)
- G2 what the group has committed never goes back
- T1 nothing of a transaction that is aborted, or goes on, is read
- T2 each input has its output once, in order; what one transaction wrote to two topics is there as a whole
- T3 no transaction stays open: where nobody writes any more, all that is committed can be read
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
from tidelog.simulation.inspection import batches, replica, stored_partition
from tidelog.simulation.work.base import SEEDS, Bench, Work, together
from tidelog.simulation.work.groups import COORDINATOR_SETTINGS as GROUP_SETTINGS
from tidelog.simulation.work.transacting import COORDINATOR_SETTINGS as TRANSACTION_SETTINGS
from tidelog.simulation.workers import (
    FETCH_WAIT_MS,
    GROUP,
    INPUT,
    NEVER,
    OUTPUT,
    PARTITIONS,
    TOTALS,
    Claims,
    Manner,
    Worker,
)
from tidelog.storage.log import Log
from tidelog.transactions.machine import TransactionMachine
from tidelog.transactions.states import ONGOING
from tidelog.types import NO_BROKER, TopicPartition

WORKERS = 3
FEEDERS = 2
FEEDING_PAUSES = 2
"""Of a writer, before a feeder writes again: what it feeds costs a transaction of a worker."""
CHECK_S = 0.25
PROBE_S = 0.4
QUIET_S = 3.0
LONGEST_PAUSE_MS = 5000
LONGEST_READ_MS = 20_000
LONGEST_SLEEP_MS = 12_000
MANNERS = (
    [Manner(is_classic=False, is_explicit=False)],
    [Manner(is_classic=True, is_explicit=True)],
    [Manner(is_classic=False, is_explicit=True), Manner(is_classic=False, is_explicit=False)],
    [Manner(is_classic=True, is_explicit=False)],
    [Manner(is_classic=True, is_explicit=True), Manner(is_classic=False, is_explicit=False)],
)
"""Of the workers in turn; drawn for each simulation."""
INPUTS = [TopicPartition(INPUT, index) for index in range(PARTITIONS)]
OUTPUTS = [*(TopicPartition(OUTPUT, index) for index in range(PARTITIONS)), TopicPartition(TOTALS, 0)]


class CommittedReader:
    """Reads all outputs as far as they are committed, again and again from the start."""

    def __init__(self, bench: Bench) -> None:
        self._client = bench.client("copying-reader")
        self._randomness = bench.new_randomness()
        self.seen: dict[TopicPartition, dict[int, bytes]] = defaultdict(dict)
        self.violations: list[str] = []
        self.reads = 0

    async def run(self) -> None:
        """Until cancelled."""
        now = asyncio.get_running_loop().time
        while True:
            end = now() + self._randomness.below(LONGEST_READ_MS) / 1000
            try:
                await self.read_until(lambda end=end: now() > end)  # type: ignore[misc]
            except ClientErrors:
                await asyncio.sleep(1)

    async def read_until(self, is_over: Callable[[], bool]) -> None:
        await self._client.topics_in_use([OUTPUT, TOTALS])  # in order, however strings hash
        async with Consumer(
            self._client, ConsumerSettings(isolation_level=READ_COMMITTED, max_wait_ms=FETCH_WAIT_MS)
        ) as consumer:
            await consumer.assign(dict.fromkeys(OUTPUTS, BEGINNING))
            last: dict[TopicPartition, int] = {}
            while not is_over():
                for record in await consumer.poll(QUIET_S):
                    key = TopicPartition(record.topic, record.partition)
                    self._take(key, last.get(key, -1), record.offset, record.value or b"")
                    last[key] = record.offset

    def _take(self, key: TopicPartition, last_offset: int, offset: int, value: bytes) -> None:
        self.reads += 1
        seen = self.seen[key]
        if value == NEVER:
            self.violations.append(f"T1 {key}@{offset} was aborted, and is read")
        if seen.setdefault(offset, value) != value:
            self.violations.append(f"T1 {key}@{offset} was {seen[offset]!r} and is {value!r}")
        if any(between in seen for between in range(last_offset + 1, offset)):
            self.violations.append(f"T1 {key} was read between {last_offset} and {offset} before, and now is not")


class Probe:
    """Asks again and again how far the group has come (G2)."""

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
        for key, known in self.offsets.items():
            if offsets.get(key, -1) < known:
                self.violations.append(f"G2 {key} was committed up to {known}, and now to {offsets.get(key)}")
        self.offsets |= offsets


class Copying(Work):
    name = "copying"
    broker_settings: ClassVar = {**GROUP_SETTINGS, **TRANSACTION_SETTINGS}

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        cluster = bench.cluster
        manners = self.one_of(MANNERS)
        self._claims = Claims(may_count_anew=len({manner.is_classic for manner in manners}) > 1)
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
                bench.history,
                f"in{number}",
                self.randomness.below(SEEDS),
                longest_pause_ms=FEEDING_PAUSES * bench.longest_pause_ms,
            )
            for number in range(FEEDERS)
        ]
        self._reader = CommittedReader(bench)
        self._probe = Probe(bench.client("copying-probe"))
        self._looking: list[asyncio.Task[None]] = []
        self._missing = ["the workers have not begun"]

    async def prepare(self) -> None:
        await self.bench.topic(INPUT, PARTITIONS)
        admin = self.bench.admin(self.name)
        for topic, partitions in ((OUTPUT, PARTITIONS), (TOTALS, 1)):
            await admin.create_topic(
                topic, partitions=partitions, replication_factor=3, settings={"min.insync.replicas": "2"}
            )

    async def run(self, is_over: Callable[[], bool]) -> None:
        self.tell(f"workers {[worker.manner for worker in self._workers]}")
        loop = asyncio.get_running_loop()
        self._looking = [loop.create_task(self._reader.run()), loop.create_task(self._probe.run())]
        for worker in self._workers:
            worker.start()
        await together([self._trouble_workers(is_over), *(feeder.run(INPUTS, is_over) for feeder in self._feeders)])

    async def _trouble_workers(self, is_over: Callable[[], bool]) -> None:
        while not is_over():
            await self.rest(LONGEST_PAUSE_MS)
            self._trouble_a_worker()
        for worker in self._workers:
            worker.go_on()
            if not worker.is_running:
                worker.start()

    def _trouble_a_worker(self) -> None:
        worker = self.one_of(self._workers)
        match self.randomness.below(4):
            case 0:
                self.tell(f"kill -9 worker {worker.number}, and start it again")
                worker.kill()
                worker.start()
            case 1 | 2:
                self._put_to_sleep(worker)
            case _:
                self._put_to_sleep(worker)
                self.tell(f"start worker {worker.number} once more")
                worker.start()

    def _put_to_sleep(self, worker: Worker) -> None:
        sleep_s = self.randomness.below(self.within_run_ms(LONGEST_SLEEP_MS)) / 1000
        self.tell(f"SIGSTOP worker {worker.number} for {sleep_s} s")
        worker.pause()
        asyncio.get_running_loop().call_later(sleep_s, worker.go_on)

    # ---- in the end

    async def settle(self) -> None:
        await self._until_nothing(self._not_copied)
        self._is_copied = True
        await self._until_nothing(self._not_quiet)
        for task in self._looking:
            task.cancel()
        transactions = sum(worker.committed for worker in self._workers)
        self.tell(f"all is copied after {transactions} transactions")
        final = await self.until_done(self._read_all)
        self.noted += self._judged(final)
        self._missing = []

    async def _until_nothing(self, missing: Callable[[], Iterator[str]]) -> None:
        while found := list(missing()):
            self._missing = found
            await asyncio.sleep(CHECK_S)

    async def _read_all(self) -> CommittedReader:
        deadline = self.bench.now + 2 * QUIET_S
        final = CommittedReader(self.bench)
        await final.read_until(lambda: self.bench.now > deadline)
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
        stored = stored_partition(self.bench.cluster.store_state, key)
        if stored is None or stored.state.leader == NO_BROKER:
            return None
        found = replica(self.bench.cluster, stored.state.leader, key)
        return None if found is None else found.log

    def _not_quiet(self) -> Iterator[str]:
        """T3"""
        for worker in self._workers:
            if worker.is_running:
                yield f"I7 worker {worker.number} does not end"
        for shard in acting(self.bench.cluster):
            if isinstance(shard.machine, TransactionMachine):
                for each in shard.machine.state_manager:
                    if each.state is ONGOING or each.state.is_prepared:
                        yield f"T3 the transaction of {each.transactional_id} is still {each.state}"
        for key in OUTPUTS:
            log = self._leader_log(key)
            if log is None or log.last_stable_offset < log.log_end_offset:
                yield f"T3 {key} is stable up to {log and log.last_stable_offset} only"

    # ---- the verdict

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
