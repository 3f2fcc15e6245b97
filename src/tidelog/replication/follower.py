"""The follower's core: what to ask the leader of one partition, and what its answers mean (R26 to R29)."""

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
from tidelog.storage.disk_errors import is_passing
from tidelog.storage.leader_epochs import EpochEnd, EpochStart, LeaderEpochs
from tidelog.types import NO_LEADER_EPOCH, NO_OFFSET

FIRST_BACKOFF_MS: Final = 10
"""After an election the new leader may hear of it a moment later than its followers: they ask again soon."""


class FollowerState(Enum):
    TRUNCATING = auto()  # must find where its log parts from the leader's (R27)
    FETCHING = auto()  # its log continues in the leader's
    LOCATING = auto()  # out of range: must learn where the leader's log starts and ends (R29)
    DELAYED = auto()  # had an error, or waits for its disk; goes on later where it was
    FAILED = auto()  # asks nothing until the controller names a leader again


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


class FollowedLog(Protocol):
    """What the follower must know of its own log."""

    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    leader_epochs: LeaderEpochs

    def end_offset_for_epoch(self, epoch: int) -> EpochStart: ...


class Take(Enum):
    """What of a fetch answer counts."""

    RECORDS = auto()
    WATERMARKS = auto()  # its records answer an earlier question: they would not continue the log


class CutTo(NamedTuple):
    offset: int


class StartOverAt(NamedTuple):
    offset: int


class AskAgainLater(NamedTuple):
    reason: str
    is_own_fault: bool = False
    """The leader answered well; it is this broker that could not take the answer."""


class GiveUp(NamedTuple):
    reason: str
    is_failure: bool = True
    """False: the controller has decided anew, and will say so in a moment."""


Effect: TypeAlias = Take | CutTo | StartOverAt | AskAgainLater | GiveUp


class PartingPoint(NamedTuple):
    offset: int
    is_final: bool
    """False: the logs may part even earlier, ask again."""


def parting_point(leader: EpochEnd, log: FollowedLog) -> PartingPoint:
    """Where the follower's log must end so that it may continue in the leader's (R27, KIP-279)."""
    if leader.end_offset == NO_OFFSET:
        # The leader knows no epoch at all: only what is committed is common for sure.
        return PartingPoint(log.high_watermark, is_final=True)
    epoch, end_offset = log.end_offset_for_epoch(leader.epoch)
    if epoch == NO_LEADER_EPOCH:
        return PartingPoint(min(leader.end_offset, log.log_end_offset), is_final=True)
    if epoch != leader.epoch:
        # The leader has an epoch that this log never saw: everything later than `epoch` here is not the leader's.
        return PartingPoint(end_offset, is_final=False)
    return PartingPoint(min(leader.end_offset, end_offset), is_final=True)


def backoff_ms(failures: int, longest_ms: int) -> int:
    """How long to wait after so many failures in a row."""
    return min(FIRST_BACKOFF_MS << min(failures - 1, 20), longest_ms) if failures else 0


class PartitionFollower:
    """One partition followed in one leader epoch; a new epoch makes a new follower (KAFKA-7164)."""

    __slots__ = ("asked", "failures", "history", "leader_epoch", "leader_high_watermark", "log", "resumes_as", "state")

    def __init__(self, log: FollowedLog, leader_epoch: int) -> None:
        self.log = log
        self.leader_epoch = leader_epoch
        self.state = FollowerState.TRUNCATING
        self.resumes_as = FollowerState.TRUNCATING
        self.asked: int | None = None
        """The epoch or offset that the leader was asked about; an answer to anything else does not count (R26)."""
        self.failures = 0
        self.leader_high_watermark = 0
        self.history = History()

    def __str__(self) -> str:
        return f"follower of {self.log} in leader epoch {self.leader_epoch}"

    @property
    def lag(self) -> int:
        """How many committed records are missing here."""
        return max(0, self.leader_high_watermark - self.log.log_end_offset)

    # ---- asking

    def ask_epoch(self) -> int | None:
        """The epoch whose end the leader is now asked for; None if this log knows no epoch."""
        assert self.state is FollowerState.TRUNCATING, "epochs are asked for before anything is fetched (R27)"
        latest = self.log.leader_epochs.latest_epoch
        self.asked = None if latest == NO_LEADER_EPOCH else latest
        return self.asked

    def ask_records(self) -> int:
        """The offset from which the leader is now asked for records."""
        assert self.state is FollowerState.FETCHING, "only a log that continues in the leader's grows (R26)"
        self.asked = self.log.log_end_offset
        return self.asked

    def ask_range(self) -> None:
        assert self.state is FollowerState.LOCATING, "a range is asked for only when out of range (R29)"
        self.asked = self.log.log_end_offset

    # ---- answers: None means that the answer does not count

    def on_no_epochs(self) -> Effect:
        """Nothing to ask by: only here the high watermark decides (R27)."""
        self._move(FollowerState.FETCHING, "no leader epochs in the log")
        return CutTo(self.log.high_watermark)

    def on_epoch_end(self, error_code: int, leader: EpochEnd) -> Effect | None:
        if self.state is not FollowerState.TRUNCATING or self.asked is None:
            return None
        if error_code != NO_ERROR:
            return self._on_error(error_code)
        self.failures = 0
        part = parting_point(leader, self.log)
        if part.is_final:
            self._move(FollowerState.FETCHING, leader)
        self.asked = None
        return self._cut(part.offset)

    def on_fetched(self, error_code: int, diverging: EpochEnd | None) -> Effect | None:
        if self.state is not FollowerState.FETCHING:
            return None
        if error_code == NO_ERROR and diverging is None:
            return Take.RECORDS if self.asked == self.log.log_end_offset else Take.WATERMARKS
        if self.asked is None:
            return None
        return self._on_error(error_code) if diverging is None else self._on_divergence(diverging)

    def on_taken(self) -> None:
        """The log has what the leader sent. Until then a failure in a row is not over: the next wait is longer."""
        self.failures = 0

    def _on_divergence(self, leader: EpochEnd) -> Effect:
        """KIP-595: the leader saw by the last fetched epoch that the logs part before the offset asked for."""
        part = parting_point(leader, self.log)
        starts = self.log.leader_epochs.starts
        if part.offset >= self.log.log_end_offset and (not starts or starts[-1].start_offset < part.offset):
            return self._delay(f"the leader names a divergence at {leader} that is none here")
        if not part.is_final:
            self._move(FollowerState.TRUNCATING, leader)
        self.asked = None
        return self._cut(part.offset)

    def on_range(self, error_code: int, leader_start: int, leader_end: int) -> Effect | None:
        """R29: what the leader has, after it had nothing at the offset asked for."""
        if self.state is not FollowerState.LOCATING or self.asked is None:
            return None
        if error_code != NO_ERROR:
            return self._on_error(error_code)
        log_end_offset = self.log.log_end_offset
        if leader_start <= log_end_offset <= leader_end:
            # It has the offset by now, or missed something else about the question: begin anew.
            later = self._delay(f"the leader had nothing at {log_end_offset}, but holds {leader_start} to {leader_end}")
            self.resumes_as = FollowerState.TRUNCATING
            return later
        self._move(FollowerState.FETCHING, "the leader told its offsets")
        return self._cut(leader_end) if leader_end < log_end_offset else StartOverAt(leader_start)

    def on_refused(self, error: Exception) -> Effect:
        """The log did not take what the leader sent, or could not be cut."""
        if isinstance(error, CorruptMessage | InvalidRecord | FencedLeaderEpoch):
            return self._delay(f"refused what the leader sent: {error}")
        if is_passing(error):
            return self._delay(str(error), is_own_fault=True)
        if isinstance(error, NotLeaderOrFollower):
            return self._give_up(f"no longer follows in leader epoch {self.leader_epoch}", is_failure=False)
        return self._give_up(str(error) or type(error).__name__)

    def _cut(self, offset: int) -> Effect:
        assert offset <= self.log.log_end_offset, "a cut never extends the log (R27)"
        # Not even the first record is the leader's.
        return StartOverAt(offset) if offset < self.log.log_start_offset else CutTo(offset)

    def _on_error(self, error_code: int) -> Effect | None:
        if error_code == OffsetOutOfRange.code and self.state is FollowerState.FETCHING:
            self._move(FollowerState.LOCATING, "OFFSET_OUT_OF_RANGE")
            return None
        if error_code == FencedLeaderEpoch.code:
            return self._give_up(f"the leader is in a later epoch than {self.leader_epoch}", is_failure=False)
        return self._delay(_name(error_code))

    def _delay(self, reason: str, *, is_own_fault: bool = False) -> AskAgainLater:
        self.failures += 1
        if self.state is not FollowerState.DELAYED:
            self.resumes_as = self.state
            self._move(FollowerState.DELAYED, reason)
        return AskAgainLater(reason, is_own_fault)

    def _give_up(self, reason: str, *, is_failure: bool = True) -> GiveUp:
        self._move(FollowerState.FAILED, reason)
        return GiveUp(reason, is_failure)

    def hold(self) -> None:
        """Something here has to be done before the leader is asked for more."""
        self.resumes_as = self.state
        self._move(FollowerState.DELAYED, "held")

    def resume(self) -> None:
        """The delay is over."""
        self._move(self.resumes_as, "the delay is over")

    def _move(self, state: FollowerState, reason: object) -> None:
        self.state = self.history.move(TRANSITIONS, self, self.state, state, reason)
        self.asked = None


def _name(error_code: int) -> str:
    known = ERRORS_BY_CODE.get(error_code)
    return f"the leader answers error {error_code}{f' ({known.__name__})' if known else ''}"
