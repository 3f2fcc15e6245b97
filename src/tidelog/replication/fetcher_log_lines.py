"""Log lines of one replica fetcher: truncations, failures and recoveries. Each is logged once."""

import logging
from collections.abc import Callable, Sequence

from tidelog.replication.assignment import LOGGED_ONE_BY_ONE, LeaderAddress
from tidelog.replication.follower import MarkPartitionFailed
from tidelog.replication.partition_states import PartitionFetchState
from tidelog.storage.leader_epochs import EpochEntry

logger = logging.getLogger(__name__)

FAILURES_BEFORE_LOG_LINE = 5
"""Failures in a row before they are logged. Fewer, within a fifth of a second, are the ordinary race between leader and
follower after an election. The line is not repeated after that."""


def epochs_text(starts: Sequence[EpochEntry], first_offset: int) -> str:
    """Leader epochs of the records from an offset on, each with its first offset there: `3@120,5@140`."""
    after = [entry for entry in starts if entry.start_offset > first_offset]
    before = [entry for entry in starts if entry.start_offset <= first_offset]
    at_first = [(before[-1].epoch, first_offset)] if before else []
    return ",".join(f"{epoch}@{offset}" for epoch, offset in (*at_first, *after)) or "none"


class FetcherLogLines:
    def __init__(self, leader: Callable[[], LeaderAddress]) -> None:
        self._leader = leader
        self._truncations = 0  # in this round
        self._failing: dict[PartitionFetchState, None] = {}
        """Partitions whose failure was logged and that have not recovered."""

    def before_truncation(self, fetch_state: PartitionFetchState, offset: int) -> int:
        """The log end offset. Warns if committed records go, which needs an unclean election or a lost disk."""
        log = fetch_state.partition.log
        if offset < log.high_watermark and log.log_end_offset > log.log_start_offset:
            first = max(offset, log.log_start_offset)
            logger.warning(
                "truncating committed records to match leader partition=%s leader=%d leader_epoch=%d"
                " high_watermark=%d log_end_offset=%d truncate_to=%d lost=%d lost_committed_offsets=%d-%d"
                " lost_epochs=%s",
                log.topic_partition,
                self._leader().broker_id,
                fetch_state.core.leader_epoch,
                log.high_watermark,
                log.log_end_offset,
                offset,
                log.log_end_offset - first,
                first,
                log.high_watermark - 1,
                epochs_text(log.leader_epochs.starts, first),
            )
        return log.log_end_offset

    def after_truncation(self, fetch_state: PartitionFetchState, end_before: int) -> None:
        log = fetch_state.partition.log
        if log.log_end_offset == end_before:
            return
        self._truncations += 1
        logger.log(
            logging.INFO if self._truncations <= LOGGED_ONE_BY_ONE else logging.DEBUG,
            "truncated log to match leader partition=%s leader=%d leader_epoch=%d log_end_before=%d log_end=%d",
            log.topic_partition,
            self._leader().broker_id,
            fetch_state.core.leader_epoch,
            end_before,
            log.log_end_offset,
        )

    def on_reconciled(self, partitions: int) -> None:
        leader = self._leader().broker_id
        logger.info("log matches leader leader=%d partitions=%d truncated=%d", leader, partitions, self._truncations)

    def on_session_rejected(self, error_code: int, delay_ms: int) -> None:
        logger.info(
            "leader rejected fetch session leader=%d error_code=%d retry_in_ms=%d",
            self._leader().broker_id,
            error_code,
            delay_ms,
        )

    def on_partition_failed(self, fetch_state: PartitionFetchState, end: MarkPartitionFailed) -> None:
        logger.log(
            logging.WARNING if end.is_failure else logging.DEBUG,
            "stopped fetching until leader changes partition=%s leader=%d leader_epoch=%d reason=%s",
            fetch_state.partition.topic_partition,
            self._leader().broker_id,
            fetch_state.core.leader_epoch,
            end.reason,
        )

    def on_delayed(self, waiting: Sequence[tuple[PartitionFetchState, str]], delay_ms: int) -> None:
        """One line for all partitions with the same delay."""
        failing = [each for each in waiting if each[0].core.failures == FAILURES_BEFORE_LOG_LINE]
        self._failing.update(dict.fromkeys(fetch_state for fetch_state, _ in failing))
        first, reason = (failing or waiting)[0]
        logger.log(
            logging.INFO if failing else logging.DEBUG,
            "cannot fetch, retrying leader=%d partitions=%d first=%s retry_in_ms=%d reason=%s",
            self._leader().broker_id,
            len(failing or waiting),
            first.partition.topic_partition,
            delay_ms,
            reason,
        )

    def forget(self, fetch_state: PartitionFetchState) -> None:
        self._failing.pop(fetch_state, None)

    def on_round_ended(self) -> None:
        if self._truncations > LOGGED_ONE_BY_ONE:
            logger.info(
                "truncated logs to match leader leader=%d partitions=%d", self._leader().broker_id, self._truncations
            )
        self._truncations = 0
        if self._failing:
            self._log_recovered()

    def _log_recovered(self) -> None:
        """Log recoveries of partitions whose failure was logged."""
        fetched = [each for each in self._failing if not each.core.failures]
        for fetch_state in fetched:
            del self._failing[fetch_state]
        if fetched:
            logger.info(
                "fetching again leader=%d partitions=%d first=%s",
                self._leader().broker_id,
                len(fetched),
                fetched[0].partition.topic_partition,
            )
