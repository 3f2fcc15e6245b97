"""Truncation of a log: records removed from the end, or all of them, with epochs, producers and checkpoints (R3, R4).

Steps that can fail for lack of descriptors come first, so that a shortage leaves the log unchanged.
"""

from tidelog.storage.disk_errors import irreversible_change
from tidelog.storage.log_state import LogState
from tidelog.storage.segment import LOG_SUFFIX


def truncate_to(log: LogState, offset: int) -> None:
    """Remove all records from `offset` on, and the whole batch that contains it."""
    kept = [segment for segment in log.local.segments if segment.base_offset <= offset]
    if not kept:
        start_over_at(log, offset)
        return
    segment = kept[-1]
    place = segment.find_batch(offset)
    end_offset = offset if place is None else min(place.base_offset, offset)
    if end_offset < log.log_start_offset:
        # The log start is inside the removed batch: no readable record is left.
        start_over_at(log, min(log.log_start_offset, offset))
        return
    truncation = segment.prepare_truncation(segment.size_bytes if place is None else place.position, end_offset)
    producers = log.snapshots.as_of(log.producers, kept, end_offset)
    _checkpoint(log, end_offset, log.log_start_offset, kept[0].base_offset)
    with irreversible_change():
        log.local.truncate(kept, log.deletion_due_ms())
        log.flusher.on_name_changed(log.path)
        segment.truncate(truncation)
        _end_at(log, end_offset)
        log.snapshots.truncate(end_offset)
        log.producers.become(producers)
        log.on_producers_replaced()
    if log.on_truncated is not None:
        log.on_truncated(end_offset)


def start_over_at(log: LogState, offset: int, log_start_offset: int | None = None) -> None:
    """Continue as an empty log at `offset`. The log start may be later, inside the first batch."""
    log_start_offset = offset if log_start_offset is None else log_start_offset
    segment = log.local.prepare_new_start(offset)
    try:
        _checkpoint(log, offset, log_start_offset, offset)
    except OSError:
        log.directory.context.disk.remove(segment.path(LOG_SUFFIX))
        raise
    with irreversible_change():
        log.local.start_over(segment, log.deletion_due_ms())
        log.flusher.on_name_changed(log.path)
        log.leader_epochs.clear()
        log.snapshots.remove_all()
        _end_at(log, offset)
        log.log_start_offset = log.high_watermark = log_start_offset
        log.producers.clear(offset)
        log.on_producers_replaced()
    if log.on_truncated is not None:
        log.on_truncated(offset)


def _checkpoint(log: LogState, end_offset: int, log_start_offset: int, base_offset: int) -> None:
    """Lower the recovery point before the truncation: after a crash, later records must not count as flushed.

    A crash before the truncation only makes recovery read more than necessary.
    """
    log.directory.checkpoint_truncation(
        log.topic_partition,
        end_offset,
        recovery_point=min(log.flusher.recovery_point, end_offset),
        log_start_offset=log_start_offset if log_start_offset > base_offset else None,
    )


def _end_at(log: LogState, offset: int) -> None:
    log.flusher.on_truncated(offset)
    if log.cleaned_until is not None:
        log.cleaned_until = min(log.cleaned_until, offset)
    log.local.forget_tail(offset)
    log.log_end_offset = offset
    log.leader_epochs.truncate_from_end(offset)
    log.log_start_offset = min(log.log_start_offset, offset)
    log.high_watermark = min(log.high_watermark, offset)
