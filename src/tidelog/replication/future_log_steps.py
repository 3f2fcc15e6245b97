"""Next step of a future log on its way to replace the current log of a partition (R30)."""

# Core: no clock, no I/O, no await.

from typing import NamedTuple, Protocol, TypeAlias

from tidelog.storage.leader_epochs import EpochEnd, LeaderEpochs


class MovedLog(Protocol):
    """The part of a log that decides on the next step."""

    log_start_offset: int
    log_end_offset: int
    leader_epochs: LeaderEpochs

    @property
    def recovery_point(self) -> int: ...

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd: ...


class CopyFrom(NamedTuple):
    """Append the current log's records from this offset."""

    offset: int


class TruncateFutureTo(NamedTuple):
    offset: int


class StartFutureOverAt(NamedTuple):
    """Drop all records of the future log and continue at this offset."""

    offset: int


class PrepareSwap(NamedTuple):
    """Sync records, epochs and checkpoints of the future log."""


class SwapLogs(NamedTuple):
    """The future log replaces the current one."""


FutureLogStep: TypeAlias = CopyFrom | TruncateFutureTo | StartFutureOverAt | PrepareSwap | SwapLogs


def next_step(current: MovedLog, future: MovedLog, prepared_end: int | None) -> FutureLogStep:
    """`prepared_end` is the recovery point of the last prepared swap, None before.

    Records that were on disk are on disk after the swap. Therefore all that was there at the preparation is synced,
    and all that the current log has synced since.
    """
    end, start = future.log_end_offset, current.log_start_offset
    if end < start or future.log_start_offset > start:
        return StartFutureOverAt(start)
    if end > current.log_end_offset:
        return TruncateFutureTo(current.log_end_offset)
    if end < current.log_end_offset:
        return CopyFrom(end)
    if prepared_end is None or future.recovery_point < max(prepared_end, current.recovery_point):
        return PrepareSwap()
    return SwapLogs()


def common_end(current: MovedLog, future: MovedLog) -> int:
    """End of the records that both logs have, by their leader epochs.

    A crash may have truncated one log and not the other. A future log without epochs has nothing in common that could
    be proved, and is copied again.
    """
    end = future.log_end_offset
    for epoch, start_offset in reversed(future.leader_epochs.starts):
        found_epoch, end_offset = current.end_offset_for_epoch(epoch)
        if found_epoch == epoch:
            return min(end, end_offset)
        end = start_offset
    return min(end, future.log_start_offset)
