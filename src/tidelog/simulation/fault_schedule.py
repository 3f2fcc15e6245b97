"""Fault schedules: which fault strikes whom when, as data, so that a run can be repeated with some of them left out."""

from typing import NamedTuple

from tidelog.runtime.randomness import SeededRandomness
from tidelog.simulation.swarm import FAULTS, SwarmConfig
from tidelog.types import BrokerId

LEADER, CONTROLLER = 0, -1
"""In place of a broker id: whoever leads the first partition, or is controller, when the fault strikes."""

DURATIONS_MS = (100, 1000, 3000, 10_000)
DETAILS = 10_000
FIRST_FAULT_MS = 500
MOST_FAULTS = 400


class FaultEvent(NamedTuple):
    number: int
    at_s: float
    """Since the beginning of the faults."""
    kind: str
    who: BrokerId
    other: BrokerId
    """A second broker, for what concerns a link."""
    for_s: float
    """How long it lasts; a broker that was killed is started then."""
    detail: int
    """What else is left to chance: a number below DETAILS."""


def draw_schedule(config: SwarmConfig) -> list[FaultEvent]:
    randomness = SeededRandomness(config.seed * 7919 + 1)
    kinds = [kind for kind in FAULTS if kind in config.faults]
    events: list[FaultEvent] = []
    at_ms = FIRST_FAULT_MS
    while kinds and len(events) < MOST_FAULTS:
        at_ms += randomness.below(config.longest_pause_ms)
        if at_ms >= config.troubled_s * 1000:
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
