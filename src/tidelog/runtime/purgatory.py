"""Purgatory: delayed operations that wait for a change or their deadline, and complete exactly once (R14).

A key that may change (a partition's high watermark, say) owns `Watchers`. Changes within one turn of
the event loop are checked together at its end: a burst of appends completes a waiting fetch once,
with all of the burst. An `Observer` is notified of every change.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import Iterable
from typing import ClassVar, Protocol

from tidelog.runtime.broker_loop import call_at_end_of_turn
from tidelog.runtime.deadlines import DeadlineKey, Deadlines
from tidelog.runtime.turns import Turns


class DelayedOperation(ABC):
    """Waits until `is_satisfied` or its deadline."""

    __slots__ = ("_deadline", "_purgatory", "_watched", "is_completed")

    kind: ClassVar[str] = "Other"
    """Name in metrics."""

    def __init__(self) -> None:
        self.is_completed = False
        self._watched: list[Watchers] = []
        self._deadline: DeadlineKey | None = None
        self._purgatory: Purgatory | None = None

    @abstractmethod
    def is_satisfied(self, changed: "Watchers") -> bool:
        """Called after each change of a watched key, with that key."""

    @abstractmethod
    def on_completed(self) -> None:
        """Called once: satisfied, expired or completed early."""

    def start(self, purgatory: "Purgatory", watched: list["Watchers"], deadline: DeadlineKey) -> None:
        self._purgatory, self._watched, self._deadline = purgatory, watched, deadline
        for watchers in watched:
            watchers.operations[self] = None

    def complete(self) -> None:
        """Complete now, satisfied or not. A second call has no effect."""
        if self.is_completed:
            return
        self.abandon()
        self.on_completed()

    def abandon(self) -> None:
        """Stop waiting without `on_completed`: the client is gone."""
        if self.is_completed:
            return
        self.is_completed = True
        for watchers in self._watched:
            watchers.operations.pop(self, None)
        if self._purgatory is not None and self._deadline is not None:
            self._purgatory.forget(self.kind, self._deadline)


class Observer(Protocol):
    """Notified of every change of a key; must only record it."""

    @property
    def is_waiting(self) -> bool:
        """Whether an operation waits for the changes that this observer records."""

    def on_changed(self) -> None:
        """Must not add or remove observers. Operations that depend on the record are checked in the same turn."""


class Watchers:
    """The operations that wait for one key, and the observers of the key."""

    __slots__ = ("observers", "operations")

    def __init__(self) -> None:
        self.operations: dict[DelayedOperation, None] = {}
        self.observers: dict[Observer, None] = {}

    def __bool__(self) -> bool:
        return bool(self.operations or self.observers)

    @property
    def has_waiting(self) -> bool:
        """Whether anything waits now, directly or through an observer."""
        if self.operations or not self.observers:
            return bool(self.operations)
        return any(observer.is_waiting for observer in self.observers)


MAX_CHECKED_AT_ONCE = 64
"""If more operations wait for one key, they are checked in slices, so that other work runs in between."""


class Purgatory:
    """All delayed operations of one broker, of all kinds."""

    def __init__(self, loop: asyncio.AbstractEventLoop, deadlines: Deadlines, turns: Turns | None = None) -> None:
        self._deadlines = deadlines
        self._turns = self.turns = Turns(loop.time) if turns is None else turns
        self._changed: dict[Watchers, None] = {}
        self._crowded: dict[Watchers, int] = {}
        """Keys with many operations, and the changes since their check began; the first is being checked."""
        self._unchecked: deque[DelayedOperation] = deque()
        self.sizes: dict[str, int] = defaultdict(int)
        """Waiting operations by kind."""

    @property
    def size(self) -> int:
        return sum(self.sizes.values())

    def wait(self, operation: DelayedOperation, watched: Iterable[Watchers], timeout_s: float) -> None:
        """The caller must have found the operation unsatisfied in the same step."""
        self.sizes[operation.kind] += 1
        operation.start(self, list(watched), self._deadlines.add(timeout_s, operation.complete))

    def forget(self, kind: str, deadline: DeadlineKey) -> None:
        self.sizes[kind] -= 1
        self._deadlines.cancel(deadline)

    def changed(self, watchers: Watchers) -> None:
        """The key changed: notify its observers and check its operations at the end of this loop turn."""
        if not self._changed:
            call_at_end_of_turn(self._check_changed)
        self._changed[watchers] = None

    def _check_changed(self) -> None:
        for watchers in list(self._changed):
            for observer in watchers.observers:
                observer.on_changed()
        changed, self._changed = self._changed, {}
        for watchers in changed:
            if len(watchers.operations) > MAX_CHECKED_AT_ONCE:
                self._check_in_slices(watchers)
                continue
            for operation in list(watchers.operations):
                if not operation.is_completed and operation.is_satisfied(watchers):
                    operation.complete()

    def _check_in_slices(self, watchers: Watchers) -> None:
        if not self._crowded:
            self._turns.queue(self._check_some)
        # If the key changes during its check, the check runs to its end first, then once more.
        self._crowded[watchers] = self._crowded.get(watchers, 0) + 1

    def _check_some(self) -> None:
        try:
            while self._crowded and not self._turns.is_slice_over():
                self._check_crowded(next(iter(self._crowded)))
        finally:
            if self._crowded:
                self._turns.queue(self._check_some, is_continued=True)

    def _check_crowded(self, watchers: Watchers) -> None:
        if not self._unchecked:
            self._crowded[watchers] = 0
            self._unchecked.extend(watchers.operations)
        while self._unchecked:
            operation = self._unchecked.popleft()
            if not operation.is_completed and operation.is_satisfied(watchers):
                operation.complete()
            if self._unchecked and self._turns.is_slice_over():
                return
        if self._crowded.pop(watchers):
            self._crowded[watchers] = 1
