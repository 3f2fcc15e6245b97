"""Rules about what comes back (R6, R28, R44): stores, disks and logs, each taken out for the length of a block."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from unittest.mock import patch

from tests.simulation.broken_rules import high_watermark_before_the_cut
from tidelog.cluster.image import BrokerRegistration
from tidelog.controller import takeover
from tidelog.controller.takeover_plan import TakeoverPlan, plan_takeover
from tidelog.replication import alter_log_dirs
from tidelog.replication.follower import FollowerState, PartitionFollower
from tidelog.storage import closing
from tidelog.storage.loader import _Loading
from tidelog.storage.log import Log
from tidelog.storage.log_manager import LogManager
from tidelog.store.interface import Store
from tidelog.types import NO_LEADER_EPOCH, BrokerId


@contextmanager
def empty_stores_taken_for_new_clusters() -> Iterator[None]:
    """R44: whatever the log directories hold, a store without topics is that of a new cluster."""

    async def nothing(
        store: Store, brokers: Mapping[BrokerId, BrokerRegistration], restored_by: BrokerId | None
    ) -> TakeoverPlan:
        return plan_takeover({})

    with patch.object(takeover, "_plan", nothing), patch.object(LogManager, "set_aside", LogManager.delete):
        yield


@contextmanager
def marked_clean_though_logs_failed_to_close() -> Iterator[None]:
    """R6: what fails while a broker stops is swallowed, and the marker is believed."""
    close_logs = closing._close_logs

    async def swallow(logs: list[Log]) -> dict[Log, BaseException]:
        await close_logs(logs)
        return {}

    with (
        patch.object(closing, "_close_logs", swallow),
        patch.object(_Loading, "_is_unchanged_since_close", lambda self: True),
    ):
        yield


@contextmanager
def future_logs_keep_their_own_high_watermark() -> Iterator[None]:
    """R30: a log that is swapped in goes on from the high watermark that its copy had last."""
    take_over_state = Log.take_over_state

    def keep_it(self: Log, current: Log) -> None:
        high_watermark = self.high_watermark
        take_over_state(self, current)
        self.high_watermark = high_watermark

    with patch.object(Log, "take_over_state", keep_it), patch.object(alter_log_dirs, "follow_offsets", _follow_start):
        yield


def _follow_start(current: Log, future: Log) -> None:
    if future.log_start_offset < current.log_start_offset:
        future.raise_high_watermark(current.log_start_offset)
        future.advance_log_start_offset(current.log_start_offset)


@contextmanager
def parting_points_learned_by_fetching() -> Iterator[None]:
    """As KIP-595 has it, and right: followers ask for records at once, and the leader says where the logs part."""
    init = PartitionFollower.__init__

    def fetch_at_once(self: PartitionFollower, *arguments: object, **keywords: bool) -> None:
        init(self, *arguments, **keywords)  # type: ignore[arg-type]
        if self.log.leader_epochs.latest_epoch != NO_LEADER_EPOCH:
            self.state = FollowerState.FETCHING

    with patch.object(PartitionFollower, "__init__", fetch_at_once):
        yield


@contextmanager
def high_watermark_before_a_cut_learned_by_fetching() -> Iterator[None]:
    """R28: where followers ask first there is no fetch that reports a cut."""
    with parting_points_learned_by_fetching(), high_watermark_before_the_cut():
        yield
