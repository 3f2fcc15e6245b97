"""Whom to kill, when: drawn by lot from a seed, so that a run can be had again."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Target(StrEnum):
    DRIVER = "driver"
    """`tidelog pipeline run` with Java and all below it, as if its machine had gone."""
    DRIVER_PYTHON = "driver's Python"
    """Java is left behind, and has to notice."""
    DRIVER_JAVA = "driver's Java"
    WORKER = "Python worker"
    """Any Python process of Spark: of a task, of the source, of their parent."""
    EXECUTOR = "executor"
    """A Java process of a cluster that runs tasks."""
    BROKER = "broker"
    """The only one: it comes back with what it had."""


LOCAL_TARGETS = (
    Target.WORKER,
    Target.DRIVER,
    Target.WORKER,
    Target.WORKER,
    Target.DRIVER_PYTHON,
    Target.WORKER,
    Target.BROKER,
    Target.WORKER,
    Target.DRIVER_JAVA,
)
CLUSTER_TARGETS = (
    Target.EXECUTOR,
    Target.DRIVER,
    Target.WORKER,
    Target.EXECUTOR,
    Target.WORKER,
    Target.DRIVER_PYTHON,
    Target.EXECUTOR,
    Target.WORKER,
    Target.BROKER,
    Target.EXECUTOR,
    Target.DRIVER_JAVA,
)
HASTE = 0.25
"""So many kills do not wait until the pipeline has recovered from the last one."""
MAX_PAUSE_S = 1.5
MAX_HASTY_PAUSE_S = 6.0
ENDING_THE_DRIVER = frozenset({Target.DRIVER, Target.DRIVER_PYTHON, Target.DRIVER_JAVA})


@dataclass(frozen=True, slots=True)
class PlannedKill:
    target: Target
    is_hasty: bool
    pause_s: float


def planned_kills(count: int, chance: random.Random, kinds: Sequence[Target]) -> list[PlannedKill]:
    """Every kind of process in turn, then shuffled."""
    targets = [kinds[number % len(kinds)] for number in range(count)]
    chance.shuffle(targets)
    return [_planned(target, chance) for target in targets]


def _planned(target: Target, chance: random.Random) -> PlannedKill:
    is_hasty = chance.random() < HASTE
    return PlannedKill(target, is_hasty, chance.uniform(0, MAX_HASTY_PAUSE_S if is_hasty else MAX_PAUSE_S))
