"""Fault schedules: kind, target and time of each fault as data, so that a run can be repeated with a subset."""

from typing import NamedTuple

from tidelog.runtime.randomness import SeededRandomness
from tidelog.simulation.swarm import ALL_FAULTS, SwarmConfig
from tidelog.types import BrokerId

LEADER, CONTROLLER = 0, -1
"""Placeholders for a broker id: the leader of the first partition, or the controller, when the fault is applied."""

DURATIONS_MS = (100, 1000, 3000, 10_000)
DETAILS = 10_000
FIRST_FAULT_MS = 500
MOST_FAULTS = 400


class FaultEvent(NamedTuple):
    number: int
    at_s: float
    """Time since faults began."""
    kind: str
    who: BrokerId
    other: BrokerId
    """Second broker, for faults of a link."""
    for_s: float
    """Duration; a killed broker is started after it."""
    detail: int
    """Number below DETAILS for all other random choices."""


def draw_schedule(config: SwarmConfig) -> list[FaultEvent]:
    randomness = SeededRandomness(config.seed * 7919 + 1)
    kinds = [kind for kind in ALL_FAULTS if kind in config.faults]
    events: list[FaultEvent] = []
    at_ms = FIRST_FAULT_MS
    while kinds and len(events) < MOST_FAULTS:
        at_ms += randomness.below(config.longest_pause_ms)
        if at_ms >= config.fault_duration_s * 1000:
            break
        events.append(_draw_event(randomness, len(events) + 1, at_ms, kinds, config.brokers))
    return events


def _draw_event(randomness: SeededRandomness, number: int, at_ms: int, kinds: list[str], brokers: int) -> FaultEvent:
    kind = kinds[randomness.below(len(kinds))]
    duration_ms = DURATIONS_MS[randomness.below(len(DURATIONS_MS))]
    return FaultEvent(
        number=number,
        at_s=at_ms / 1000,
        kind=kind,
        who=(LEADER, LEADER, CONTROLLER, *(1 + randomness.below(brokers) for _ in range(3)))[randomness.below(6)],
        other=1 + randomness.below(brokers),
        for_s=(1 + randomness.below(duration_ms)) / 1000,
        detail=randomness.below(DETAILS),
    )
