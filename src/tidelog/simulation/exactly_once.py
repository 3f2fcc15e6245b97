"""One seed, one story of workers that copy a topic with transactions while accidents happen to them and their brokers.

The verdict is that of a reader of committed records: each input is there once, in its order, and nothing else is. All
along, and in the end:

- G1 a partition has one owner in a generation, or member epoch, of its group (`workers.Claims`)
- G2 what the group has committed never goes back
- G3 what coordinators remember is what their records say (`coordinator_audit`)
- T1 nothing of a transaction that is aborted, or goes on, is read
- T2 each input has its output once, in order; what one transaction wrote to two topics is there as a whole
- T3 no transaction stays open: where nobody writes any more, all that is committed can be read
"""

import asyncio
import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from tidelog.client.admin import Admin
from tidelog.client.consumer import BEGINNING, Consumer, ConsumerSettings
from tidelog.client.consumer_settings import READ_COMMITTED
from tidelog.client.group_admin import GroupAdmin
from tidelog.protocol.records import records_of
from tidelog.runtime.randomness import SeededRandomness
from tidelog.simulation.accidents import Accidents
from tidelog.simulation.chaos import Verdict, until_violated
from tidelog.simulation.clients import REQUEST_TIMEOUT_S, ClientErrors, Writer, client_cluster, start
from tidelog.simulation.cluster import SimulatedCluster
from tidelog.simulation.coordinator_audit import acting, differences
from tidelog.simulation.history import History
from tidelog.simulation.invariants import Invariants, InvariantViolated
from tidelog.simulation.looking import batches, content, replica, stored_partition
from tidelog.simulation.processes import run_simulation
from tidelog.simulation.workers import GROUP, INPUT, NEVER, OUTPUT, PARTITIONS, TOTALS, Claims, Manner, Worker
from tidelog.storage.log import Log
from tidelog.transactions.machine import TransactionMachine
from tidelog.transactions.states import ONGOING
from tidelog.types import NO_BROKER, TopicPartition

T = TypeVar("T")

WORKERS = 3
TROUBLED_S = 40.0
PATIENCE_S = 240.0
"""After the repair: sessions, rebalances, transactions and back-offs end one after the other."""
CHECK_S = 0.25
PROBE_S = 0.2
QUIET_S = 3.0
LONGEST_PAUSES_MS = (300, 3000, 5000, 5000)
LATENCIES_S = (0.0005, 0.005, 0.02)
STORE_LATENCIES_S = (0.0, 0.005, 0.05)
LONGEST_READ_MS = 20_000
LONGEST_SLEEP_MS = 12_000
MIN_IN_SYNC = (1, 2)
MANNERS = (
    [Manner(is_classic=False, is_explicit=False)],
    [Manner(is_classic=True, is_explicit=True)],
    [Manner(is_classic=False, is_explicit=True), Manner(is_classic=False, is_explicit=False)],
    [Manner(is_classic=True, is_explicit=False)],
    [Manner(is_classic=True, is_explicit=True), Manner(is_classic=False, is_explicit=False)],
)
"""Of the workers in turn; drawn for each story."""
SETTINGS: dict[str, Any] = {
    "replica_lag_time_max_ms": 2000,
    "offsets_topic_num_partitions": 1,
    "offsets_topic_replication_factor": 3,
    "transaction_state_log_num_partitions": 2,
    "transaction_state_log_replication_factor": 3,
    "transaction_abort_timed_out_transaction_cleanup_interval_ms": 1000,
    "group_initial_rebalance_delay_ms": 500,
    "group_min_session_timeout_ms": 3000,
    "group_consumer_min_session_timeout_ms": 3000,
    "group_consumer_session_timeout_ms": 3000,
    "group_consumer_min_heartbeat_interval_ms": 500,
    "group_consumer_heartbeat_interval_ms": 1000,
}
INPUTS = [TopicPartition(INPUT, index) for index in range(PARTITIONS)]
OUTPUTS = [*(TopicPartition(OUTPUT, index) for index in range(PARTITIONS)), TopicPartition(TOTALS, 0)]


class CommittedReader:
    """Reads all outputs as far as they are committed, again and again from the start."""

    def __init__(self, cluster: SimulatedCluster, seed: int) -> None:
        self._client = client_cluster(cluster, seed, "reader")
        self._randomness = SeededRandomness(seed)
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
        async with Consumer(self._client, ConsumerSettings(isolation_level=READ_COMMITTED)) as consumer:
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

    def __init__(self, cluster: SimulatedCluster, seed: int) -> None:
        self._admin = GroupAdmin(client_cluster(cluster, seed, "probe"), timeout_s=REQUEST_TIMEOUT_S)
        self.offsets: dict[TopicPartition, int] = {}
        self.violations: list[str] = []

    async def run(self) -> None:
        while True:
            with suppress(*ClientErrors):
                self._take({key: found.offset for key, found in (await self._admin.offsets(GROUP)).items()})
            await asyncio.sleep(PROBE_S)

    def _take(self, offsets: Mapping[TopicPartition, int]) -> None:
        for key, known in self.offsets.items():
            if offsets.get(key, -1) < known:
                self.violations.append(f"G2 {key} was committed up to {known}, and now to {offsets.get(key)}")
        self.offsets |= offsets


class ExactlyOnce:
    def __init__(self, seed: int) -> None:
        self.verdict = Verdict(seed)
        self._randomness = SeededRandomness(seed)
        self._cluster = SimulatedCluster(3, seed=seed, min_insync_replicas=self._one_of(MIN_IN_SYNC), **SETTINGS)
        self._cluster.network.latency_s = self._one_of(LATENCIES_S)
        self._cluster.store_state.latency_s = self._one_of(STORE_LATENCIES_S)
        self._history = History()
        self._invariants = Invariants(self._cluster, self._history)
        self._accidents = Accidents(self._cluster, self._randomness, self._tell)
        manners = MANNERS[seed % len(MANNERS)]
        self._claims = Claims(may_count_anew=len({manner.is_classic for manner in manners}) > 1)
        self._is_over = self._is_drained = False
        self._workers = [
            Worker(
                self._cluster,
                number,
                seed * 1000 + number,
                manners[number % len(manners)],
                self._claims,
                lambda: self._is_drained,
            )
            for number in range(WORKERS)
        ]
        self._feeders = [
            Writer(self._cluster, self._history, f"w{number}", seed * 1000 + 50 + number) for number in (0, 1)
        ]
        self._reader = CommittedReader(self._cluster, seed * 1000 + 60)
        self._probe = Probe(self._cluster, seed * 1000 + 70)
        self._admin = Admin(client_cluster(self._cluster, seed * 1000 + 80, "admin"))

    def _one_of(self, choices: Sequence[T]) -> T:
        return choices[self._randomness.below(len(choices))]

    def _tell(self, line: str) -> None:
        self.verdict.story.append(f"{self._cluster.clock.monotonic():8.3f} {line}")

    async def run(self) -> Verdict:
        for violation in await until_violated(self._check_on_and_on(), self._live()):
            self._tell("an invariant is violated")
            self.verdict.violations += str(violation).splitlines()
        self.verdict.acknowledged = sum(map(len, self._history.acknowledged.values()))
        self.verdict.reads, self.verdict.checks = self._reader.reads, self._invariants.checks
        digest = hashlib.sha256("\n".join(self.verdict.story).encode())
        for key in (*INPUTS, *OUTPUTS):
            log = self._leader_log(key)
            digest.update(b"" if log is None else content(log, log.log_start_offset, log.log_end_offset))
        self.verdict.fingerprint = digest.hexdigest()[:16]
        return self.verdict

    async def _check_on_and_on(self) -> None:
        while True:
            self._invariants.check()
            self._raise(self._noted())
            await asyncio.sleep(CHECK_S)

    def _noted(self) -> Iterator[str]:
        yield from self._accidents.failures
        for feeder in self._feeders:
            yield from feeder.failures
        for worker in self._workers:
            worker.note_claims()
            yield from worker.failures
        for noticed in (self._claims.violations, self._reader.violations, self._probe.violations):
            yield from noticed

    def _raise(self, violations: Iterator[str]) -> None:
        found = list(violations)
        if found:
            raise InvariantViolated("\n".join(found))

    # -- the story

    async def _live(self) -> None:
        self._tell(f"network {self._cluster.network.latency_s} s, store {self._cluster.store_state.latency_s} s")
        self._tell(f"workers {[worker.manner for worker in self._workers]}")
        await self._cluster.start_all()
        for topic, partitions in ((INPUT, PARTITIONS), (OUTPUT, PARTITIONS), (TOTALS, 1)):
            await self._admin.create_topic(
                topic, partitions=partitions, replication_factor=3, settings={"min.insync.replicas": "2"}
            )
        feeding = [start(feeder.run(INPUTS, lambda: self._is_over)) for feeder in self._feeders]
        looking = [start(self._reader.run()), start(self._probe.run())]
        for worker in self._workers:
            worker.start()
        await self._suffer()
        self._repair_all()
        await self._until("all is copied", lambda: list(self._not_copied(feeding)))
        self._is_drained = True
        await self._until("all is quiet", lambda: list(self._not_quiet()))
        for task in looking:
            task.cancel()
        await self._judge()

    async def _suffer(self) -> None:
        now = self._cluster.clock.monotonic
        end = now() + TROUBLED_S
        while now() < end:
            await asyncio.sleep(self._randomness.below(self._one_of(LONGEST_PAUSES_MS)) / 1000)
            if self._randomness.below(2) == 0:
                self._trouble_a_worker()
            else:
                await self._accidents.next()

    def _trouble_a_worker(self) -> None:
        worker = self._one_of(self._workers)
        match self._randomness.below(4):
            case 0:
                self._tell(f"kill -9 worker {worker.number}, and start it again")
                worker.kill()
                worker.start()
            case 1 | 2:
                self._put_to_sleep(worker, self._randomness.below(LONGEST_SLEEP_MS) / 1000)
            case _:
                self._put_to_sleep(worker, self._randomness.below(LONGEST_SLEEP_MS) / 1000)
                self._tell(f"start worker {worker.number} once more")
                worker.start()

    def _put_to_sleep(self, worker: Worker, sleep_s: float) -> None:
        self._tell(f"SIGSTOP worker {worker.number} for {sleep_s} s")
        worker.pause()
        asyncio.get_running_loop().call_later(sleep_s, worker.go_on)

    def _repair_all(self) -> None:
        self._accidents.repair_all()
        self._is_over = True
        for worker in self._workers:
            worker.go_on()
            if not worker.is_running:
                worker.start()

    async def _until(self, what: str, missing: Callable[[], list[str]]) -> None:
        deadline = self._cluster.clock.monotonic() + PATIENCE_S
        while found := missing():
            if self._cluster.clock.monotonic() > deadline:
                raise InvariantViolated("\n".join(found))
            await asyncio.sleep(CHECK_S)
            self._accidents.repair_late()
        transactions = sum(worker.committed for worker in self._workers)
        self._tell(f"{what} after {transactions} transactions")

    def _not_copied(self, feeding: "list[asyncio.Task[None]]") -> Iterator[str]:
        if not self._accidents.is_all_well:
            yield f"I7 troubles last: {self._accidents.troubles}"
        for task in feeding:
            if not task.done():
                yield f"I7 a writer still waits: {task}"
        if not self._invariants.is_settled():
            yield "I7 the cluster does not settle"
        for key in INPUTS:
            log = self._leader_log(key)
            if log is None or self._probe.offsets.get(key, 0) < log.log_end_offset:
                yield f"T2 {key} is copied up to {self._probe.offsets.get(key)} only"

    def _leader_log(self, key: TopicPartition) -> Log | None:
        stored = stored_partition(self._cluster.store_state, key)
        if stored is None or stored.state.leader == NO_BROKER:
            return None
        found = replica(self._cluster, stored.state.leader, key)
        return None if found is None else found.log

    def _not_quiet(self) -> Iterator[str]:
        """T3"""
        if not self._invariants.is_settled():
            yield "I7 the cluster does not settle"
        for worker in self._workers:
            if worker.is_running:
                yield f"I7 worker {worker.number} does not end"
        for shard in acting(self._cluster):
            if isinstance(shard.machine, TransactionMachine):
                for each in shard.machine.ledger:
                    if each.state is ONGOING or each.state.is_prepared:
                        yield f"T3 the transaction of {each.transactional_id} is still {each.state}"
        for broker in self._cluster.running:
            for partition in broker.replicas:
                log = partition.log
                if partition.is_leader and log.last_stable_offset < log.log_end_offset:
                    yield f"T3 {partition.topic_partition} is stable up to {log.last_stable_offset} only"

    # -- the verdict

    async def _judge(self) -> None:
        self._invariants.check_settled()
        self._raise(differences(self._cluster))
        deadline = asyncio.get_running_loop().time() + 2 * QUIET_S
        final = CommittedReader(self._cluster, 1)
        await final.read_until(lambda: asyncio.get_running_loop().time() > deadline)
        self._raise(self._noted())
        self._raise(self._judged(final))

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
            yield from self._totals_of(key.partition, len(given), final.seen[TopicPartition(TOTALS, 0)].values())

    def _inputs(self, key: TopicPartition) -> list[bytes]:
        log = self._leader_log(key)
        assert log is not None
        return [
            record.value or b""
            for _, batch in batches(log, log.log_start_offset, log.log_end_offset)
            for record in records_of(batch)
        ]

    def _totals_of(self, partition: int, count: int, totals: Iterable[bytes]) -> Iterator[str]:
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


def run_seed(seed: int) -> Verdict:
    async def main() -> Verdict:
        return await ExactlyOnce(seed).run()

    return run_simulation(main())
