"""Rules of replication, each taken out of the product for the length of a block: what scenarios must notice."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from unittest.mock import patch

from tidelog.errors import NotLeaderOrFollower
from tidelog.protocol.messages.fetch import PartitionData
from tidelog.replication import follower
from tidelog.replication.assignment import PartitionAssignment
from tidelog.replication.follower import (
    Effect,
    FollowerLog,
    FollowerState,
    OffsetTruncationState,
    PartitionFollower,
    offset_truncation_state,
)
from tidelog.replication.follower_effects import FollowerEffectRunner
from tidelog.replication.leader import LeaderEffects, PartitionLeader
from tidelog.replication.partition import Partition
from tidelog.replication.partition_states import PartitionFetchState
from tidelog.replication.remote_replica import RemoteReplica
from tidelog.server.refused_batches import RefusedBatches
from tidelog.storage import follower_checks, producer_state
from tidelog.storage import log as log_module
from tidelog.storage.follower_checks import CheckedBatches, checked_batches
from tidelog.storage.leader_epochs import EpochEnd, LeaderEpochs
from tidelog.storage.log import Log
from tidelog.types import BrokerId, Buffer


@contextmanager
def without_divergence_in_fetches() -> Iterator[None]:
    """As before KIP-595: a leader does not compare the reader's last epoch with its own log."""
    with patch.object(LeaderEpochs, "diverging_epoch", lambda *_: None):
        yield


# ---- followers


@contextmanager
def truncating_to_the_high_watermark() -> Iterator[None]:
    """R27 as it was before KIP-101."""
    with patch.object(PartitionFollower, "ask_epoch", lambda self: None):
        yield


@contextmanager
def without_second_question() -> Iterator[None]:
    """R27 as it was before KIP-279: the first answer is taken for the last."""

    def first_answer(leader: EpochEnd, log: FollowerLog) -> OffsetTruncationState:
        return OffsetTruncationState(offset_truncation_state(leader, log).offset, is_final=True)

    with patch.object(follower, "offset_truncation_state", first_answer), without_divergence_in_fetches():
        yield


@contextmanager
def fetching_before_reconciling() -> Iterator[None]:
    """A new epoch of the same leader changes nothing for its followers, unless their fetches name the epoch."""
    become_follower = Partition.become_follower

    def fetch_at_once(self: Partition, assignment: PartitionAssignment) -> None:
        leader_before = self.leader_id
        become_follower(self, assignment)
        if assignment.leader == leader_before:
            assert isinstance(self.role, PartitionFollower)
            self.role.state = FollowerState.FETCHING

    with patch.object(Partition, "become_follower", fetch_at_once):
        yield


@contextmanager
def reconciling_only_with_another_leader() -> Iterator[None]:
    """R27 without KAFKA-7164."""
    with fetching_before_reconciling(), without_divergence_in_fetches():
        yield


@contextmanager
def high_watermark_before_the_cut() -> Iterator[None]:
    """R28: the high watermark of an answer counts, though the answer says that the logs diverge."""
    process = FollowerEffectRunner.process_partition_data

    def raise_first(self: FollowerEffectRunner, followed: PartitionFetchState, data: PartitionData) -> None:
        followed.partition.log.raise_high_watermark(data.high_watermark)
        process(self, followed, data)

    with patch.object(FollowerEffectRunner, "process_partition_data", raise_first):
        yield


@contextmanager
def counting_late_answers() -> Iterator[None]:
    """R26 without KAFKA-18991: whatever arrives counts, whenever and in whichever epoch it was asked for."""
    on_epoch_end = PartitionFollower.on_epoch_end

    def take_any(self: PartitionFollower, error_code: int, leader: EpochEnd) -> Effect | None:
        if self.asked is None:
            self.asked = self.log.leader_epochs.latest_epoch
        return on_epoch_end(self, error_code, leader)

    with patch.object(PartitionFollower, "on_epoch_end", take_any):
        yield


@contextmanager
def taking_batches_of_later_epochs() -> Iterator[None]:
    """R28 without KAFKA-18723."""

    def check_less(
        batches: Buffer, log_start_offset: int, log_end_offset: int, leader_epoch: int | None = None
    ) -> tuple[CheckedBatches, bool]:
        return checked_batches(batches, log_start_offset, log_end_offset)

    with patch.object(log_module, "checked_batches", check_less):
        yield


@contextmanager
def rejecting_batches_around_the_log_start() -> Iterator[None]:
    """R15 without KAFKA-6975: an empty log takes only a batch that begins at its start."""
    with patch.object(follower_checks, "_holds_the_start", lambda *_: False):
        yield


# ---- logs


@contextmanager
def leaders_without_an_epoch_entry() -> Iterator[None]:
    """R3 without KAFKA-7415: the start of an epoch is noted with its first record."""
    become_leader = Partition.become_leader

    def forget_the_epoch(self: Partition, assignment: PartitionAssignment) -> None:
        become_leader(self, assignment)
        self.log.leader_epochs.truncate_from_end(self.log.log_end_offset)

    with patch.object(Partition, "become_leader", forget_the_epoch):
        yield


@contextmanager
def keeping_epoch_entries_where_nothing_is_cut() -> Iterator[None]:
    """R3 without KAFKA-10706."""
    truncate_to = Log.truncate_to

    def cut_records_only(self: Log, offset: int) -> None:
        if offset < self.log_end_offset:
            truncate_to(self, offset)

    with patch.object(Log, "truncate_to", cut_records_only):
        yield


@contextmanager
def keeping_the_high_watermark_of_a_dropped_log() -> Iterator[None]:
    """R4 without KAFKA-9491."""
    truncate_fully_and_start_at = Log.truncate_fully_and_start_at

    def keep_it(self: Log, offset: int) -> None:
        high_watermark = self.high_watermark
        truncate_fully_and_start_at(self, offset)
        self.high_watermark = high_watermark

    with patch.object(Log, "truncate_fully_and_start_at", keep_it):
        yield


# ---- leaders


@contextmanager
def unfenced_fetches() -> Iterator[None]:
    """R16 as it was before KIP-320: a fetch does not name the epoch that the reader knows."""

    def require_any_leader(self: Partition, current_leader_epoch: int = -1) -> PartitionLeader:
        if self.leader is None:
            raise NotLeaderOrFollower
        return self.leader

    with patch.object(Partition, "require_leader", require_any_leader), without_divergence_in_fetches():
        yield


@contextmanager
def without_a_try_after_the_shrink() -> Iterator[None]:
    """R20 without KAFKA-13091: the high watermark waits for the next event."""
    on_written = PartitionLeader.on_written

    def leave_the_high_watermark(
        self: PartitionLeader,
        in_sync_replicas: Sequence[BrokerId],
        version: int,
        now_ms: int,
        eligible_leader_epochs: Mapping[BrokerId, int] | None = None,
    ) -> LeaderEffects | None:
        with patch.object(PartitionLeader, "maybe_increment_high_watermark", lambda self, now_ms: None):
            return on_written(self, in_sync_replicas, version, now_ms, eligible_leader_epochs)

    with patch.object(PartitionLeader, "on_written", leave_the_high_watermark):
        yield


@contextmanager
def waiting_for_replicas_that_may_not_join() -> Iterator[None]:
    """R18 without KAFKA-15021: who caught up lately counts, be its broker gone or going."""
    with patch.object(PartitionLeader, "is_isr_eligible", lambda self, follower: True):
        yield


@contextmanager
def joining_before_the_epoch_start() -> Iterator[None]:
    """R19 without KAFKA-7128: the high watermark of a new leader, which may be old, is all that must be reached."""
    with (
        patch.object(PartitionLeader, "joining_offset", property(lambda self: self.high_watermark)),
        patch.object(PartitionLeader, "surely_committed_offset", property(lambda self: self.high_watermark)),
    ):
        yield


@contextmanager
def high_watermark_over_the_plain_isr() -> Iterator[None]:
    """R18 as it was before KIP-497: who joins counts once the leader knows that it has joined."""

    def is_in_sync(self: PartitionLeader, follower: RemoteReplica, now_ms: int) -> bool:
        return follower.broker_id in self.in_sync_replicas

    with patch.object(PartitionLeader, "holds_back_high_watermark", is_in_sync):
        yield


# ---- producers


@contextmanager
def snapshots_of_the_last_batch() -> Iterator[None]:
    """As Apache Kafka's: of each producer a snapshot has one batch, not five."""
    with patch.object(producer_state, "_earlier_batches", lambda state: b""):
        yield


@contextmanager
def batches_overtake_refused_ones() -> Iterator[None]:
    """As in Apache Kafka: a batch behind a refused one is out of order, or the first of a producer."""
    with patch.object(RefusedBatches, "check", lambda *_: None):
        yield
