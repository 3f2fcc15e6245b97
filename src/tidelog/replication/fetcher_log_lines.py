"""What the log tells of one fetcher: what was cut, who cannot be fetched and who can again. Each thing once."""

import logging
from collections.abc import Callable, Sequence

from tidelog.replication.assignment import LOGGED_ONE_BY_ONE, LeaderAddress
from tidelog.replication.follower import GiveUp
from tidelog.replication.partition_states import Followed

logger = logging.getLogger(__name__)

FAILURES_WORTH_TELLING = 5
"""Fewer in a row, in less than a fifth of a second, are the ordinary race between leader and follower after an
election; more were told when there were so many."""


class FetcherLogLines:
    def __init__(self, leader: Callable[[], LeaderAddress]) -> None:
        self._leader = leader
        self._cuts = 0  # in this round
        self._troubled: dict[Followed, None] = {}
        """Those that could not be fetched for so long that it was told."""

    def before_cut(self, followed: Followed, offset: int) -> int:
        """Where the log ends now. Committed records are cut only after an unclean election, or a lost disk."""
        log = followed.partition.log
        if offset < log.high_watermark and log.log_end_offset > log.log_start_offset:
            logger.warning(
                "records below the high watermark are cut to match the leader partition=%s leader=%d leader_epoch=%d"
                " high_watermark=%d log_end_offset=%d cut_to=%d lost=%d",
                log.topic_partition,
                self._leader().broker_id,
                followed.core.leader_epoch,
                log.high_watermark,
                log.log_end_offset,
                offset,
                log.log_end_offset - offset,
            )
        return log.log_end_offset

    def after_cut(self, followed: Followed, end_before: int) -> None:
        log = followed.partition.log
        if log.log_end_offset == end_before:
            return
        self._cuts += 1
        logger.log(
            logging.INFO if self._cuts <= LOGGED_ONE_BY_ONE else logging.DEBUG,
            "cut the log to match the leader partition=%s leader=%d leader_epoch=%d log_end_before=%d log_end=%d",
            log.topic_partition,
            self._leader().broker_id,
            followed.core.leader_epoch,
            end_before,
            log.log_end_offset,
        )

    def on_reconciled(self, partitions: int) -> None:
        leader = self._leader().broker_id
        logger.info("reconciled with the leader leader=%d partitions=%d cut=%d", leader, partitions, self._cuts)

    def on_session_refused(self, error_code: int, delay_ms: int) -> None:
        logger.info(
            "leader refused the fetch session leader=%d error_code=%d retry_in_ms=%d",
            self._leader().broker_id,
            error_code,
            delay_ms,
        )

    def on_given_up(self, followed: Followed, end: GiveUp) -> None:
        logger.log(
            logging.WARNING if end.is_failure else logging.DEBUG,
            "no longer fetched until its leader changes partition=%s leader=%d leader_epoch=%d reason=%s",
            followed.partition.topic_partition,
            self._leader().broker_id,
            followed.core.leader_epoch,
            end.reason,
        )

    def on_delayed(self, waiting: Sequence[tuple[Followed, str]], delay_ms: int) -> None:
        """One line for all that wait equally long."""
        told = [each for each in waiting if each[0].core.failures == FAILURES_WORTH_TELLING]
        self._troubled.update(dict.fromkeys(followed for followed, _ in told))
        first, reason = (told or waiting)[0]
        logger.log(
            logging.INFO if told else logging.DEBUG,
            "cannot fetch now, trying on leader=%d partitions=%d first=%s retry_in_ms=%d reason=%s",
            self._leader().broker_id,
            len(told or waiting),
            first.partition.topic_partition,
            delay_ms,
            reason,
        )

    def forget(self, followed: Followed) -> None:
        self._troubled.pop(followed, None)

    def on_round_ended(self) -> None:
        if self._cuts > LOGGED_ONE_BY_ONE:
            logger.info("cut logs to match the leader leader=%d partitions=%d", self._leader().broker_id, self._cuts)
        self._cuts = 0
        if self._troubled:
            self._tell_of_recovery()

    def _tell_of_recovery(self) -> None:
        """Of those whose trouble was told."""
        fetched = [each for each in self._troubled if not each.core.failures]
        for followed in fetched:
            del self._troubled[followed]
        if fetched:
            logger.info(
                "fetching again leader=%d partitions=%d first=%s",
                self._leader().broker_id,
                len(fetched),
                fetched[0].partition.topic_partition,
            )
