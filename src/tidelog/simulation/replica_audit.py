"""Replica invariants (R4, I2 to I6), checked incrementally at every change of a log or role."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from tidelog.errors import KafkaError
from tidelog.replication.partition import Partition
from tidelog.simulation.cluster import Machine, SimulatedCluster
from tidelog.simulation.history import History
from tidelog.simulation.inspection import Stored, batches, held_log, is_to_be_deleted, replica
from tidelog.simulation.log_ledger import Ledger, Mirror
from tidelog.simulation.log_watch import BatchFacts, watching_logs
from tidelog.simulation.processes import current_process
from tidelog.simulation.retention_audit import Deletion, RetentionAudit
from tidelog.simulation.store_audit import StoreAudit
from tidelog.storage.log import Log
from tidelog.types import NO_BROKER, ZERO_UUID, BrokerId, Buffer, TopicPartition, Uuid

MAX_VIOLATIONS = 20


class ReplicaAudit:
    """Audit of all replicas. It only records violations: it must not affect brokers."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        history: History,
        store: StoreAudit,
        may_be_elected: Callable[[BrokerId, TopicPartition, Stored], bool],
    ) -> None:
        self.violations: list[str] = []
        """Each with its time, when it was first found."""
        self._recorded: set[str] = set()
        """The same, without times."""
        self.events = 0
        self._cluster = cluster
        self._history = history
        self._states = store.states
        self._may_be_elected = may_be_elected
        self._ledgers: dict[tuple[Uuid, TopicPartition], Ledger] = defaultdict(Ledger)
        self._topic_ids: dict[TopicPartition, Uuid] = {}
        self._mirrors: dict[int, tuple[Log, Mirror]] = {}
        """By id of the log object. The object is kept, so that its id is not reused."""
        self._high_watermarks: dict[tuple[int, int], int] = {}
        """High watermark by log and leader epoch: it never decreases under one leader (I5)."""
        self._elected_uncleanly: dict[TopicPartition, BrokerId] = {}
        self._retention = RetentionAudit()
        store.on_state.append(lambda topic_partition, _: self._check_candidates(topic_partition, None))
        store.on_unclean.append(self._on_unclean)
        history.on_end.append(lambda topic_partition: self._check_candidates(topic_partition, None))

    @contextmanager
    def watching(self) -> Iterator[None]:
        with watching_logs(self):
            yield

    # ---- changes of logs

    def on_appended(self, log: Log, appended: list[BatchFacts], batches: list[Buffer], *, is_leader: bool) -> None:
        machine = self._machine()
        if machine is None:
            return
        self._retention.on_appended(log.topic_partition, log.topic_id, batches)
        mirror, ledger = self._mirror(log, machine.broker_id), self._ledger(log)
        if not mirror.batches or mirror.batches[-1] != appended[-1]:
            # Otherwise the mirror was just created from the log, with these batches.
            before = mirror.batches[-1] if mirror.batches else None
            if before is not None and appended[0].base_offset < before.end_offset:
                self._mirrors.pop(id(log), None)
                mirror, before = self._mirror(log, machine.broker_id), None
            else:
                mirror.batches += appended
            self._note(log, mirror, self._mismatches(log, ledger, appended, batches, before))
        if is_leader:
            self._check_single_leader(log, mirror, ledger, appended[0].leader_epoch)
        self._check_log(log, mirror)

    def _mismatches(
        self, log: Log, ledger: Ledger, appended: list[BatchFacts], batches: list[Buffer], before: BatchFacts | None
    ) -> Iterator[str]:
        """I3: replicas that have the same (offset, leader epoch) have the same batch."""
        if log.settings.is_compacted:
            lines = ledger.match_records(batches, [batch.leader_epoch for batch in appended])
        else:
            lines = ledger.match(appended, before)
        for line in lines:
            yield f"I3 {line}"

    def _check_single_leader(self, log: Log, mirror: Mirror, ledger: Ledger, leader_epoch: int) -> None:
        leader = ledger.leaders.setdefault(leader_epoch, mirror.broker_id)
        if leader != mirror.broker_id:
            self._note(log, mirror, [f"I6 it appends as leader in epoch {leader_epoch}, and so did broker {leader}"])

    def on_truncated(self, log: Log) -> None:
        machine = self._machine()
        if machine is None:
            return
        mirror = self._mirror(log, machine.broker_id)
        mirror.truncate(log.log_end_offset if log.log_start_offset < log.log_end_offset else 0)
        self._check_log(log, mirror)
        self._check_candidates(log.topic_partition, [machine.broker_id])

    def on_high_watermark(self, log: Log) -> None:
        machine = self._machine()
        if machine is None:
            return
        mirror, ledger = self._mirror(log, machine.broker_id), self._ledger(log)
        self._forget_lost_records(log, mirror)
        self._check_log(log, mirror)
        if self._is_current_leader(log, machine.broker_id):
            if not log.settings.is_compacted:
                self._note(log, mirror, (f"I2 {line}" for line in ledger.commit(mirror, log.high_watermark)))
            self._check_candidates(log.topic_partition, None)
        elif not log.settings.is_compacted:
            self._verify(log, mirror, log.high_watermark)

    def on_log_start(self, log: Log) -> None:
        machine = self._machine()
        if machine is not None:
            self._history.on_log_start(log.topic_partition, log.log_start_offset)
            ledger = self._ledger(log)
            ledger.deleted_offset = max(ledger.deleted_offset, log.log_start_offset)
            self._check_log(log, self._mirror(log, machine.broker_id))

    def on_retention(self, log: Log, start_before: int, now_ms: int) -> None:
        machine = self._machine()
        if machine is not None:
            deletion = Deletion(
                log.topic_partition,
                log.topic_id,
                start_before,
                log.log_start_offset,
                log.size_bytes,
                log.high_watermark,
                now_ms,
            )
            nodes = self._cluster.store_state.nodes
            self._note(log, self._mirror(log, machine.broker_id), self._retention.on_deleted(deletion, nodes))

    def on_compacted(self, log: Log) -> None:
        """Compaction adds nothing to the log: an offset never gets another record."""
        machine = self._machine()
        if machine is None:
            return
        self._mirrors.pop(id(log), None)
        mirror, ledger = self._mirror(log, machine.broker_id), self._ledger(log)
        held = batches(log, log.log_start_offset, log.log_end_offset)
        lines = ledger.match_records([batch for _, batch in held], [header.leader_epoch for header, _ in held])
        self._note(log, mirror, (f"I3 {line} after compaction" for line in lines))

    def on_leader(self, partition: Partition) -> None:
        machine = self._machine()
        if machine is not None:
            log = partition.log
            self._forget_lost_records(log, self._mirror(log, machine.broker_id))
            starts = [start.start_offset for start in log.leader_epochs.starts]
            if starts != sorted(starts) or (starts and starts[-1] > log.log_end_offset):
                mirror = self._mirror(log, machine.broker_id)
                self._note(log, mirror, [f"R3 its leader epochs are {log.leader_epochs.starts}"])

    def on_replaced(self, partition: Partition, replaced: Log) -> None:
        """R30: a log that moved between log directories has the same records, offsets and epochs."""
        machine = self._machine()
        if machine is None:
            return
        log = partition.log
        mirror, before = self._mirror(log, machine.broker_id), self._mirror(replaced, machine.broker_id)
        for name in ("log_start_offset", "log_end_offset", "high_watermark", "last_stable_offset", "topic_id"):
            old, new = getattr(replaced, name), getattr(log, name)
            if old != new:
                self._note(log, mirror, [f"R30 its {name} was {old} before it moved, and is {new}"])
        if not log.settings.is_compacted:
            start = log.log_start_offset
            held, had = ([batch for batch in each.batches if batch.end_offset > start] for each in (mirror, before))
            if held != had:
                self._note(log, mirror, [f"R30 its batches differ after it moved: {len(had)} before, {len(held)} now"])
        key = partition.leader_epoch
        if (id(replaced), key) in self._high_watermarks:
            self._high_watermarks[id(log), key] = self._high_watermarks[id(replaced), key]
        self._check_log(log, mirror)

    # ---- checks

    def _check_log(self, log: Log, mirror: Mirror) -> None:
        self.events += 1
        start, high_watermark, end = log.log_start_offset, log.high_watermark, log.log_end_offset
        if not start <= high_watermark <= end:
            self._note(log, mirror, [f"R4 its log is [{start}, {high_watermark}, {end}]"])
        partition = replica(self._cluster, mirror.broker_id, log.topic_partition)
        if partition is None or not partition.is_leader or partition.log is not log:
            return
        key = id(log), partition.leader_epoch
        previous = self._high_watermarks.get(key, 0)
        self._high_watermarks[key] = max(previous, high_watermark)
        if high_watermark < previous:
            self._note(log, mirror, [f"I5 its high watermark fell from {previous} to {high_watermark}"])

    def _check_candidates(self, topic_partition: TopicPartition, brokers: Iterable[BrokerId] | None) -> None:
        """I2, I4: every replica that may be elected has all committed and acknowledged records.

        Checks only the replicas on `brokers`, unless that is None.
        """
        stored = self._states.get(topic_partition)
        if stored is None or is_to_be_deleted(self._cluster.store_state, topic_partition.topic):
            return
        committed = self._committed_end(topic_partition, stored)
        acknowledged = self._history.ends.get(topic_partition, 0)
        state = stored.state
        for member in state.replicas:
            is_in_sync = member in state.in_sync_replicas
            if not is_in_sync and member not in state.eligible_leader_replicas:
                continue
            if brokers is not None and member not in brokers:
                continue
            log = held_log(self._cluster, member, topic_partition)
            held = 0 if log is None else log.log_end_offset
            is_whole = held >= acknowledged and (not is_in_sync or self._has_committed(log, held, committed))
            if is_whole or not self._may_be_elected(member, topic_partition, stored):
                continue
            if held < committed and is_in_sync:
                what = f"{topic_partition} in-sync replica {member} ends at {held}"
                self._add(f"I2 {what}, and {committed} is committed in epoch {state.leader_epoch}")
            if held < acknowledged:
                what = f"{topic_partition} {'in-sync' if is_in_sync else 'eligible'} replica {member} ends at {held}"
                self._add(f"I4 {what}, and {acknowledged} was acknowledged")
            if log is not None and committed and is_in_sync and not log.settings.is_compacted:
                self._verify(log, self._mirror(log, member), committed)

    def _has_committed(self, log: Log | None, held: int, committed: int) -> bool:
        """Whether the replica is verified up to `committed`: usually true, and cheaper than `_may_be_elected`."""
        if held < committed or log is None:
            return held >= committed
        entry = self._mirrors.get(id(log))
        return not committed or (entry is not None and entry[1].verified_offset >= committed)

    def _verify(self, log: Log, mirror: Mirror, end_offset: int) -> None:
        """I2: the replica has the committed records before `end_offset`. Most are verified up to there already."""
        if mirror.verified_offset < end_offset:
            self._note(log, mirror, (f"I2 {line}" for line in self._ledger(log).verify(mirror, end_offset)))

    def _committed_end(self, topic_partition: TopicPartition, stored: Stored) -> int:
        """High watermark of the current leader."""
        leader = stored.state.leader
        found = None if leader == NO_BROKER else replica(self._cluster, leader, topic_partition)
        if found is None or not found.is_leader or found.leader_epoch != stored.state.leader_epoch:
            return 0
        log = found.log
        return log.high_watermark if log.high_watermark > log.log_start_offset else 0

    def _on_unclean(self, topic_partition: TopicPartition, stored: Stored) -> None:
        """Remember the leader until its log shows which records are lost."""
        leader = stored.state.leader
        self._elected_uncleanly[topic_partition] = leader
        log = held_log(self._cluster, leader, topic_partition)
        if log is not None:
            self._forget_lost_records(log, self._mirror(log, leader))

    def _forget_lost_records(self, log: Log, leader: Mirror) -> None:
        """After an unclean election, records that the new leader lacks no longer count as committed.

        Called whenever the log of a leader may have become available.
        """
        topic_partition = log.topic_partition
        if self._elected_uncleanly.get(topic_partition) != leader.broker_id:
            return
        del self._elected_uncleanly[topic_partition]
        end_offset = self._ledger(log).lose(leader)
        for other, mirror in self._mirrors.values():
            if other.topic_partition == topic_partition:
                mirror.verified_offset = min(mirror.verified_offset, end_offset)

    # ---- lookups

    def _machine(self) -> Machine | None:
        """Machine of the current process; None outside the brokers of this cluster."""
        process = current_process()
        for machine in self._cluster.machines.values():
            if machine.process is process:
                return machine
        return None

    def _is_current_leader(self, log: Log, broker_id: BrokerId) -> bool:
        stored = self._states.get(log.topic_partition)
        if stored is None or stored.state.leader != broker_id:
            return False
        found = replica(self._cluster, broker_id, log.topic_partition)
        return found is not None and found.is_leader and found.leader_epoch == stored.state.leader_epoch

    def _ledger(self, log: Log) -> Ledger:
        """A log with damaged metadata has no topic id until LeaderAndIsr sets it: it shares the partition's ledger."""
        topic_partition = log.topic_partition
        if log.topic_id is not None:
            self._topic_ids[topic_partition] = log.topic_id
        return self._ledgers[self._topic_ids.get(topic_partition, ZERO_UUID), topic_partition]

    def _mirror(self, log: Log, broker_id: BrokerId) -> Mirror:
        entry = self._mirrors.get(id(log))
        if entry is not None:
            return entry[1]
        mirror = Mirror(broker_id, [])
        self._mirrors[id(log)] = log, mirror
        try:
            held = batches(log, log.log_start_offset, log.log_end_offset)
        except (KafkaError, OSError):  # its directory is offline
            return mirror
        mirror.batches += [
            BatchFacts(header.base_offset, header.end_offset, header.leader_epoch, header.crc) for header, _ in held
        ]
        lines = self._mismatches(log, self._ledger(log), mirror.batches, [batch for _, batch in held], None)
        self._note(log, mirror, lines)
        return mirror

    def forget_dead(self) -> None:
        """Drop mirrors of logs that no broker holds any more."""
        for key, (log, mirror) in list(self._mirrors.items()):
            if held_log(self._cluster, mirror.broker_id, log.topic_partition) is not log:
                del self._mirrors[key]

    def _note(self, log: Log, mirror: Mirror, lines: Iterable[str]) -> None:
        for line in lines:
            rule, _, what = line.partition(" ")
            self._add(f"{rule} {log.topic_partition} on broker {mirror.broker_id}: {what}")

    def _add(self, line: str) -> None:
        if len(self.violations) < MAX_VIOLATIONS and line not in self._recorded:
            self._recorded.add(line)
            self.violations.append(f"{line} (at {self._cluster.clock.monotonic():.3f} s)")
