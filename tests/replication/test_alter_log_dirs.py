"""Moves of replicas between log directories while they are in use, on virtual time (R30)."""

import asyncio
import errno
from collections.abc import Awaitable, Callable

import pytest

from tests.replication.leaders import ORDERS, ORDERS_ID, Replicas, assignment_of
from tests.storage.logs import all_records, append_many, batch_of
from tidelog.errors import KafkaStorageError, LogDirNotFound, ReplicaNotAvailable
from tidelog.replication.alter_log_dirs import AlterLogDirsManager
from tidelog.replication.assignment import EPOCH_DURING_DELETE, ReplicaStop
from tidelog.replication.partition import Partition
from tidelog.runtime.memory_disk import MemoryDisk
from tidelog.runtime.randomness import SeededRandomness
from tidelog.runtime.virtual_time import VirtualClock, VirtualTimeLoop, run_virtually
from tidelog.runtime.workers import SimulatedWorkers
from tidelog.storage.future_logs import FutureLogs
from tidelog.storage.log import Log
from tidelog.types import TopicPartition

ONE, TWO, THREE = "/one", "/two", "/three"


class Stage:
    """A broker with three log dirs; workers take up to 10 ms of virtual time."""

    def __init__(self, disk: MemoryDisk, replicas: Replicas, clock: VirtualClock) -> None:
        self.disk = disk
        self.replicas = replicas
        self.logs = replicas.logs
        workers = SimulatedWorkers(SeededRandomness(3), longest_delay_s=0.01)
        self.moves = AlterLogDirsManager(self.logs, replicas.manager.get, clock, workers)
        self.moves.copy_bytes = 500
        replicas.manager.on_leadership_change.append(self.moves.on_leadership_change)
        self.logs.on_directory_offline.append(lambda _, failed: replicas.manager.mark_offline(failed))
        self.running = asyncio.ensure_future(self.moves.run())

    @classmethod
    async def on(cls, disk: MemoryDisk) -> "Stage":
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        clock = VirtualClock(loop)
        return cls(disk, await Replicas.on(disk, clock=clock, log_dirs=(ONE, TWO, THREE)), clock)

    @property
    def partition(self) -> Partition:
        return self.replicas.orders()

    @property
    def log(self) -> Log:
        return self.partition.log

    def lead(self, epoch: int = 5) -> Partition:
        assert self.replicas.take(assignment_of(1, 2, epoch=epoch)) == [None]
        return self.partition

    def follow(self, epoch: int) -> Partition:
        assert self.replicas.take(assignment_of(1, 2, leader=2, epoch=epoch)) == [None]
        return self.partition

    async def settled(self) -> None:
        for _ in range(1000):
            if not self.logs.future.logs and not self.logs.future.finishing:
                return
            await asyncio.sleep(0.05)
        raise AssertionError("the move does not end")

    def end(self) -> None:
        self.running.cancel()


def on_stage(scenario: Callable[[Stage], Awaitable[None]]) -> None:
    async def main() -> None:
        stage = await Stage.on(MemoryDisk())
        await scenario(stage)
        stage.end()

    run_virtually(main())


def values(log: Log) -> list[bytes | None]:
    return [record.value for record in all_records(log)]


def test_a_replica_moves_while_it_is_written() -> None:
    async def scenario(stage: Stage) -> None:
        partition = stage.lead()
        append_many(stage.log, 200)
        stage.moves.alter(ORDERS, TWO)
        for number in range(50):
            await asyncio.sleep(0.001)
            partition.append_as_leader(batch_of(b"late %d" % number), acks=1)
        await stage.settled()
        assert stage.log.directory.path == TWO
        assert stage.log.log_end_offset == 250
        assert values(stage.log)[200:] == [b"late %d" % number for number in range(50)]
        assert partition.append_as_leader(batch_of(b"after"), acks=1).first_offset == 250
        assert stage.moves.swaps == 1

    on_stage(scenario)


def test_the_current_log_dir_cancels_a_move() -> None:
    async def scenario(stage: Stage) -> None:
        stage.lead()
        append_many(stage.log, 20)
        stage.moves.alter(ORDERS, TWO)
        assert [each.target for each in stage.moves.progress()] == [TWO]
        stage.moves.alter(ORDERS, ONE)
        assert stage.moves.progress() == []
        await asyncio.sleep(1)
        assert (stage.log.directory.path, stage.log.log_end_offset) == (ONE, 20)

    on_stage(scenario)


def test_another_target_replaces_the_first() -> None:
    async def scenario(stage: Stage) -> None:
        stage.lead()
        append_many(stage.log, 20)
        stage.moves.alter(ORDERS, TWO)
        stage.moves.alter(ORDERS, TWO)
        await asyncio.sleep(0.005)
        stage.moves.alter(ORDERS, THREE)
        await stage.settled()
        assert (stage.log.directory.path, stage.log.log_end_offset) == (THREE, 20)

    on_stage(scenario)


def test_a_follower_that_truncates_and_leads_does_not_stop_its_move() -> None:
    """KAFKA-9087: a change of the leader in the middle of a move."""

    async def scenario(stage: Stage) -> None:
        stage.follow(5)
        append_many(stage.log, 100)
        stage.moves.alter(ORDERS, TWO)
        await asyncio.sleep(0.005)
        stage.partition.truncate_to(60, leader_epoch=5)
        stage.follow(6)
        stage.partition.truncate_to(40, leader_epoch=6)
        stage.lead(7)
        stage.partition.append_as_leader(batch_of(b"of epoch 7"), acks=1)
        expected = values(stage.log)
        await stage.settled()
        assert stage.log.directory.path == TWO
        assert values(stage.log) == expected
        assert stage.log.leader_epochs.latest_epoch == 7
        stage.follow(8)
        stage.partition.truncate_to(39, leader_epoch=8)
        assert stage.log.log_end_offset == 39

    on_stage(scenario)


def test_a_truncation_while_records_are_read_discards_them() -> None:
    async def scenario(stage: Stage) -> None:
        for cut in range(1, 40, 3):
            stage.follow(10 + cut)
            stage.partition.truncate_fully_and_start_at(0, leader_epoch=10 + cut)
            append_many(stage.log, 40)
            target = TWO if stage.log.directory.path == ONE else ONE
            stage.moves.alter(ORDERS, target)
            await asyncio.sleep(0.0005 * cut)
            stage.partition.truncate_to(cut, leader_epoch=10 + cut)
            stage.log.append_as_leader(batch_of(b"other"), 10 + cut)
            expected = values(stage.log)
            await stage.settled()
            assert values(stage.log) == expected

    on_stage(scenario)


def test_the_high_watermark_does_not_fall_at_the_swap() -> None:
    async def scenario(stage: Stage) -> None:
        partition = stage.lead()
        append_many(stage.log, 30)
        partition.perform(partition.require_leader(), None)
        stage.log.raise_high_watermark(0)
        before = stage.log.high_watermark
        stage.moves.alter(ORDERS, TWO)
        await stage.settled()
        assert stage.log.high_watermark == before
        leader = partition.require_leader()
        assert leader.high_watermark == stage.log.high_watermark

    on_stage(scenario)


def test_the_log_start_moves_during_a_move() -> None:
    async def scenario(stage: Stage) -> None:
        stage.follow(5)
        append_many(stage.log, 100)
        stage.moves.alter(ORDERS, TWO)
        stage.log.raise_high_watermark(90)
        await asyncio.sleep(0.003)
        stage.log.advance_log_start_offset(77)
        await stage.settled()
        assert (stage.log.directory.path, stage.log.log_start_offset, stage.log.high_watermark) == (TWO, 77, 90)
        assert [record.offset for record in all_records(stage.log)] == list(range(77, 100))

    on_stage(scenario)


def test_deletion_of_the_topic_ends_its_move() -> None:
    async def scenario(stage: Stage) -> None:
        stage.lead()
        append_many(stage.log, 100)
        stage.moves.alter(ORDERS, TWO)
        await asyncio.sleep(0.003)
        stop = ReplicaStop(ORDERS, leader_epoch=EPOCH_DURING_DELETE, delete=True, topic_id=ORDERS_ID)
        assert stage.replicas.manager.stop_replicas(1, [stop]) == {ORDERS: None}
        await asyncio.sleep(1)
        assert stage.logs.get(ORDERS) is None
        assert not stage.logs.future.logs

    on_stage(scenario)


def test_a_disk_that_fails_takes_only_its_partitions_and_future_logs() -> None:
    async def scenario(stage: Stage) -> None:
        other = TopicPartition("orders", 1)
        stage.replicas.take(assignment_of(1, 2), assignment_of(1, 2, topic_partition=other))
        append_many(stage.log, 10)
        assert [stage.logs.logs[each].directory.path for each in (ORDERS, other)] == [ONE, TWO]
        stage.moves.alter(ORDERS, TWO)
        stage.disk.inject(errno.EIO, TWO)
        await asyncio.sleep(5)
        assert stage.replicas.manager.offline_partitions == {other}
        assert stage.log.directory.path == ONE
        stage.partition.append_as_leader(batch_of(b"goes on"), acks=1)
        with pytest.raises(KafkaStorageError):
            stage.moves.alter(ORDERS, TWO)

    on_stage(scenario)


def test_the_disk_of_the_current_log_fails() -> None:
    async def scenario(stage: Stage) -> None:
        stage.lead()
        append_many(stage.log, 100)
        stage.moves.alter(ORDERS, TWO)
        stage.disk.inject(errno.EIO, ONE)
        await asyncio.sleep(5)
        assert stage.replicas.manager.offline_partitions == {ORDERS}
        assert stage.moves.swaps == 0

    on_stage(scenario)


def test_a_shortage_of_descriptors_only_delays_a_move() -> None:
    async def scenario(stage: Stage) -> None:
        stage.lead()
        append_many(stage.log, 100)
        stage.moves.alter(ORDERS, TWO)
        fault = stage.disk.inject(errno.EMFILE, TWO, ("open", "write_file_atomically", "sync_directory"))
        await asyncio.sleep(10)
        stage.disk.faults.remove(fault)
        await stage.settled()
        assert (stage.log.directory.path, stage.log.log_end_offset) == (TWO, 100)

    on_stage(scenario)


def test_unknown_and_unhosted() -> None:
    async def scenario(stage: Stage) -> None:
        with pytest.raises(LogDirNotFound):
            stage.moves.alter(ORDERS, "/elsewhere")
        with pytest.raises(ReplicaNotAvailable):
            stage.moves.alter(ORDERS, THREE)
        stage.lead()
        assert stage.log.directory.path == THREE

    on_stage(scenario)


def test_a_restart_in_the_middle_goes_on_when_the_controller_assigns_the_partition() -> None:
    async def main() -> None:
        disk = MemoryDisk()
        stage = await Stage.on(disk)
        stage.lead()
        append_many(stage.log, 300)
        await stage.log.flush()
        stage.moves.alter(ORDERS, TWO)
        await asyncio.sleep(0.004)
        stage.end()
        disk.crash()
        again = await Stage.on(disk)
        assert ORDERS in again.logs.future.logs
        await asyncio.sleep(1)
        assert ORDERS in again.logs.future.logs
        assert again.replicas.take(assignment_of(1, 2, epoch=6, is_new=False)) == [None]
        await again.settled()
        assert (again.log.directory.path, again.log.log_end_offset) == (TWO, 300)
        again.end()

    run_virtually(main())


class SlowQuota:
    """100 bytes a second."""

    def __init__(self) -> None:
        self.free_s = 0.0

    def record(self, size: int, now_s: float) -> None:
        self.free_s = max(self.free_s, now_s) + size / 100

    def wait_s(self, now_s: float) -> float:
        return max(self.free_s - now_s, 0.0)


def test_a_quota_slows_a_move() -> None:
    async def scenario(stage: Stage) -> None:
        stage.lead()
        append_many(stage.log, 10)
        size = stage.log.size_bytes
        stage.moves.quota = SlowQuota()
        began_s = asyncio.get_running_loop().time()
        stage.moves.alter(ORDERS, TWO)
        await stage.settled()
        append_many(stage.log, 1)
        stage.moves.alter(ORDERS, THREE)
        await stage.settled()
        assert asyncio.get_running_loop().time() - began_s >= size / 100

    on_stage(scenario)


def test_without_the_truncation_of_future_logs_other_records_would_be_swapped_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The rule is needed: a log that is cut and written again between two steps of a move looks like its copy."""
    monkeypatch.setattr(FutureLogs, "_on_truncated", lambda *_: None)

    async def scenario(stage: Stage) -> None:
        stage.follow(5)
        append_many(stage.log, 40)
        stage.moves.quota = SlowQuota()
        stage.moves.alter(ORDERS, TWO)
        await asyncio.sleep(0.1)
        copied = stage.logs.future.logs[ORDERS].log_end_offset
        assert 0 < copied < 40
        stage.partition.truncate_to(1, leader_epoch=5)
        for number in range(40):
            stage.log.append_as_leader(batch_of(b"other %d" % number), 6)
        expected = values(stage.log)
        await stage.settled()
        assert values(stage.log) != expected

    on_stage(scenario)
