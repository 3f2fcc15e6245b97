"""Remote replica (Kafka: Replica, ReplicaState): a leader's view of one follower."""

# Core: no clock, no I/O, no await.

from tidelog.cluster.image import NO_INCARNATION
from tidelog.types import BrokerId

NEVER_MS = -(2**62)
"""Long before any monotonic time: a follower that never caught up is not in sync because the machine just started."""
UNKNOWN_OFFSET = -1
UNKNOWN_BROKER_EPOCH = -1


class Peers:
    """This broker's view of the other brokers, shared by all partitions that it leads."""

    __slots__ = ("epochs", "last_fetch_ms")

    def __init__(self) -> None:
        self.epochs: dict[BrokerId, int] = {}
        """Broker epochs of the registered brokers (R39); -1 if unknown."""
        self.last_fetch_ms: dict[BrokerId, int] = {}
        """Time of each broker's last fetch for any partition: fetch sessions omit idle partitions."""


class RemoteReplica:
    """One follower's progress in this leader epoch, as its fetches report it."""

    __slots__ = (
        "broker_epoch",
        "broker_id",
        "caught_up_ms",
        "fetched_ms",
        "in_sync_epoch",
        "inherited_end_offset",
        "is_listed_at_end",
        "leader_end_at_fetch",
        "left_because",
        "log_end_offset",
        "log_start_offset",
        "out_since_ms",
    )

    def __init__(
        self, broker_id: BrokerId, now_ms: int, *, is_in_sync: bool, in_sync_epoch: int = UNKNOWN_BROKER_EPOCH
    ) -> None:
        self.broker_id = broker_id
        self.broker_epoch = UNKNOWN_BROKER_EPOCH
        """Broker epoch of the last fetch."""
        self.in_sync_epoch = in_sync_epoch
        """Broker epoch last known to hold all committed records: from the partition state, or seen here (R41).

        It stays valid while the replica is in sync, because the high watermark does not pass its log end offset.
        """
        self.log_end_offset = UNKNOWN_OFFSET
        self.log_start_offset = UNKNOWN_OFFSET
        self.inherited_end_offset = UNKNOWN_OFFSET
        """Its log end offset in an earlier leader epoch; only for reports."""
        self.caught_up_ms = now_ms if is_in_sync else NEVER_MS
        """Last time at which it had all records of the leader (Kafka: lastCaughtUpTimeMs).

        Like all times here it is monotonic, unlike in Kafka: a clock that is set drops no follower and keeps none.
        """
        self.fetched_ms = NEVER_MS
        self.leader_end_at_fetch = UNKNOWN_OFFSET
        """Log end offset of the leader at the last fetch (Kafka: lastFetchLeaderLogEndOffset)."""
        self.is_listed_at_end = False
        """It is in the leader's list of followers that are at the log end."""
        self.out_since_ms = NEVER_MS if is_in_sync else now_ms
        """Time at which it left the ISR; only for reports, like `left_because`."""
        self.left_because = "" if is_in_sync else "not in sync when this leader was elected"

    @property
    def last_end_offset(self) -> int:
        return self.log_end_offset if self.has_fetched else self.inherited_end_offset

    @property
    def has_fetched(self) -> bool:
        """Whether it has fetched in this leader epoch."""
        return self.log_end_offset != UNKNOWN_OFFSET

    @property
    def has_restarted(self) -> bool:
        """The broker epoch that fetches is not the one that is known to be in sync."""
        return UNKNOWN_BROKER_EPOCH not in (self.broker_epoch, self.in_sync_epoch) and (
            self.broker_epoch != self.in_sync_epoch
        )

    @property
    def incarnation(self) -> int:
        """Broker epoch to store as in sync; NO_INCARNATION if the one that fetches was never seen in sync."""
        if self.in_sync_epoch != UNKNOWN_BROKER_EPOCH or self.broker_epoch == UNKNOWN_BROKER_EPOCH:
            return self.in_sync_epoch
        return NO_INCARNATION

    def on_reached_committed(self) -> None:
        """The current broker epoch holds all committed records."""
        self.in_sync_epoch = self.broker_epoch

    def on_fetch(self, offset: int, log_start_offset: int, leader_end_offset: int, now_ms: int) -> None:
        """R17: a follower that fetches from `offset` has everything before it."""
        if offset >= leader_end_offset:
            self.caught_up_ms = now_ms
        elif self.fetched_ms != NEVER_MS and offset >= self.leader_end_at_fetch:
            # It had reached the end of the log as of its previous fetch. Without this a follower
            # of a partition under constant writes could never count as caught up.
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        self.log_end_offset = offset
        self.log_start_offset = log_start_offset
        self.fetched_ms = now_ms
        self.leader_end_at_fetch = leader_end_offset

    def on_incarnation(self, broker_epoch: int) -> None:
        """It fetches with another broker epoch: the broker restarted, and records that it had before may be lost."""
        if self.broker_epoch != UNKNOWN_BROKER_EPOCH:
            self.log_end_offset = self.log_start_offset = self.leader_end_at_fetch = UNKNOWN_OFFSET
            self.fetched_ms = NEVER_MS
        self.broker_epoch = broker_epoch

    def leave(self, reason: str, now_ms: int) -> None:
        """It leaves the ISR."""
        self.left_because = reason
        self.out_since_ms = now_ms

    def is_caught_up(self, leader_end_offset: int, now_ms: int, lag_time_max_ms: int) -> bool:
        return self.log_end_offset == leader_end_offset or now_ms - self.caught_up_ms <= lag_time_max_ms
