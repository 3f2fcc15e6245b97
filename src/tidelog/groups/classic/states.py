"""The states of a classic group, and which state may follow which."""

from collections.abc import Mapping
from enum import Enum


class GroupState(Enum):
    EMPTY = "Empty"  # no members, perhaps offsets
    PREPARING_REBALANCE = "PreparingRebalance"  # members are joining
    COMPLETING_REBALANCE = "CompletingRebalance"  # a new generation waits for its leader's assignment
    STABLE = "Stable"  # every member has its assignment, or can ask for it
    DEAD = "Dead"  # deleted, or moved to another coordinator


MOVES: Mapping[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.PREPARING_REBALANCE: frozenset({GroupState.EMPTY, GroupState.COMPLETING_REBALANCE, GroupState.STABLE}),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
    GroupState.DEAD: frozenset(GroupState),
}
"""From which states a group may come into each state."""


class IllegalGroupMove(Exception):
    """A mistake of ours: the group is not where the step took it to be."""
