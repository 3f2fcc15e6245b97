"""Roles of a replica whose log has lost segments while its broker was down (R6, R42)."""

import logging

from tidelog.storage.log import Log

logger = logging.getLogger(__name__)


def copy_missing_segments(log: Log) -> None:
    """Before it follows a live leader: start over. A fetch from the log end would never bring back what is missing."""
    if log.has_missing_segments:
        logger.warning("copying log again, segments were missing partition=%s", log.topic_partition)
        log.truncate_fully_and_start_at(0)
        log.accept_missing_segments()


def lead_with_missing_segments(log: Log) -> None:
    """Nobody else has more: in an election any other replica is preferred."""
    if log.has_missing_segments:
        logger.error(
            "leading with missing segments, their records are lost partition=%s log_start_offset=%d",
            log.topic_partition,
            log.log_start_offset,
        )
        log.accept_missing_segments()
