"""Settings of quotas, a part of the broker settings, and of the topics whose replicas are throttled."""

import re
from dataclasses import dataclass

from tidelog.config.authorization import AuthorizationSettings
from tidelog.config.setting import INT_MAX, LONG_MAX, BadValue, ConfigType, UpdateMode, setting

UNLIMITED = LONG_MAX
ALL_REPLICAS = "*"

DESCRIBED_WHERE_SET = frozenset(
    {
        "follower.replication.throttled.rate",
        "leader.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    }
)
"""Rates that DescribeConfigs omits unless they are set. Tools remove a rate and wait until it is gone, as in Kafka."""

_REPLICA = re.compile(r"[0-9]{1,10}:[0-9]{1,10}")


def check_throttled_replicas(name: str, replicas: tuple[str, ...]) -> None:
    if replicas != (ALL_REPLICAS,) and not all(map(_REPLICA.fullmatch, replicas)):
        raise BadValue(
            f"{name} must be the literal '*' or a list of replicas in the following format:"
            " [partitionId]:[brokerId],[partitionId]:[brokerId],..."
        )


@dataclass(frozen=True, kw_only=True, slots=True, init=False, eq=False, repr=False)
class QuotaSettings(AuthorizationSettings):
    alter_log_dirs_replication_quota_window_num: int = setting(
        default=11, at_least=1, doc="Number of windows over which the rate of copies between log directories is taken."
    )
    alter_log_dirs_replication_quota_window_size_seconds: int = setting(
        default=1, at_least=1, doc="Length of each of these windows."
    )
    controller_quota_window_num: int = setting(
        default=11, at_least=1, doc="Number of windows over which `controller_mutation_rate` of clients is taken."
    )
    controller_quota_window_size_seconds: int = setting(default=1, at_least=1, doc="Length of each of these windows.")
    follower_replication_throttled_rate: int = setting(
        default=UNLIMITED,
        at_least=0,
        kind=ConfigType.LONG,
        update=UpdateMode.CLUSTER_WIDE,
        doc="Bytes per second that this broker fetches for its replicas that are listed in"
        " `follower.replication.throttled.replicas` of their topic and are behind their leader.",
    )
    leader_replication_throttled_rate: int = setting(
        default=UNLIMITED,
        at_least=0,
        kind=ConfigType.LONG,
        update=UpdateMode.CLUSTER_WIDE,
        doc="Bytes per second that this broker sends to out-of-sync replicas of partitions that it leads and that are"
        " listed in `leader.replication.throttled.replicas` of their topic.",
    )
    max_connection_creation_rate: int = setting(
        default=INT_MAX,
        at_least=0,
        update=UpdateMode.CLUSTER_WIDE,
        doc="New connections per second on the listeners for clients; further ones wait. Also for one listener:"
        " `listener.name.<listener>.max.connection.creation.rate`.",
    )
    max_connections: int = setting(
        default=INT_MAX,
        at_least=0,
        update=UpdateMode.CLUSTER_WIDE,
        doc="The maximum number of connections. Where brokers have a listener of their own, it does not keep them out."
        " Also for one listener: `listener.name.<listener>.max.connections`.",
    )
    quota_window_num: int = setting(
        default=11, at_least=1, doc="Number of windows over which the rates of clients and connections are taken."
    )
    quota_window_size_seconds: int = setting(default=1, at_least=1, doc="Length of each of these windows.")
    replica_alter_log_dirs_io_max_bytes_per_second: int = setting(
        default=UNLIMITED,
        at_least=0,
        kind=ConfigType.LONG,
        update=UpdateMode.CLUSTER_WIDE,
        doc="Bytes per second that this broker copies between its log directories.",
    )
    replication_quota_window_num: int = setting(
        default=11, at_least=1, doc="Number of windows over which the rate of throttled replication is taken."
    )
    replication_quota_window_size_seconds: int = setting(default=1, at_least=1, doc="Length of each of these windows.")
