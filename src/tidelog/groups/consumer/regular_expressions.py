"""Regular expressions for topic subscriptions, matched by the broker in time proportional to the name.

The syntax is RE2's, which Kafka uses, where it matters for names of topics (ASCII letters, digits, `.`, `_`, `-`):
literals, `.`, classes with ranges, negation and `[:alpha:]`, `\\d \\D \\w \\W \\s \\S`, escapes (`\\.`, `\\x2d`,
`\\Q...\\E`), groups of all kinds, `|`, `* + ? {n} {n,} {n,m}` greedy or not, `^ $ \\A \\z \\b \\B`, and the flags `i`,
`s`, `m`, `U`. As in RE2 there are no back references, lookaheads or lookbehinds: no expression can take exponential
time. Supported Unicode classes are the categories (`\\pL`, `\\p{Nd}`), `Any`, `Latin` and `Common`. Other scripts are
rejected: RE2 has them, but topic names cannot contain them.

An expression is compiled to a nondeterministic automaton (Thompson). Sets of states are cached, so that most names cost
one lookup per character; the cost of the rest is limited.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from tidelog.groups.consumer.expression_parser import (
    WORD,
    Alternatives,
    Anchor,
    Characters,
    InvalidExpression,
    Node,
    Repetition,
    Sequence,
    parse,
)

MAX_STATES = 10_000
MAX_REMEMBERED = 2_000
MAX_WORK = 100_000
"""Limit of states visited to match one list of names, which is one step: some hundredths of a second."""


class _Fork(NamedTuple):
    """Continue at any of these states."""

    targets: list[int]


class _Read(NamedTuple):
    """Continue after one of these characters."""

    characters: frozenset[str]
    is_negated: bool
    target: int


class _Assert(NamedTuple):
    """Continue if the anchor matches at this position."""

    anchor: Anchor
    target: int


_State: TypeAlias = _Fork | _Read | _Assert
_MATCH = 0


class _Place:
    """Position between two characters of a name: the active states, and the kind of character before it."""

    __slots__ = ("before", "is_match", "moves", "states")

    def __init__(self, states: frozenset[int], before: str) -> None:
        self.states = states
        self.before = before
        """A character of the same kind as the previous one; empty at the start."""
        self.moves: dict[str, _Place] = {}
        self.is_match: bool | None = None


class TopicPattern:
    """Pattern that matches whole names, like Kafka's `matches`."""

    def __init__(self, expression: str) -> None:
        self.expression = expression
        self._states: list[_State] = [_Fork([])]
        self._start = frozenset([self._compile(parse(expression), _MATCH)])
        self._places: dict[tuple[frozenset[int], str], _Place] = {}
        self.work = 0
        """States visited for the last list of names."""

    def matching(self, names: Iterable[str]) -> frozenset[str]:
        """Names that match. Raises InvalidExpression if matching takes too long."""
        self.work = 0
        try:
            return frozenset(name for name in names if self._matches(name))
        finally:
            self._places.clear()  # used again only after topics change: not worth the memory

    def _matches(self, name: str) -> bool:
        place = self._place(self._start, "")
        for character in name:
            following = place.moves.get(character)
            place = self._move(place, character) if following is None else following
        if place.is_match is None:
            place.is_match = _MATCH in self._closure(place, "")
        return place.is_match

    def _place(self, states: frozenset[int], before: str) -> _Place:
        place = self._places.get((states, before))
        if place is None:
            if len(self._places) >= MAX_REMEMBERED:
                self._places.clear()
            place = self._places[states, before] = _Place(states, before)
        return place

    def _move(self, place: _Place, character: str) -> _Place:
        targets = set()
        for number in self._closure(place, character):
            state = self._states[number]
            if isinstance(state, _Read) and (character in state.characters) != state.is_negated:
                targets.add(state.target)
        following = self._place(frozenset(targets), "w" if character in WORD else "-")
        if place.states is self._start or (place.states, place.before) in self._places:
            place.moves[character] = following
        return following

    def _closure(self, place: _Place, behind: str) -> set[int]:
        reached: set[int] = set()
        waiting = list(place.states)
        while waiting:
            number = waiting.pop()
            if number in reached:
                continue
            reached.add(number)
            state = self._states[number]
            if isinstance(state, _Fork):
                waiting.extend(state.targets)
            elif isinstance(state, _Assert) and _holds(state.anchor, place.before, behind):
                waiting.append(state.target)
        self.work += len(reached) + 1
        if self.work > MAX_WORK:
            raise InvalidExpression("matching the names of all topics takes too long")
        return reached

    def _add(self, state: _State) -> int:
        if len(self._states) >= MAX_STATES:
            raise InvalidExpression("expression too large")
        self._states.append(state)
        return len(self._states) - 1

    def _compile(self, node: Node, target: int) -> int:
        """State that matches the node and continues at `target`."""
        match node:
            case Characters(characters, is_negated):
                return self._add(_Read(characters, is_negated, target))
            case Anchor():
                return self._add(_Assert(node, target))
            case Sequence(parts):
                for part in reversed(parts):
                    target = self._compile(part, target)
                return target
            case Alternatives(choices):
                return self._add(_Fork([self._compile(choice, target) for choice in choices]))
            case Repetition():
                return self._repeat(node, target)

    def _repeat(self, node: Repetition, target: int) -> int:
        if node.maximum is None:
            loop = _Fork([target])
            start = self._add(loop)
            loop.targets.append(self._compile(node.node, start))
        else:
            start = target
            for _ in range(node.maximum - node.minimum):
                start = self._add(_Fork([self._compile(node.node, start), target]))
        for _ in range(node.minimum):
            start = self._compile(node.node, start)
        return start


def _holds(anchor: Anchor, before: str, behind: str) -> bool:
    if anchor is Anchor.START:
        return not before
    if anchor is Anchor.END:
        return not behind
    is_edge = (before in WORD) != (behind in WORD)
    return is_edge == (anchor is Anchor.WORD_EDGE)


@lru_cache(maxsize=64)
def topic_pattern(expression: str) -> TopicPattern:
    """Raises InvalidExpression."""
    return TopicPattern(expression)
