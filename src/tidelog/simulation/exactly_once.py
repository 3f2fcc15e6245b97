"""Simulation of exactly-once copying only: a group of workers under faults, checked by `work.copying`."""

from dataclasses import replace

from tidelog.simulation import chaos
from tidelog.simulation.chaos import Verdict
from tidelog.simulation.fault_schedule import draw_schedule
from tidelog.simulation.swarm import draw_config
from tidelog.simulation.work.copying import Copying

KINDS = frozenset({Copying.name})
MIN_S = 15.0
PAUSE_MS = 200


def run_seed(seed: int) -> Verdict:
    """Run a drawn configuration, made long and dense enough for many transactions."""
    config = draw_config(seed)
    config = replace(config, work=KINDS, fault_duration_s=config.fault_duration_s + MIN_S, write_pause_ms=PAUSE_MS)
    return chaos.run_config(config, draw_schedule(config))
