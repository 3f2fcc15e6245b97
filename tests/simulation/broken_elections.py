"""Rules of elections, incarnations and the controller, each removed for the length of a block."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import AsyncMock, patch

from tidelog.cluster.image import BrokerRegistration
from tidelog.cluster.image import PartitionRegistration as PartitionState
from tidelog.controller import broker_changes, elections
from tidelog.controller.broker_changes import Difference, difference
from tidelog.controller.context import ControllerContext
from tidelog.controller.elections import Decision, Health
from tidelog.controller.fenced_store import FencedStore
from tidelog.errors import OffsetOutOfRange
from tidelog.protocol.messages.fetch import FetchPartition, PartitionData
from tidelog.replication.alter_partition_manager import AlterPartitionManager, _Write
from tidelog.replication.fetch_reads import FetchParams
from tidelog.replication.leader import PartitionLeader
from tidelog.replication.partition import Partition
from tidelog.replication.remote_replica import NEVER_MS, RemoteReplica
from tidelog.replication.role_changes import RoleChanges
from tidelog.runtime.purgatory import DelayedOperation, Purgatory
from tidelog.storage.log_directory import CLEAN_SHUTDOWN_MARKER, LogDirectory
from tidelog.store.interface import Operation, Result
from tidelog.types import NO_BROKER, BrokerId


@contextmanager
def registration_epochs_ignored() -> Iterator[None]:
    """R39 as it was before KIP-903: a broker that is registered is the broker that was registered."""

    def by_id_only(
        known: Mapping[BrokerId, BrokerRegistration], current: Mapping[BrokerId, BrokerRegistration]
    ) -> Difference:
        return difference(known, current)._replace(restarted=elections.NO_BROKERS)

    with patch.object(broker_changes, "difference", by_id_only), incarnations_not_compared():
        yield


@contextmanager
def incarnations_not_compared() -> Iterator[None]:
    """R41: who is recorded as in sync is so, whichever incarnation of it is there."""
    with patch.object(ControllerContext, "_replaced", lambda *_: set()):
        yield


@contextmanager
def incarnations_forgotten_at_elections() -> Iterator[None]:
    """As before R41: elections do not say which incarnation they elect; registrations are compared with writes."""
    changed = elections._changed

    def forget(*arguments: Any) -> Decision:
        decision = changed(*arguments)
        return decision._replace(partition=replace(decision.partition, in_sync_epochs={}))

    with patch.object(elections, "_changed", forget):
        yield


@contextmanager
def nobody_eligible() -> Iterator[None]:
    """R42 as it was before KIP-966: who leaves the in-sync replicas is out, however few are left."""
    changed = elections._changed

    def forget(*arguments: Any) -> Decision:
        decision = changed(*arguments)
        return decision._replace(partition=replace(decision.partition, eligible_leader_replicas=()))

    with (
        patch.object(elections, "_changed", forget),
        patch.object(PartitionLeader, "eligible_without", lambda *_: {}),
    ):
        yield


@contextmanager
def first_one_back_leads() -> Iterator[None]:
    """R42 without questions: of those who restarted uncleanly one is as good as another."""

    def first(partition: PartitionState, health: Health) -> BrokerId | None:
        return elections._first_of(partition.replicas, elections._members(partition) & health.candidates - health.lost)

    with patch.object(elections, "_best_of_restarted", first):
        yield


@contextmanager
def lost_directories_overlooked() -> Iterator[None]:
    """R42 without KIP-858: a log directory is a log directory."""
    with patch.object(broker_changes, "load_log_directories", AsyncMock(return_value={})):
        yield


@contextmanager
def committing_while_somebody_is_eligible() -> Iterator[None]:
    """R42 without its other half: the high watermark moves, and who is eligible does not hold what is committed."""
    refresh = PartitionLeader.refresh_maximal_isr

    def overlook(self: PartitionLeader) -> None:
        refresh(self)
        self._may_commit = self.has_enough_in_sync and not self.is_superseded

    with patch.object(PartitionLeader, "refresh_maximal_isr", overlook):
        yield


@contextmanager
def own_writes_taken_for_others() -> Iterator[None]:
    """R20 without KAFKA-14144: any other version in the store is somebody else's."""

    async def lose(self: AlterPartitionManager, write: _Write) -> bool:
        self._on_lost(write, "the version is another")
        return True

    with patch.object(AlterPartitionManager, "_reread_state", lose):
        yield


@contextmanager
def caught_up_by_time_only() -> Iterator[None]:
    """R17 without KAFKA-7152: having everything does not count, only having fetched lately does."""

    def is_caught_up(self: RemoteReplica, leader_end_offset: int, now_ms: int, lag_time_max_ms: int) -> bool:
        return now_ms - self.caught_up_ms <= lag_time_max_ms

    with patch.object(RemoteReplica, "is_caught_up", is_caught_up):
        yield


@contextmanager
def caught_up_never_before_the_first_fetch() -> Iterator[None]:
    """R8 without the clock that starts with the leader's epoch."""
    init = RemoteReplica.__init__

    def start_without_clock(
        self: RemoteReplica, broker_id: BrokerId, now_ms: int, *, is_in_sync: bool, in_sync_epoch: int = -1
    ) -> None:
        init(self, broker_id, now_ms, is_in_sync=is_in_sync, in_sync_epoch=in_sync_epoch)
        self.caught_up_ms = NEVER_MS

    with patch.object(RemoteReplica, "__init__", start_without_clock):
        yield


@contextmanager
def joining_at_the_high_watermark_under_min_isr() -> Iterator[None]:
    """R19 without KAFKA-19996."""

    def joining_offset(self: PartitionLeader) -> int:
        return max(self.high_watermark, self.epoch_start_offset)

    with patch.object(PartitionLeader, "joining_offset", property(joining_offset)):
        yield


@contextmanager
def dead_leaders_stay_leaders() -> Iterator[None]:
    """R35 without KAFKA-3096: where nobody can be elected, nothing is written and no broker hears of it."""
    offline_election = elections._offline_leader_election

    def elect(partition: PartitionState, health: Health, unclean_allowed: bool) -> Decision | None:
        decision = offline_election(partition, health, unclean_allowed)
        return None if decision is None or decision.partition.leader == NO_BROKER else decision

    with patch.object(elections, "_offline_leader_election", elect):
        yield


@contextmanager
def clean_shutdown_marker_left_while_loading() -> Iterator[None]:
    """R6 without KAFKA-10471: the marker goes when the broker runs."""

    def look_only(self: LogDirectory) -> bool:
        self.was_clean = self.context.disk.exists(self.file(CLEAN_SHUTDOWN_MARKER))
        return self.was_clean

    with patch.object(LogDirectory, "consume_clean_shutdown_marker", look_only):
        yield


@contextmanager
def stopping_replicas_of_any_epoch() -> Iterator[None]:
    """R11 without KIP-570."""
    with patch.object(RoleChanges, "stop_rejection", lambda self, stop: None):
        yield


@contextmanager
def unfenced_controller_writes() -> Iterator[None]:
    """R31 without KAFKA-6082: a write does not ask whether its term is over."""

    async def write(self: FencedStore, operations: Sequence[Operation]) -> list[Result]:
        return await self._store.multi(operations)

    with patch.object(FencedStore, "write", write):
        yield


@contextmanager
def operations_completed_again_at_their_deadline() -> Iterator[None]:
    """R14 without KAFKA-6653: the deadline is not called off, and nobody looks whether the operation has ended."""

    def complete(self: DelayedOperation) -> None:
        self.is_completed = True
        for watchers in self._watched:
            watchers.operations.pop(self, None)
        self.on_completed()

    with patch.object(DelayedOperation, "complete", complete):
        yield


@contextmanager
def operations_asked_only_at_their_deadline() -> Iterator[None]:
    """R14 without the look at those who wait after each change."""
    with patch.object(Purgatory, "_check_changed", lambda self: self._changed.clear()):
        yield


@contextmanager
def uncommitted_offsets_out_of_range() -> Iterator[None]:
    """R15: what cannot be read yet is taken for what was never written."""
    fetch_records = Partition.fetch_records

    def reject(
        self: Partition, params: FetchParams, request: FetchPartition, max_bytes: int, **options: Any
    ) -> PartitionData:
        if not params.is_follower and request.fetch_offset > self.log.high_watermark:
            raise OffsetOutOfRange
        return fetch_records(self, params, request, max_bytes, **options)

    with patch.object(Partition, "fetch_records", reject):
        yield
