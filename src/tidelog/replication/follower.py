"""Follower role of one partition: its requests to the leader, and its decisions on responses (R26 to R29)."""

# Core: no clock, no I/O, no await.

from enum import Enum, auto
from typing import Final, NamedTuple, Protocol, TypeAlias

from tidelog.errors import (
    ERRORS_BY_CODE,
    NO_ERROR,
    CorruptMessage,
    FencedLeaderEpoch,
    InvalidRecord,
    NotLeaderOrFollower,
    OffsetOutOfRange,
)
from tidelog.state_machine import History, TransitionTable
from tidelog.storage.disk_errors import is_transient
from tidelog.storage.leader_epochs import EpochEnd, LeaderEpochs
from tidelog.types import NO_LEADER_EPOCH, NO_OFFSET

FIRST_BACKOFF_MS: Final = 10
"""Short, because after an election the followers may hear of it a moment before the new leader does."""


UNNAMED_HIGH_WATERMARK: Final = 2**63 - 1
"""In a fetch: the leader need not answer because of its high watermark."""


class FollowerState(Enum):
    TRUNCATING = auto()  # must find where its log diverges from the leader's (R27)
    FETCHING = auto()  # its log is a prefix of the leader's
    LOCATING = auto()  # out of range: must ask where the leader's log starts and ends (R29)
    DELAYED = auto()  # after an error, or while it waits for its disk; then resumes its earlier state
    FAILED = auto()  # sends nothing until the controller assigns a leader again


_ASKING: Final = {FollowerState.TRUNCATING, FollowerState.FETCHING, FollowerState.LOCATING}
_TROUBLED: Final = {FollowerState.DELAYED, FollowerState.FAILED}
TRANSITIONS: Final = TransitionTable(
    {
        FollowerState.TRUNCATING: {FollowerState.FETCHING, *_TROUBLED},
        FollowerState.FETCHING: {FollowerState.TRUNCATING, FollowerState.LOCATING, *_TROUBLED},
        FollowerState.LOCATING: {FollowerState.FETCHING, *_TROUBLED},
        FollowerState.DELAYED: {*_ASKING, FollowerState.FAILED},
        FollowerState.FAILED: set(),
    }
)


class FollowerLog(Protocol):
    """The part of its own log that the follower's decisions need."""

    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    leader_epochs: LeaderEpochs

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd: ...


class FetchedData(Enum):
    """Part of a Fetch response that is used."""

    RECORDS = auto()
    WATERMARKS = auto()  # its records answer an earlier request and would not continue the log


class TruncateTo(NamedTuple):
    offset: int


class TruncateFullyAndStartAt(NamedTuple):
    offset: int


class DelayPartition(NamedTuple):
    reason: str
    is_own_fault: bool = False
    """The response was good, but this broker could not write it."""


class MarkPartitionFailed(NamedTuple):
    reason: str
    is_failure: bool = True
    """False: the controller elected another leader and will send the new assignment in a moment."""


Effect: TypeAlias = FetchedData | TruncateTo | TruncateFullyAndStartAt | DelayPartition | MarkPartitionFailed


class OffsetTruncationState(NamedTuple):
    offset: int
    is_final: bool
    """False: the logs may diverge even earlier; ask again after the truncation."""


def offset_truncation_state(leader: EpochEnd, log: FollowerLog) -> OffsetTruncationState:
    """Offset to which the follower must truncate so that its log is a prefix of the leader's (R27, KIP-279)."""
    if leader.end_offset == NO_OFFSET:
        # The leader has no epochs at all: only committed records are surely in both logs.
        return OffsetTruncationState(log.high_watermark, is_final=True)
    epoch, end_offset = log.end_offset_for_epoch(leader.epoch)
    if epoch == NO_LEADER_EPOCH:
        return OffsetTruncationState(min(leader.end_offset, log.log_end_offset), is_final=True)
    if epoch != leader.epoch:
        # The leader has an epoch that this log never had: the leader lacks everything after `epoch` in this log.
        return OffsetTruncationState(end_offset, is_final=False)
    return OffsetTruncationState(min(leader.end_offset, end_offset), is_final=True)


def backoff_ms(failures: int, longest_ms: int) -> int:
    """Exponential backoff after `failures` in a row."""
    return min(FIRST_BACKOFF_MS << min(failures - 1, 20), longest_ms) if failures else 0


class PartitionFollower:
    """Follower of one partition in one leader epoch. A new epoch gets a new follower (KAFKA-7164)."""

    __slots__ = (
        "_consumer_waited",
        "asked",
        "failures",
        "history",
        "is_assigned_in_sync",
        "is_high_watermark_wanted",
        "leader_epoch",
        "leader_high_watermark",
        "log",
        "resumes_as",
        "state",
    )

    def __init__(self, log: FollowerLog, leader_epoch: int, *, is_assigned_in_sync: bool = False) -> None:
        self.log = log
        self.leader_epoch = leader_epoch
        self.is_assigned_in_sync = is_assigned_in_sync
        """Whether the ISR of the assignment has this replica. It counts until the leader has answered."""
        self.state = FollowerState.TRUNCATING
        self.resumes_as = FollowerState.TRUNCATING
        self.asked: int | None = None
        """Epoch or offset of the request in flight. A response to any other request is ignored (R26)."""
        self.failures = 0
        self.leader_high_watermark = NO_OFFSET
        """Of the last response with records or watermarks; NO_OFFSET before the first."""
        self.is_high_watermark_wanted = False
        """Whether the leader was asked to send each new high watermark at once, for consumers that read here (R23)."""
        self._consumer_waited = False
        self.history = History()

    def __str__(self) -> str:
        return f"follower of {self.log} in leader epoch {self.leader_epoch}"

    @property
    def lag(self) -> int:
        """Number of committed records that this replica lacks."""
        return max(0, self.leader_high_watermark - self.log.log_end_offset)

    @property
    def is_in_sync(self) -> bool:
        """Whether it lacks no committed record, as far as it knows in this role (Kafka: isReplicaInSync)."""
        return self.is_assigned_in_sync if self.leader_high_watermark == NO_OFFSET else self.lag == 0

    # ---- requests

    def ask_epoch(self) -> int | None:
        """The epoch for the OffsetForLeaderEpoch request; None if this log has no epochs."""
        assert self.state is FollowerState.TRUNCATING, "epochs are compared before anything is fetched (R27)"
        latest = self.log.leader_epochs.latest_epoch
        self.asked = None if latest == NO_LEADER_EPOCH else latest
        return self.asked

    def ask_records(self) -> int:
        """The fetch offset."""
        assert self.state is FollowerState.FETCHING, "only a log that is a prefix of the leader's grows (R26)"
        self.asked = self.log.log_end_offset
        return self.asked

    def ask_high_watermark(self, *, do_consumers_wait: bool) -> int:
        """The high watermark for the fetch (KIP-1166): the own one if consumers wait here, or did since the last fetch.

        Otherwise the leader sends new high watermarks only together with records, or when its wait is over.
        """
        self.is_high_watermark_wanted = do_consumers_wait or self._consumer_waited
        self._consumer_waited = False
        return self.log.high_watermark if self.is_high_watermark_wanted else UNNAMED_HIGH_WATERMARK

    def on_consumer_waits(self) -> bool:
        """A consumer began to wait here. Returns whether the leader must be asked for high watermarks now."""
        self._consumer_waited = True
        return not self.is_high_watermark_wanted

    def ask_range(self) -> None:
        assert self.state is FollowerState.LOCATING, (
            "the leader's range is asked for only after OFFSET_OUT_OF_RANGE (R29)"
        )
        self.asked = self.log.log_end_offset

    # ---- responses: None means that the response is ignored

    def on_no_epochs(self) -> Effect:
        """Without epochs the log is truncated to the high watermark, only in this case (R27)."""
        self._move(FollowerState.FETCHING, "no leader epochs in the log")
        return TruncateTo(self.log.high_watermark)

    def on_epoch_end(self, error_code: int, leader: EpochEnd) -> Effect | None:
        if self.state is not FollowerState.TRUNCATING or self.asked is None:
            return None
        if error_code != NO_ERROR:
            return self._on_error(error_code)
        self.failures = 0
        truncation = offset_truncation_state(leader, self.log)
        if truncation.is_final:
            self._move(FollowerState.FETCHING, leader)
        self.asked = None
        return self._truncate(truncation.offset)

    def on_fetched(self, error_code: int, diverging: EpochEnd | None) -> Effect | None:
        if self.state is not FollowerState.FETCHING:
            return None
        if error_code == NO_ERROR and diverging is None:
            # The log may have moved since the request: then the records would not continue it.
            return FetchedData.RECORDS if self.asked == self.log.log_end_offset else FetchedData.WATERMARKS
        if self.asked is None:
            return None
        return self._on_error(error_code) if diverging is None else self._on_divergence(diverging)

    def on_appended(self) -> None:
        """The log was written. This resets the backoff; a good response that cannot be written does not."""
        self.failures = 0

    def _on_divergence(self, leader: EpochEnd) -> Effect:
        """KIP-595: the leader compared the last fetched epoch: the logs diverge before the fetch offset."""
        truncation = offset_truncation_state(leader, self.log)
        starts = self.log.leader_epochs.starts
        # A truncation that removes neither records nor epochs would repeat the same fetch forever.
        if truncation.offset >= self.log.log_end_offset and (not starts or starts[-1].start_offset < truncation.offset):
            return self._delay(f"the leader reports a divergence at {leader}, but the logs agree there")
        if not truncation.is_final:
            self._move(FollowerState.TRUNCATING, leader)
        self.asked = None
        return self._truncate(truncation.offset)

    def on_range(self, error_code: int, leader_start: int, leader_end: int) -> Effect | None:
        """R29: start and end of the leader's log, after OFFSET_OUT_OF_RANGE."""
        if self.state is not FollowerState.LOCATING or self.asked is None:
            return None
        if error_code != NO_ERROR:
            return self._on_error(error_code)
        log_end_offset = self.log.log_end_offset
        if leader_start <= log_end_offset <= leader_end:
            # The leader has the offset by now, or rejected the fetch for another reason: start again with epochs.
            later = self._delay(
                f"offset {log_end_offset} was out of range, but leader has {leader_start} to {leader_end}"
            )
            self.resumes_as = FollowerState.TRUNCATING
            return later
        self._move(FollowerState.FETCHING, "leader sent its offsets")
        return self._truncate(leader_end) if leader_end < log_end_offset else TruncateFullyAndStartAt(leader_start)

    def on_rejected(self, error: Exception) -> Effect:
        """The append or the truncation failed."""
        if isinstance(error, CorruptMessage | InvalidRecord | FencedLeaderEpoch):
            return self._delay(f"rejected records of the leader: {error}")
        if is_transient(error):
            return self._delay(str(error), is_own_fault=True)
        if isinstance(error, NotLeaderOrFollower):
            return self._mark_failed(f"no longer follows in leader epoch {self.leader_epoch}", is_failure=False)
        return self._mark_failed(str(error) or type(error).__name__)

    def _truncate(self, offset: int) -> Effect:
        assert offset <= self.log.log_end_offset, "truncation never extends the log (R27)"
        # The leader does not have even the first record of this log.
        return TruncateFullyAndStartAt(offset) if offset < self.log.log_start_offset else TruncateTo(offset)

    def _on_error(self, error_code: int) -> Effect | None:
        if error_code == OffsetOutOfRange.code and self.state is FollowerState.FETCHING:
            self._move(FollowerState.LOCATING, "OFFSET_OUT_OF_RANGE")
            return None
        if error_code == FencedLeaderEpoch.code:
            return self._mark_failed(f"the leader is in a later epoch than {self.leader_epoch}", is_failure=False)
        return self._delay(_name(error_code))

    def _delay(self, reason: str, *, is_own_fault: bool = False) -> DelayPartition:
        self.failures += 1
        if self.state is not FollowerState.DELAYED:
            self.resumes_as = self.state
            self._move(FollowerState.DELAYED, reason)
        return DelayPartition(reason, is_own_fault)

    def _mark_failed(self, reason: str, *, is_failure: bool = True) -> MarkPartitionFailed:
        self._move(FollowerState.FAILED, reason)
        return MarkPartitionFailed(reason, is_failure)

    def hold(self) -> None:
        """Send no fetch until `resume`, because local work (a flush) must finish first."""
        self.resumes_as = self.state
        self._move(FollowerState.DELAYED, "held")

    def resume(self) -> None:
        """The delay is over."""
        self._move(self.resumes_as, "delay ended")

    def _move(self, state: FollowerState, reason: object) -> None:
        self.state = self.history.move(TRANSITIONS, self, self.state, state, reason)
        self.asked = None


def _name(error_code: int) -> str:
    error_class = ERRORS_BY_CODE.get(error_code)
    return f"leader returned error {error_code}{f' ({error_class.__name__})' if error_class else ''}"
