"""Decisions on the next step of a future log, and where it parts from the current one (R30)."""

from tidelog.replication.future_log_steps import (
    CopyFrom,
    PrepareSwap,
    StartFutureOverAt,
    SwapLogs,
    TruncateFutureTo,
    common_end,
    next_step,
)
from tidelog.storage.leader_epochs import EpochEnd, EpochEntry, LeaderEpochs


class StubLog:
    def __init__(self, start: int, end: int, *epochs: tuple[int, int], recovery_point: int = 0) -> None:
        self.log_start_offset = start
        self.log_end_offset = end
        self.leader_epochs = LeaderEpochs([EpochEntry(*each) for each in epochs])
        self.recovery_point = recovery_point

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd:
        return self.leader_epochs.end_offset_for(epoch, self.log_end_offset)


def test_a_future_log_that_is_behind_copies() -> None:
    assert next_step(StubLog(0, 10), StubLog(0, 4), None) == CopyFrom(4)


def test_a_future_log_that_ends_before_the_log_start_starts_over() -> None:
    assert next_step(StubLog(7, 10), StubLog(0, 4), None) == StartFutureOverAt(7)


def test_a_future_log_that_lacks_the_first_records_starts_over() -> None:
    assert next_step(StubLog(2, 10), StubLog(5, 10), 10) == StartFutureOverAt(2)


def test_a_future_log_never_has_more_than_the_current_one() -> None:
    assert next_step(StubLog(0, 10), StubLog(0, 12), None) == TruncateFutureTo(10)


def test_a_swap_is_prepared_first() -> None:
    assert next_step(StubLog(0, 10), StubLog(0, 10, recovery_point=10), None) == PrepareSwap()
    assert next_step(StubLog(0, 10), StubLog(0, 10, recovery_point=10), 10) == SwapLogs()


def test_what_was_synced_is_synced_after_the_swap() -> None:
    current = StubLog(0, 12, recovery_point=12)
    assert next_step(current, StubLog(0, 12, recovery_point=10), 10) == PrepareSwap()
    assert next_step(current, StubLog(0, 12, recovery_point=12), 12) == SwapLogs()


def test_records_that_came_after_the_preparation_need_no_sync() -> None:
    assert next_step(StubLog(0, 12, recovery_point=3), StubLog(0, 12, recovery_point=10), 10) == SwapLogs()


def test_a_truncation_after_the_preparation_needs_another_one() -> None:
    assert next_step(StubLog(0, 8), StubLog(0, 8, recovery_point=6), 10) == PrepareSwap()


def test_equal_logs_have_all_in_common() -> None:
    log = StubLog(0, 10, (1, 0), (3, 5))
    assert common_end(log, StubLog(0, 8, (1, 0), (3, 5))) == 8


def test_the_current_log_was_truncated_within_an_epoch() -> None:
    assert common_end(StubLog(0, 6, (1, 0), (3, 5)), StubLog(0, 8, (1, 0), (3, 5))) == 6


def test_the_current_log_was_truncated_and_went_on_in_another_epoch() -> None:
    current = StubLog(0, 20, (1, 0), (4, 3))
    assert common_end(current, StubLog(0, 8, (1, 0), (2, 5))) == 3


def test_the_current_log_never_had_an_epoch_of_the_future_log() -> None:
    current = StubLog(0, 20, (1, 0), (5, 12))
    assert common_end(current, StubLog(0, 18, (1, 0), (3, 10), (4, 15))) == 10


def test_logs_without_epochs_have_nothing_in_common() -> None:
    assert common_end(StubLog(0, 20), StubLog(4, 18)) == 4
    assert common_end(StubLog(0, 20, (1, 0)), StubLog(4, 18)) == 4
