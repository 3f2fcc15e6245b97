from enum import Enum, auto

import pytest

from tidelog.state_machine import (
    HISTORY_LIMIT,
    SHARED_HISTORY_LIMIT,
    History,
    IllegalTransition,
    SharedHistory,
    StateMap,
    TransitionTable,
)
from tools.states_reference import REFERENCE, reference


class Lamp(Enum):
    OFF = auto()
    ON = auto()
    BROKEN = auto()


LAMP = TransitionTable({Lamp.OFF: {Lamp.ON, Lamp.BROKEN}, Lamp.ON: {Lamp.OFF, Lamp.BROKEN}, Lamp.BROKEN: set()})


def test_a_table_without_a_row_for_every_state_is_refused() -> None:
    with pytest.raises(AssertionError, match="Lamp: no row for"):
        TransitionTable({Lamp.OFF: {Lamp.ON}, Lamp.ON: {Lamp.OFF}})


def test_an_illegal_transition_lists_the_last_ones_newest_first() -> None:
    history = History()
    state = Lamp.OFF
    for number in range(HISTORY_LIMIT + 3):
        state = history.move(LAMP, "lamp", state, Lamp.ON if state is Lamp.OFF else Lamp.OFF, number)
    state = history.move(LAMP, "lamp", state, Lamp.BROKEN, "dropped")
    with pytest.raises(IllegalTransition) as raised:
        history.move(LAMP, "lamp", state, Lamp.ON, "switched")
    first, *earlier = str(raised.value).splitlines()
    assert first == "lamp: BROKEN -> ON (switched)"
    assert earlier[:2] == ["  ON -> BROKEN (dropped)", "  OFF -> ON (10)"]
    assert len(earlier) == HISTORY_LIMIT


def test_a_shared_history_is_bounded_and_finds_the_transitions_of_one_subject() -> None:
    history = SharedHistory[str]()
    history.record("old", Lamp.OFF, Lamp.ON, "long ago")
    for number in range(SHARED_HISTORY_LIMIT):
        history.record(f"lamp-{number % 2}", Lamp.OFF, Lamp.ON, number)
    assert history.of("old") == []
    assert [each.reason for each in history.of("lamp-1")][:2] == [SHARED_HISTORY_LIMIT - 1, SHARED_HISTORY_LIMIT - 3]
    assert len(history.of("lamp-1")) == HISTORY_LIMIT


def test_a_transition_into_the_same_state_is_no_history() -> None:
    table = TransitionTable({Lamp.OFF: {Lamp.ON}, Lamp.ON: {Lamp.ON, Lamp.OFF}, Lamp.BROKEN: set()})
    states = StateMap[str, Lamp](table, Lamp.OFF)
    for _ in range(3):
        moved, rejected = states.move(["lamp"], Lamp.ON, "switched")
        assert list(moved) == ["lamp"]
        assert not rejected
    assert len(states.history.of("lamp")) == 1


def test_the_page_of_all_tables_is_fresh() -> None:
    assert REFERENCE.read_text() == reference(), "run python -m tools.states_reference"
