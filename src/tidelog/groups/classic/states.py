"""States of a classic group, with their legal transitions."""

from enum import Enum
from typing import Final

from tidelog.state_machine import TransitionTable


class GroupState(Enum):
    EMPTY = "Empty"  # no members, perhaps offsets
    PREPARING_REBALANCE = "PreparingRebalance"  # members are joining
    COMPLETING_REBALANCE = "CompletingRebalance"  # a new generation waits for its leader's assignment
    STABLE = "Stable"  # every member has its assignment, or can request it
    DEAD = "Dead"  # deleted, or moved to another coordinator


_TABLE: Final = {
    GroupState.EMPTY: {GroupState.PREPARING_REBALANCE},
    GroupState.PREPARING_REBALANCE: {GroupState.EMPTY, GroupState.COMPLETING_REBALANCE},
    GroupState.COMPLETING_REBALANCE: {GroupState.PREPARING_REBALANCE, GroupState.STABLE},
    GroupState.STABLE: {GroupState.PREPARING_REBALANCE},
    GroupState.DEAD: set[GroupState](),
}

TRANSITIONS: Final = TransitionTable({state: {*targets, GroupState.DEAD} for state, targets in _TABLE.items()})
"""A group may die in any state: its partition can move to another coordinator at any time."""
