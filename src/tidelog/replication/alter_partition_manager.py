"""ISR changes in the store (Kafka: AlterPartitionManager): compare-and-set, one in flight per partition (R20)."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from tidelog.cluster import image
from tidelog.cluster.znodes import UNKNOWN_EPOCH, MalformedNode, decode_state, encode_state, state_path
from tidelog.replication.assignment import LOGGED_ONE_BY_ONE
from tidelog.replication.leader import PartitionLeader, ProposeInSyncReplicas
from tidelog.replication.leader_confirmation import suspend_superseded
from tidelog.replication.out_of_sync import out_of_sync
from tidelog.replication.partition import Partition
from tidelog.store.interface import (
    BadVersion,
    Node,
    NoNode,
    Set,
    Store,
    StoreError,
)
from tidelog.types import TopicPartition, ids_text

logger = logging.getLogger(__name__)

WRITTEN_TOGETHER = 100
FIRST_BACKOFF_S = 0.05
MAX_BACKOFF_S = 1.0


class _Write(NamedTuple):
    partition: Partition
    leader: PartitionLeader
    proposal: ProposeInSyncReplicas

    @property
    def path(self) -> str:
        return state_path(*self.partition.topic_partition)

    @property
    def is_current(self) -> bool:
        """Whether the partition still has this leader; otherwise the outcome of the write is ignored."""
        return self.partition.role is self.leader

    @property
    def state(self) -> image.PartitionRegistration:
        return image.PartitionRegistration(
            index=self.partition.topic_partition.partition,
            replicas=self.partition.replicas,
            leader=self.leader.broker_id,
            leader_epoch=self.leader.leader_epoch,
            in_sync_replicas=self.proposal.in_sync_replicas,
            controller_epoch=self.partition.controller_epoch,
            version=self.proposal.expected_version,
            in_sync_epochs=self.proposal.epochs,
            eligible_leader_replicas=tuple(self.proposal.eligible_leader_epochs),
            eligible_leader_epochs=self.proposal.eligible_leader_epochs,
        )


class OnChanged(Protocol):
    def __call__(self, changed: Iterable[TopicPartition], *, is_urgent: bool) -> None:
        """The in-sync replicas of these partitions were written; urgent where a reassignment waits for it (R37)."""


class AlterPartitionManager:
    """Writes the proposals of leaders to the store and reports the outcome to the leader."""

    def __init__(
        self,
        store: Callable[[], Store],
        now_ms: Callable[[], int],
        on_changed: OnChanged,
    ) -> None:
        self._store = store
        self._now_ms = now_ms
        self._on_changed = on_changed
        self._waiting: list[_Write] = []
        self._has_waiting = asyncio.Event()
        self.shrinks = 0
        self.expands = 0
        self.failed_updates = 0

    def propose(self, partition: Partition, leader: PartitionLeader, proposal: ProposeInSyncReplicas) -> None:
        self._waiting.append(_Write(partition, leader, proposal))
        self._has_waiting.set()

    async def run(self) -> None:
        """Write proposals until cancelled. Proposals made at the same time share store transactions."""
        while True:
            await self._has_waiting.wait()
            self._has_waiting.clear()
            writes, self._waiting = self._waiting, []
            for start in range(0, len(writes), WRITTEN_TOGETHER):
                await self._settle(writes[start : start + WRITTEN_TOGETHER])

    async def _settle(self, writes: list[_Write]) -> None:
        """Retry until each is written, rejected, or obsolete."""
        backoff_s = FIRST_BACKOFF_S
        while writes := [write for write in writes if write.is_current]:
            try:
                await self._write_together(writes)
                return
            except (BadVersion, NoNode):
                unsettled = [write for write in writes if not await self._write_alone(write)]
            except StoreError as error:
                logger.warning("cannot write in-sync replicas, retrying partitions=%d reason=%s", len(writes), error)
                unsettled = writes
            if unsettled:
                await asyncio.sleep(backoff_s)
                backoff_s = min(backoff_s * 2, MAX_BACKOFF_S)
            writes = unsettled

    async def _write_together(self, writes: list[_Write]) -> None:
        operations = [Set(write.path, encode_state(write.state), write.proposal.expected_version) for write in writes]
        results = await self._store().multi(operations)
        written = []
        for write, node in zip(writes, results, strict=True):
            assert isinstance(node, Node)
            written.append((write, node.version))
        self._on_written(written)

    async def _write_alone(self, write: _Write) -> bool:
        """Whether the write is settled: written, rejected because the state is newer, or obsolete."""
        if not write.is_current:
            # The session may have ended while another write was answered. The next session may use another store,
            # where the expected version belongs to a state that this leader does not know (R44).
            return True
        try:
            node = await self._store().set(write.path, encode_state(write.state), write.proposal.expected_version)
            self._on_written([(write, node.version)])
        except BadVersion:
            return await self._reread_state(write)
        except NoNode:
            self._on_lost(write, "the partition was deleted from the store")
        except StoreError as error:
            _log_failure(write, error)
            return False
        return True

    async def _reread_state(self, write: _Write) -> bool:
        """The state has another version. It may be this write, if only its response was lost (KAFKA-14144)."""
        try:
            node = await self._store().get(write.path)
            found = decode_state(write.partition.topic_partition.topic, write.state, node.data, node.version)
        except (NoNode, MalformedNode) as error:
            self._on_lost(write, str(error))
            return True
        except StoreError as error:
            _log_failure(write, error)
            return False
        mine = write.state
        if (found.leader, found.leader_epoch) == (mine.leader, mine.leader_epoch):
            # In one leader epoch only its leader writes the state: this was an earlier attempt of the same write.
            self._on_written([(write, node.version)], found)
        else:
            self._on_lost(write, f"leader epoch {found.leader_epoch} of broker {found.leader} has begun")
            suspend_superseded(write.partition, write.leader, found)
        return True

    def _on_lost(self, write: _Write, reason: str) -> None:
        self.failed_updates += 1
        logger.info(
            "change of in-sync replicas rejected partition=%s proposed=%s leader_epoch=%d reason=%s",
            write.partition.topic_partition,
            ids_text(write.proposal.in_sync_replicas),
            write.leader.leader_epoch,
            reason,
        )
        write.leader.on_lost()

    def _on_written(self, written: list[tuple[_Write, int]], found: image.PartitionRegistration | None = None) -> None:
        for write, version in written:
            proposal = write.proposal
            self.shrinks += bool(proposal.leaving)
            self.expands += bool(proposal.joining)
            state = write.state if found is None else found
            eligible = {
                each: state.eligible_leader_epochs.get(each, UNKNOWN_EPOCH) for each in state.eligible_leader_replicas
            }
            effects = write.leader.on_written(state.in_sync_replicas, version, self._now_ms(), eligible)
            write.partition.perform(write.leader, effects)
            _log_change(write, logging.INFO if len(written) <= LOGGED_ONE_BY_ONE else logging.DEBUG)
        if len(written) > LOGGED_ONE_BY_ONE:
            _log_changes([write for write, _ in written])
        self._on_changed(
            [write.partition.topic_partition for write, _ in written],
            is_urgent=any(set(write.proposal.joining) & set(write.partition.adding_replicas) for write, _ in written),
        )


def _log_failure(write: _Write, error: StoreError) -> None:
    logger.warning(
        "cannot write in-sync replicas, retrying partition=%s reason=%s", write.partition.topic_partition, error
    )


def _log_change(write: _Write, level: int) -> None:
    """Log lines for operators: which replica, why, how far behind, and what brings it back."""
    if not logger.isEnabledFor(level):
        return
    partition, leader, proposal = write
    in_sync = ids_text(proposal.in_sync_replicas)
    fields = (partition.topic_partition, in_sync, leader.log_end_offset, leader.high_watermark)
    for replica in proposal.joining:
        logger.log(
            level,
            "replica joined the in-sync replicas partition=%s in_sync=%s log_end=%d high_watermark=%d replica=%d",
            *fields,
            replica,
        )
    for left in [each for each in out_of_sync(leader) if each.replica in proposal.leaving]:
        logger.log(
            level,
            "replica left the in-sync replicas partition=%s in_sync=%s log_end=%d high_watermark=%d %s",
            *fields,
            left,
        )


def _log_changes(writes: list[_Write]) -> None:
    left = sorted({replica for write in writes for replica in write.proposal.leaving})
    joined = sorted({replica for write in writes for replica in write.proposal.joining})
    reasons = sorted({write.proposal.reason for write in writes})
    logger.info(
        "in-sync replicas changed partitions=%d left=%s joined=%s reason=%s",
        len(writes),
        ids_text(left),
        ids_text(joined),
        "; ".join(reasons),
    )
