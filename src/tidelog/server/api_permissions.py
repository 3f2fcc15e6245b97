"""Permissions that each API needs when there is an authorizer: one entry for each, or it cannot be served.

Permissions on the whole cluster are checked before the handler is called (`Route`). All others depend on the content
of a request: its handler checks them, and leaves out of the response what the principal may not see.
"""

from collections.abc import Mapping
from typing import NamedTuple

from tidelog.authorization.acls import Operation

ALTER, DESCRIBE = Operation.ALTER, Operation.DESCRIBE
CLUSTER_ACTION = Operation.CLUSTER_ACTION


class Permissions(NamedTuple):
    by_handler: str = ""
    """What the handler checks."""
    cluster_operations: tuple[Operation, ...] = ()
    """Operations on the cluster, of which one suffices."""
    is_free: bool = False


def cluster(*operations: Operation) -> Permissions:
    return Permissions(cluster_operations=operations)


FREE = Permissions(is_free=True)
OF_BROKERS = cluster(CLUSTER_ACTION)

API_PERMISSIONS: Mapping[int, Permissions] = {
    0: Permissions("Write on each topic; for transactional records Write on the transactional id"),
    1: Permissions("Read on each topic; of followers ClusterAction"),
    2: Permissions("Describe on each topic"),
    3: Permissions("Describe on each topic; to create one, Create on the cluster or the topic"),
    4: OF_BROKERS,
    5: OF_BROKERS,
    6: OF_BROKERS,
    7: OF_BROKERS,
    8: Permissions("Read on the group and on each topic"),
    9: Permissions("Describe on each group and topic"),
    10: Permissions("Describe on each group or transactional id"),
    11: Permissions("Read on the group"),
    12: Permissions("Read on the group"),
    13: Permissions("Read on the group"),
    14: Permissions("Read on the group"),
    15: Permissions("Describe on each group"),
    16: Permissions("Describe on the cluster, or on each group that is listed"),
    17: FREE,
    18: FREE,
    19: Permissions("Create on the cluster or on each topic; to see its configs, DescribeConfigs"),
    20: Permissions("Delete on each topic; to see the name of an id, Describe"),
    21: Permissions("Delete on each topic"),
    22: Permissions("Write on the transactional id; without one IdempotentWrite on the cluster, or Write on any topic"),
    23: Permissions("Describe on each topic; of followers ClusterAction"),
    24: Permissions("Write on the transactional id and each topic; of brokers ClusterAction"),
    25: Permissions("Write on the transactional id, Read on the group"),
    26: Permissions("Write on the transactional id"),
    27: cluster(ALTER, CLUSTER_ACTION),
    28: Permissions("Write on the transactional id, Read on the group and on each topic"),
    29: cluster(DESCRIBE),
    30: cluster(ALTER),
    31: cluster(ALTER),
    32: Permissions("DescribeConfigs on each topic, group, or on the cluster for brokers"),
    33: Permissions("AlterConfigs on each topic, group, or on the cluster for brokers"),
    34: cluster(ALTER),
    35: cluster(DESCRIBE, CLUSTER_ACTION),  # controllers ask for the ends of logs
    36: FREE,
    37: Permissions("Alter on each topic"),
    42: Permissions("Delete on each group"),
    43: cluster(ALTER),
    44: Permissions("AlterConfigs on each topic, group, or on the cluster for brokers"),
    45: cluster(ALTER),
    46: cluster(DESCRIBE),
    47: Permissions("Delete on the group, Read on each topic"),
    48: cluster(Operation.DESCRIBE_CONFIGS),
    49: cluster(Operation.ALTER_CONFIGS),
    50: cluster(DESCRIBE),
    51: cluster(ALTER),
    56: OF_BROKERS,
    60: Permissions("nothing; Describe on the cluster to see the authorized operations"),
    61: Permissions("Read on each topic"),
    64: cluster(ALTER),
    65: Permissions("Describe on each transactional id, and on each topic that is listed"),
    66: Permissions("Describe on each transactional id that is listed"),
    67: OF_BROKERS,
    68: Permissions("Read on the group, Describe on each topic that is named"),
    69: Permissions("Describe on each group, and on all topics that its members have subscribed to"),
    74: cluster(Operation.DESCRIBE_CONFIGS),
    75: Permissions("Describe on each topic"),
}
"""By API key."""
