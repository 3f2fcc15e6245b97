"""Instrumentation of replica logs: listeners are called after every change of a log or of a role, in the same step."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any, NamedTuple, Protocol, TypeAlias

from tidelog.protocol.record_batch import split_batches
from tidelog.replication.partition import Partition
from tidelog.storage.log import Log
from tidelog.storage.log_state import LogState
from tidelog.storage.segment import Segment
from tidelog.types import Buffer


class BatchFacts(NamedTuple):
    """Identity of a batch in a log."""

    base_offset: int
    end_offset: int
    leader_epoch: int
    crc: int


WrittenBatch: TypeAlias = tuple[BatchFacts, Buffer]


class LogListener(Protocol):
    def on_appended(self, log: Log, appended: list[BatchFacts], batches: list[Buffer], *, is_leader: bool) -> None: ...

    def on_truncated(self, log: Log) -> None: ...

    def on_high_watermark(self, log: Log) -> None: ...

    def on_log_start(self, log: Log) -> None: ...

    def on_retention(self, log: Log, start_before: int, now_ms: int) -> None: ...

    def on_compacted(self, log: Log) -> None: ...

    def on_leader(self, partition: Partition) -> None: ...

    def on_replaced(self, partition: Partition, replaced: Log) -> None: ...


@contextmanager
def watching_logs(listener: LogListener) -> Iterator[None]:
    """Context in which every log of this process reports to the listener.

    Batches are captured when they are written to the segment: reading them back would hit injected disk faults.
    """
    written: list[WrittenBatch] = []
    with ExitStack() as stack:
        _wrap(stack, Segment, "append", lambda segment, _, data, *__: written.extend(_batches_of(data)))
        for name, is_leader in (("append_as_leader", True), ("append_as_follower", False)):
            _wrap_append(stack, name, written, listener, is_leader=is_leader)
        for name in ("truncate_to", "truncate_fully_and_start_at"):
            _wrap(stack, Log, name, lambda log, *_: listener.on_truncated(log))
        _wrap(stack, LogState, "raise_high_watermark", _if_moved(_unless_future(listener.on_high_watermark)))
        for owner, name in ((LogState, "advance_log_start_offset"), (Log, "delete_old_segments")):
            _wrap(stack, owner, name, _if_moved(_unless_future(listener.on_log_start)))
        _wrap_retention(stack, listener)
        _wrap(stack, Log, "replace_segments", lambda log, *_: listener.on_compacted(log))
        _wrap_swap(stack, listener)
        _wrap(stack, Partition, "become_leader", lambda partition, *_: listener.on_leader(partition))
        yield


def _batches_of(data: Buffer) -> list[WrittenBatch]:
    """The batches with copies of their bytes: a follower writes several together."""
    return [
        (BatchFacts(header.base_offset, header.end_offset, header.leader_epoch, header.crc), bytes(batch))
        for header, batch in split_batches(data)
    ]


def _wrap(stack: ExitStack, owner: type, name: str, after: Callable[..., object]) -> None:
    """`after` is called with the object, the method's result and its arguments."""
    original = getattr(owner, name)

    @wraps(original)
    def method(self: Any, *arguments: Any, **named: Any) -> Any:
        result = original(self, *arguments, **named)
        after(self, result, *arguments)
        return result

    _replace(stack, owner, name, method)


def _wrap_append(
    stack: ExitStack, name: str, written: list[WrittenBatch], listener: LogListener, *, is_leader: bool
) -> None:
    original = getattr(Log, name)

    @wraps(original)
    def append(self: Log, *arguments: Any, **named: Any) -> Any:
        written.clear()
        try:
            return original(self, *arguments, **named)
        finally:  # a follower that runs out of descriptors keeps the batches before the one that failed
            end_offset = self.log_end_offset
            kept = [each for each in written if each[0].end_offset <= end_offset]
            written.clear()
            if kept:
                listener.on_appended(
                    self, [facts for facts, _ in kept], [batch for _, batch in kept], is_leader=is_leader
                )

    _replace(stack, Log, name, append)


def _wrap_retention(stack: ExitStack, listener: LogListener) -> None:
    original = Log.delete_old_segments

    @wraps(original)
    def delete_old_segments(self: Log, now_ms: int) -> Any:
        start_before = self.log_start_offset
        result = original(self, now_ms)
        if self.log_start_offset > start_before:
            listener.on_retention(self, start_before, now_ms)
        return result

    _replace(stack, Log, "delete_old_segments", delete_old_segments)


def _wrap_swap(stack: ExitStack, listener: LogListener) -> None:
    original = Partition.replace_log

    @wraps(original)
    def replace_log(self: Partition, log: Log) -> None:
        replaced = self.log
        original(self, log)
        listener.on_replaced(self, replaced)

    _replace(stack, Partition, "replace_log", replace_log)


def _unless_future(notify: Callable[[Log], None]) -> Callable[[Log], None]:
    """A future log follows the offsets of the current one, later."""

    def after(log: Log) -> None:
        if not log.is_future:
            notify(log)

    return after


def _if_moved(notify: Callable[[Log], None]) -> Callable[..., None]:
    def after(log: Log, moved: object, *_: object) -> None:
        if moved:
            notify(log)

    return after


def _replace(stack: ExitStack, owner: type, name: str, method: Callable[..., Any]) -> None:
    original = owner.__dict__[name]
    setattr(owner, name, method)
    stack.callback(setattr, owner, name, original)
