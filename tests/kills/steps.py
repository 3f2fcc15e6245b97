"""Kill points: the steps of a micro-batch that is written exactly once."""

from enum import StrEnum
from typing import NamedTuple


class Step(StrEnum):
    BEFORE_OPENING = "before opening"
    AFTER_OPENING = "after opening"
    IN_WRITE = "in a task, with rows written"
    BEFORE_COMMIT = "before the commit"
    AFTER_COMMIT = "after the commit, before Spark's own"


class Victim(StrEnum):
    DRIVER = "driver"
    WORKER = "Python worker"
    """The one that takes the step."""
    EXECUTOR = "executor"
    """The Java process below which the step is taken; any, where the driver takes it."""
    BROKER = "broker"


class Blow(NamedTuple):
    step: Step
    victim: Victim


LOCAL_VICTIMS = frozenset(Victim) - {Victim.EXECUTOR}
ALL_BLOWS = [Blow(step, victim) for victim in Victim for step in Step]
