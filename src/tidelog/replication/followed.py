"""A partition that is followed, with its follower's core."""

from tidelog.replication.follower import PartitionFollower
from tidelog.replication.partition import Partition


class Followed:
    """A partition and what its follower has to do next."""

    __slots__ = ("core", "partition")

    def __init__(self, partition: Partition, leader_epoch: int) -> None:
        self.partition = partition
        self.core = PartitionFollower(partition.log, leader_epoch)
