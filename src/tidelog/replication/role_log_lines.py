"""Log lines for role changes: one for each partition, or one summary for many."""

import logging

from tidelog.replication.assignment import LOGGED_ONE_BY_ONE, ReplicaStop
from tidelog.replication.out_of_sync import out_of_sync
from tidelog.replication.partition import Partition
from tidelog.types import ids_text

logger = logging.getLogger(__name__)


def log_roles(leading: list[Partition], following: list[Partition], controller_epoch: int) -> None:
    is_one_by_one = len(leading) + len(following) <= LOGGED_ONE_BY_ONE
    if not is_one_by_one:
        logger.info(
            "changed roles leading=%d following=%d under_replicated=%d controller_epoch=%d",
            len(leading),
            len(following),
            sum(partition.require_leader_for_reading().is_under_replicated for partition in leading),
            controller_epoch,
        )
    level = logging.INFO if is_one_by_one else logging.DEBUG
    if not logger.isEnabledFor(level):
        return
    for partition in leading:
        _log_leader(partition, controller_epoch, level)
    for partition in following:
        _log_follower(partition, controller_epoch, level)


def _log_leader(partition: Partition, controller_epoch: int, level: int) -> None:
    logger.log(
        level,
        "became leader partition=%s leader_epoch=%d in_sync=%s replicas=%s log_end=%d high_watermark=%d"
        " controller_epoch=%d",
        partition.topic_partition,
        partition.leader_epoch,
        ids_text(partition.in_sync_replicas),
        ids_text(partition.replicas),
        partition.log.log_end_offset,
        partition.log.high_watermark,
        controller_epoch,
    )
    for each in out_of_sync(partition.require_leader_for_reading()):
        logger.log(level, "replica is not in sync partition=%s %s", partition.topic_partition, each)


def _log_follower(partition: Partition, controller_epoch: int, level: int) -> None:
    logger.log(
        level,
        "became follower partition=%s leader=%d leader_epoch=%d log_end=%d high_watermark=%d controller_epoch=%d",
        partition.topic_partition,
        partition.leader_id,
        partition.leader_epoch,
        partition.log.log_end_offset,
        partition.log.high_watermark,
        controller_epoch,
    )


def log_stopped(stops: list[ReplicaStop], controller_epoch: int) -> None:
    deleted = sum(stop.delete for stop in stops)
    if len(stops) > LOGGED_ONE_BY_ONE:
        logger.info(
            "stopped replicas partitions=%d deleted=%d controller_epoch=%d", len(stops), deleted, controller_epoch
        )
        return
    for stop in stops:
        verb = "deleted" if stop.delete else "stopped"
        logger.info("%s replica partition=%s controller_epoch=%d", verb, stop.topic_partition, controller_epoch)
