"""Takeover of log directories by an empty coordination store: the part of each broker (R44)."""

import asyncio
import logging
from collections.abc import Callable

from tidelog.cluster import znodes
from tidelog.cluster.inventory import Backup, FoundLog, Inventory
from tidelog.cluster.znodes import TakeoverState
from tidelog.controller.context_loading import load_topics
from tidelog.controller.elections import NO_STATE_VERSION
from tidelog.controller.registration import find_cluster_id
from tidelog.controller.takeover import (
    clear_verdict,
    delete_inventory,
    has_foreign_controller,
    publish_inventory,
    raise_controller_epoch,
    read_store_state,
)
from tidelog.runtime.clock import Clock
from tidelog.runtime.randomness import Randomness
from tidelog.server.cluster_backup import ClusterBackup
from tidelog.server.store_marks import StoreMark, count_missing_changes, ensure_store_id
from tidelog.storage.log_manager import LogManager
from tidelog.store.interface import Store, StoreError
from tidelog.types import NO_PRODUCER_ID, BrokerId, TopicPartition

logger = logging.getLogger(__name__)

POLL_S = 0.1
STALE_READ_TOLERANCE_S = 3.0
"""A ZooKeeper server may briefly lag behind the others."""


LOGS_BESIDE_FOREIGN_CONTROLLER = (
    "the coordination store is empty, the log directories are not, and the controller is a broker of Apache Kafka,"
    " which does not take over logs: stop it, and start a broker of Tidelog first"
)


class TakeoverRejected(StoreError):
    """The store does not belong to the log directories: it is unknown which records were acknowledged."""


async def _controller_epoch(store: Store) -> int:
    node = await store.exists(znodes.CONTROLLER_EPOCH)
    return 0 if node is None else znodes.decode_controller_epoch(node.data)


class StoreEntry:
    """Checks of the store at the begin of each session. The broker serves nothing before the store is in use."""

    def __init__(
        self,
        broker_id: BrokerId,
        cluster_id: str,
        logs: LogManager,
        backup: ClusterBackup,
        clock: Clock,
        randomness: Randomness,
    ) -> None:
        self._broker_id = broker_id
        self._cluster_id = cluster_id
        self._logs = logs
        self._backup = backup
        self._clock = clock
        self._randomness = randomness
        self.controller_epoch: Callable[[], int] = lambda: 0
        self.on_rebuilt: Callable[[], None] = lambda: None
        """Called when a store that was lost while this broker runs is in use again."""
        self.is_in_use = False
        """Whether the current store has the metadata of its cluster."""
        self.obstacle = ""
        """What the takeover waits for, as a sentence."""

    async def enter(self, store: Store) -> None:
        """Run before the broker registers. Raises TakeoverRejected if the store is of another cluster, or too old."""
        self.is_in_use, self.obstacle = False, ""
        cluster_id = await find_cluster_id(store, self._randomness, self._cluster_id, self._broker_id)
        if cluster_id != self._cluster_id:
            raise self._rejected(
                f"the coordination store belongs to cluster {cluster_id}, the log directories to {self._cluster_id}"
            )
        state = await ensure_store_id(store, self._randomness)
        if state.is_in_use:
            await self._reject_older_store(store)
            self.is_in_use = True
            return
        await raise_controller_epoch(store, self._known_controller_epoch)
        await publish_inventory(store, self.inventory())
        await clear_verdict(store, state)

    def _rejected(self, sentence: str) -> TakeoverRejected:
        self.obstacle = sentence
        return TakeoverRejected(reason=sentence)

    async def _reject_older_store(self, store: Store) -> None:
        deadline = self._clock.monotonic() + STALE_READ_TOLERANCE_S
        while evidence := await self._evidence_of_age(store):
            if self._clock.monotonic() < deadline:
                await asyncio.sleep(POLL_S)
                continue
            raise self._rejected(
                f"the coordination store is older than the log directories ({evidence}): it may name leaders that lack"
                " records. Restore a newer copy, or stop all brokers, move it away, and start them again: they rebuild"
                " it from the log directories"
            )

    async def _evidence_of_age(self, store: Store) -> str:
        """What the log directories have and the store lacks; empty if it lacks nothing.

        A leader epoch is in the store before any record is written in it. Other changes are counted within seconds.
        """
        noted = self._backup.latest or Backup()
        if missing := await count_missing_changes(
            store, self._broker_id, StoreMark(noted.store_id, noted.store_changes)
        ):
            return f"it lacks {missing} of the {noted.store_changes} changes that broker {self._broker_id} has noted"
        known_epoch = self._known_controller_epoch
        if (stored := await _controller_epoch(store)) < known_epoch:
            return f"controller epoch {stored}, they have seen {known_epoch}"
        logs = self._logs.logs
        for topic in await load_topics(store, sorted({each.topic for each in logs})):
            for partition in topic.partitions:
                topic_partition = TopicPartition(topic.name, partition.index)
                log = logs.get(topic_partition)
                if log is None or log.topic_id != topic.topic_id or self._broker_id not in partition.replicas:
                    continue
                latest_epoch = log.leader_epochs.latest_epoch
                if partition.version != NO_STATE_VERSION and latest_epoch > partition.leader_epoch:
                    return f"{topic_partition} is in leader epoch {partition.leader_epoch}, its log in {latest_epoch}"
        return ""

    @property
    def _known_controller_epoch(self) -> int:
        noted = self._backup.latest.controller_epoch if self._backup.latest is not None else 0
        return max(noted, self.controller_epoch())

    def inventory(self) -> Inventory:
        logs = self._logs.logs.values()
        return Inventory(
            self._broker_id,
            [
                FoundLog(
                    log.topic_partition,
                    log.topic_id,
                    log.last_record_epoch,
                    log.log_start_offset,
                    log.log_end_offset,
                    log.high_watermark,
                    log.leader_epochs.starts,
                )
                for log in logs
            ],
            self._backup.latest,
            self._known_controller_epoch,
            max((max(log.producers.by_id, default=NO_PRODUCER_ID) for log in logs), default=NO_PRODUCER_ID),
            self._backup.directories_without_backup,
            [directory.path for directory in self._logs.directories if not directory.is_online],
            self._backup.missing_directories,
        )

    async def wait_until_in_use(self, store: Callable[[], Store], timeout_ms: int) -> None:
        """Used at startup. Raises TakeoverRejected if the takeover was refused, or is not done in time."""
        deadline = self._clock.monotonic() + timeout_ms / 1000
        was_lost = not self.is_in_use
        while not self.is_in_use:
            is_final = await self._try_refresh(store())
            if self.obstacle and (is_final or self._clock.monotonic() >= deadline):
                raise TakeoverRejected(reason=self.obstacle)
            if not self.is_in_use:
                await asyncio.sleep(POLL_S)
        if was_lost and self._logs.logs:
            self.on_rebuilt()  # configs may have been read from the empty store

    async def _try_refresh(self, store: Store) -> bool:
        try:
            return await self._refresh(store)
        except (StoreError, znodes.MalformedNode) as error:
            logger.debug("cannot read takeover state reason=%s", error)
            return False

    async def watch(self, store: Store) -> None:
        """Used after a rejoin: waits without limit."""
        was_lost = not self.is_in_use
        while not self.is_in_use and store.is_session_alive:
            await self._try_refresh(store)
            await asyncio.sleep(POLL_S)
        if was_lost and self.is_in_use:
            self.on_rebuilt()

    async def _refresh(self, store: Store) -> bool:
        """Read the takeover state. True if the takeover was refused."""
        state = await read_store_state(store)
        reason = state.node.reason
        is_in_use = state.is_in_use
        if not is_in_use and state.node.takeover is TakeoverState.UNKNOWN and await has_foreign_controller(store):
            is_in_use = not self._logs.logs  # without logs there is nothing to take over
            reason = "" if is_in_use else LOGS_BESIDE_FOREIGN_CONTROLLER
        if reason and reason != self.obstacle:
            logger.info("takeover not complete, not serving yet reason=%s", reason)
        self.obstacle = reason
        self.is_in_use = is_in_use
        if is_in_use:
            self.obstacle = ""
            await delete_inventory(store, self._broker_id)
        return state.node.takeover is TakeoverState.REJECTED
