"""Simulations of exactly-once copying alone: a group of workers under faults, judged by `work.copying`."""

from tidelog.simulation import chaos
from tidelog.simulation.chaos import Verdict
from tidelog.simulation.work.copying import Copying

KINDS = frozenset({Copying.name})


def run_seed(seed: int) -> Verdict:
    return chaos.run_seed(seed, KINDS)
