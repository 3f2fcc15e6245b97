"""State machines: transition tables, the history of recent transitions, and the error of an illegal one.

A table says which states may follow each state. An illegal transition is a bug of ours, not a fault of the request: it
changes nothing, and its error names the transitions that led there.
"""

# Core: no clock, no I/O, no await.

from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from enum import Enum
from typing import Final, Generic, NamedTuple, TypeVar

State = TypeVar("State", bound=Enum)
Subject = TypeVar("Subject", bound=Hashable)

HISTORY_LIMIT: Final = 8
"""Transitions kept for one subject and shown in an error."""
SHARED_HISTORY_LIMIT: Final = 4096
"""Transitions kept for all subjects of a map together, which bounds the memory."""


class Transition(NamedTuple):
    before: Enum
    after: Enum
    reason: object
    """Converted to text only when it is read."""

    def __str__(self) -> str:
        return f"{self.before.name} -> {self.after.name} ({self.reason})"


class IllegalTransition(AssertionError):
    """The table does not permit the transition. The message lists the subject's last transitions, newest first."""

    def __init__(self, subject: object, rejected: Transition, earlier: Iterable[Transition]) -> None:
        self.subject = subject
        self.rejected = rejected
        super().__init__("\n  ".join([f"{subject}: {rejected}", *map(str, earlier)]))


class TransitionTable(dict[State, frozenset[State]]):
    """The states that may follow each state. Every state has a row, even if it is empty."""

    __slots__ = ()

    def __init__(self, following: Mapping[State, AbstractSet[State]]) -> None:
        super().__init__({state: frozenset(targets) for state, targets in following.items()})
        states = type(next(iter(following)))
        missing = [state.name for state in states if state not in following]
        assert not missing, f"{states.__name__}: no row for {missing}"


class History:
    """The last transitions of one subject. It has no reference to the subject, which would be a cycle."""

    __slots__ = ("_transitions",)

    def __init__(self) -> None:
        self._transitions: tuple[Transition, ...] = ()

    def __iter__(self) -> Iterator[Transition]:
        """Newest first."""
        return reversed(self._transitions)

    def move(
        self, table: TransitionTable[State], subject: object, before: State, target: State, reason: object
    ) -> State:
        """The target, with the transition recorded. Raises IllegalTransition."""
        transition = Transition(before, target, reason)
        if target not in table[before]:
            raise IllegalTransition(subject, transition, self)
        self._transitions = (*self._transitions[1 - HISTORY_LIMIT :], transition)
        return target


class SharedHistory(Generic[Subject]):
    """The last transitions of many subjects."""

    __slots__ = ("_transitions",)

    def __init__(self) -> None:
        self._transitions: deque[tuple[Subject, Transition]] = deque(maxlen=SHARED_HISTORY_LIMIT)

    def of(self, subject: Subject) -> list[Transition]:
        """Transitions of one subject, newest first. Slow: searches all subjects. Only for errors."""
        return [transition for each, transition in reversed(self._transitions) if each == subject][:HISTORY_LIMIT]

    def check(
        self, table: TransitionTable[State], subject: Subject, before: State, target: State, reason: object
    ) -> None:
        """Raises IllegalTransition."""
        if target not in table[before]:
            raise IllegalTransition(subject, Transition(before, target, reason), self.of(subject))

    def record(self, subject: Subject, before: State, target: State, reason: object) -> None:
        self._transitions.append((subject, Transition(before, target, reason)))


class StateMap(dict[Subject, State]):
    """The states of many subjects. A subject that is not in the map is in the absent state."""

    __slots__ = ("absent", "history", "table")

    def __init__(self, table: TransitionTable[State], absent: State) -> None:
        super().__init__()
        self.table = table
        self.absent = absent
        self.history = SharedHistory[Subject]()

    def move(
        self, subjects: Iterable[Subject], target: State, reason: object
    ) -> tuple[dict[Subject, State], list[IllegalTransition]]:
        """Move all subjects whose transition is legal. Returns their earlier states, and the illegal transitions."""
        moved: dict[Subject, State] = {}
        rejected: list[IllegalTransition] = []
        legal: State | None = None  # a state that was checked: thousands of subjects come from the same one
        for subject in subjects:
            before = self.get(subject, self.absent)
            if before is not legal:
                try:
                    self.history.check(self.table, subject, before, target, reason)
                except IllegalTransition as illegal:
                    rejected.append(illegal)
                    continue
                legal = before
            moved[subject] = before
            if before is not target:
                self.history.record(subject, before, target, reason)
            if target is self.absent:
                self.pop(subject, None)
            else:
                self[subject] = target
        return moved, rejected
