"""What a leader knows of one of its followers."""

# Core: no clock, no I/O, no await.

from tidelog.cluster.image import NO_INCARNATION
from tidelog.types import BrokerId

NEVER_MS = 0
UNKNOWN_OFFSET = -1
UNKNOWN_BROKER_EPOCH = -1


class Peers:
    """What this broker knows of the others, whatever the partition; shared by all its leaders."""

    __slots__ = ("epochs", "last_fetch_ms")

    def __init__(self) -> None:
        self.epochs: dict[BrokerId, int] = {}
        """Of the brokers that are registered now (R39); -1 where not known."""
        self.last_fetch_ms: dict[BrokerId, int] = {}
        """When a broker last fetched, whatever it named: partitions where nothing moves are not named."""


class RemoteReplica:
    """One follower as its fetches show it, in this leader epoch."""

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
        """Of the incarnation that fetched last."""
        self.in_sync_epoch = in_sync_epoch
        """The incarnation last known to hold everything that is committed: recorded in the state, or seen here (R41).

        Of who is in sync this stays true: the high watermark does not pass it.
        """
        self.log_end_offset = UNKNOWN_OFFSET
        self.log_start_offset = UNKNOWN_OFFSET
        self.inherited_end_offset = UNKNOWN_OFFSET
        """What it had in an earlier leader epoch; only to be told."""
        self.caught_up_ms = now_ms if is_in_sync else NEVER_MS
        self.fetched_ms = NEVER_MS
        self.leader_end_at_fetch = UNKNOWN_OFFSET
        self.is_listed_at_end = False
        self.out_since_ms = NEVER_MS if is_in_sync else now_ms
        self.left_because = "" if is_in_sync else "not in sync when this leader took office"

    @property
    def known_end_offset(self) -> int:
        return self.log_end_offset if self.has_fetched else self.inherited_end_offset

    @property
    def has_fetched(self) -> bool:
        """In this leader epoch."""
        return self.log_end_offset != UNKNOWN_OFFSET

    @property
    def has_restarted(self) -> bool:
        """Another incarnation fetches than the one that is known to be in sync."""
        return UNKNOWN_BROKER_EPOCH not in (self.broker_epoch, self.in_sync_epoch) and (
            self.broker_epoch != self.in_sync_epoch
        )

    @property
    def incarnation(self) -> int:
        """In which one to write it down as in sync; NO_INCARNATION if one fetches that was never seen to be."""
        if self.in_sync_epoch != UNKNOWN_BROKER_EPOCH or self.broker_epoch == UNKNOWN_BROKER_EPOCH:
            return self.in_sync_epoch
        return NO_INCARNATION

    def on_reached_committed(self) -> None:
        """This very incarnation holds everything that is committed."""
        self.in_sync_epoch = self.broker_epoch

    def on_fetch(self, offset: int, log_start_offset: int, leader_end_offset: int, now_ms: int) -> None:
        """R17: whoever asks for `offset` holds everything before it."""
        if offset >= leader_end_offset:
            self.caught_up_ms = now_ms
        elif self.fetched_ms and offset >= self.leader_end_at_fetch:
            # It had reached the end of the log as of its previous fetch. Without this a follower
            # of a partition under constant writes could never count as caught up.
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        self.log_end_offset = offset
        self.log_start_offset = log_start_offset
        self.fetched_ms = now_ms
        self.leader_end_at_fetch = leader_end_offset

    def on_incarnation(self, broker_epoch: int) -> None:
        """Which run of its broker fetches. What an earlier one had may be gone."""
        if self.broker_epoch != UNKNOWN_BROKER_EPOCH:
            self.log_end_offset = self.log_start_offset = self.leader_end_at_fetch = UNKNOWN_OFFSET
            self.fetched_ms = NEVER_MS
        self.broker_epoch = broker_epoch

    def leave(self, reason: str, now_ms: int) -> None:
        self.left_because = reason
        self.out_since_ms = now_ms

    def is_caught_up(self, leader_end_offset: int, now_ms: int, lag_time_max_ms: int) -> bool:
        return self.log_end_offset == leader_end_offset or now_ms - self.caught_up_ms <= lag_time_max_ms
