"""Operations that wait for a change or for their deadline, and end exactly once (R14).

A key that may change (a partition's high watermark, say) owns `Watchers`. Changes made within one
turn of the event loop are looked at together at its end, so that a burst of appends wakes a waiting
fetch once, with all of the burst. Who must know of every change, waiting or not, is an `Observer`.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import Iterable
from typing import ClassVar, Protocol

from tidelog.runtime.deadlines import DeadlineKey, Deadlines
from tidelog.runtime.turns import Turns


class DelayedOperation(ABC):
    """Waits until `is_satisfied`, or until its deadline."""

    __slots__ = ("_deadline", "_purgatory", "_watched", "is_completed")

    kind: ClassVar[str] = "Other"
    """What metrics call it."""

    def __init__(self) -> None:
        self.is_completed = False
        self._watched: list[Watchers] = []
        self._deadline: DeadlineKey | None = None
        self._purgatory: Purgatory | None = None

    @abstractmethod
    def is_satisfied(self, changed: "Watchers") -> bool:
        """Asked after each change that the operation watches, with the key that changed."""

    @abstractmethod
    def on_completed(self) -> None:
        """Called once: satisfied, out of time or given up."""

    def start(self, purgatory: "Purgatory", watched: list["Watchers"], deadline: DeadlineKey) -> None:
        self._purgatory, self._watched, self._deadline = purgatory, watched, deadline
        for watchers in watched:
            watchers.operations[self] = None

    def complete(self) -> None:
        """End now, whatever the state; a second call has no effect."""
        if self.is_completed:
            return
        self.abandon()
        self.on_completed()

    def abandon(self) -> None:
        """Stop waiting and tell nobody: whoever asked has gone."""
        if self.is_completed:
            return
        self.is_completed = True
        for watchers in self._watched:
            watchers.operations.pop(self, None)
        if self._purgatory is not None and self._deadline is not None:
            self._purgatory.forget(self.kind, self._deadline)


class Observer(Protocol):
    """Stays with its key from change to change, and does no more than to make a note of each."""

    def on_changed(self) -> None:
        """Adds and removes no observers. Operations that wait for its note are asked in the same turn."""


class Watchers:
    """The operations that wait for one key, and its observers."""

    __slots__ = ("observers", "operations")

    def __init__(self) -> None:
        self.operations: dict[DelayedOperation, None] = {}
        self.observers: dict[Observer, None] = {}

    def __bool__(self) -> bool:
        return bool(self.operations or self.observers)


MAX_ASKED_AT_ONCE = 64
"""More operations that wait for one key are asked in slices, so that others have their turn in between."""


class Purgatory:
    """Where delayed operations of one kind wait."""

    def __init__(self, loop: asyncio.AbstractEventLoop, deadlines: Deadlines, turns: Turns | None = None) -> None:
        self._loop = loop
        self._deadlines = deadlines
        self._turns = Turns(loop.time) if turns is None else turns
        self._changed: dict[Watchers, None] = {}
        self._crowded: dict[Watchers, int] = {}
        """Keys with many operations, and how often each changed since it was begun; the first is being worked on."""
        self._unasked: deque[DelayedOperation] = deque()
        self.sizes: dict[str, int] = defaultdict(int)
        """How many wait, by their kind."""

    @property
    def size(self) -> int:
        return sum(self.sizes.values())

    def wait(self, operation: DelayedOperation, watched: Iterable[Watchers], timeout_s: float) -> None:
        """The caller has just found the operation unsatisfied, in the same step."""
        self.sizes[operation.kind] += 1
        operation.start(self, list(watched), self._deadlines.add(timeout_s, operation.complete))

    def forget(self, kind: str, deadline: DeadlineKey) -> None:
        self.sizes[kind] -= 1
        self._deadlines.cancel(deadline)

    def changed(self, watchers: Watchers) -> None:
        """The key changed: tell its observers and ask those who wait for it, at the end of this turn of the loop."""
        if not self._changed:
            self._loop.call_soon(self._ask)
        self._changed[watchers] = None

    def _ask(self) -> None:
        for watchers in list(self._changed):
            for observer in watchers.observers:
                observer.on_changed()
        changed, self._changed = self._changed, {}
        for watchers in changed:
            if len(watchers.operations) > MAX_ASKED_AT_ONCE:
                self._ask_in_slices(watchers)
                continue
            for operation in list(watchers.operations):
                if not operation.is_completed and operation.is_satisfied(watchers):
                    operation.complete()

    def _ask_in_slices(self, watchers: Watchers) -> None:
        if not self._crowded:
            self._turns.queue(self._ask_some)
        # One that changes while its operations are asked is gone through to the end first, then once more.
        self._crowded[watchers] = self._crowded.get(watchers, 0) + 1

    def _ask_some(self) -> None:
        try:
            while self._crowded and not self._turns.is_slice_over():
                self._ask_crowd(next(iter(self._crowded)))
        finally:
            if self._crowded:
                self._turns.queue(self._ask_some, is_continued=True)

    def _ask_crowd(self, watchers: Watchers) -> None:
        if not self._unasked:
            self._crowded[watchers] = 0
            self._unasked.extend(watchers.operations)
        while self._unasked:
            operation = self._unasked.popleft()
            if not operation.is_completed and operation.is_satisfied(watchers):
                operation.complete()
            if self._unasked and self._turns.is_slice_over():
                return
        if self._crowded.pop(watchers):
            self._crowded[watchers] = 1
