"""Warning for topics of which replicas of one partition share a rack: one machine may hold them all."""

import logging
from collections.abc import Iterable, Mapping, Sequence

from tidelog.cluster.image import Topic
from tidelog.types import BrokerId

logger = logging.getLogger(__name__)


def warn_of_shared_racks(topics: Iterable[Topic], racks: Mapping[BrokerId, str | None]) -> None:
    """Placement spreads replicas over all racks first, so this happens only if there are fewer racks than replicas."""
    for topic in topics:
        count = sum(share_a_rack(partition.replicas, racks) for partition in topic.partitions)
        if count:
            logger.warning(
                "replicas of a partition share a rack, whose loss they may not survive topic=%s partitions=%d"
                " replication_factor=%d racks=%d",
                topic.name,
                count,
                len(topic.partitions[0].replicas),
                len(set(racks.values()) - {None}),
            )


def share_a_rack(replicas: Sequence[BrokerId], racks: Mapping[BrokerId, str | None]) -> bool:
    known = [rack for each in replicas if (rack := racks.get(each)) is not None]
    return len(set(known)) < len(known)
