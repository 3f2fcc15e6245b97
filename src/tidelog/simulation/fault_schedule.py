"""Fault schedules: kind, target and time of each fault as data, so that a run can be repeated with a subset."""

from typing import NamedTuple

from tidelog.runtime.randomness import SeededRandomness
from tidelog.simulation.swarm import FAILED_LOG_DIR, FAULTS, SwarmConfig
from tidelog.types import BrokerId

LEADER, CONTROLLER = 0, -1
"""Placeholders for a broker id: the leader of the first partition, or the controller, when the fault is applied."""

DURATIONS_MS = (100, 1000, 3000, 10_000)
DETAILS = 10_000
FIRST_FAULT_MS = 500
MAX_FAULTS = 400
FAILED_LOG_DIR_SOURCE = 37


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
    kinds = [kind for kind in FAULTS if kind in config.faults]
    events = _draw_events(config, SeededRandomness(config.seed * 7919 + 1), kinds, 1)
    if FAILED_LOG_DIR in config.faults:  # besides the others, which stay where they are
        own = SeededRandomness(config.seed * 7919 + FAILED_LOG_DIR_SOURCE)
        events += _draw_events(config, own, [FAILED_LOG_DIR], len(events) + 1, pause_factor=3)
    return sorted(events, key=lambda event: event.at_s)


def _draw_events(
    config: SwarmConfig, randomness: SeededRandomness, kinds: list[str], first: int, pause_factor: int = 1
) -> list[FaultEvent]:
    events: list[FaultEvent] = []
    at_ms = FIRST_FAULT_MS
    while kinds and len(events) < MAX_FAULTS:
        at_ms += randomness.below(config.longest_pause_ms * pause_factor)
        if at_ms >= config.fault_duration_s * 1000:
            break
        events.append(_draw_event(randomness, first + len(events), at_ms, kinds, config.brokers))
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
