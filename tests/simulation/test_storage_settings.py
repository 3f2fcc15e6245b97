"""Storage settings of swarms: each is drawn, defaults too, and small segments are rolled, deleted and truncated."""

from dataclasses import fields, replace

import pytest

from tidelog.config.broker import BrokerSettings
from tidelog.simulation.chaos import Chaos
from tidelog.simulation.fault_schedule import draw_schedule
from tidelog.simulation.processes import run_simulation
from tidelog.simulation.storage_settings import CHOICES, StorageSettings
from tidelog.simulation.swarm import SwarmConfig, draw_config
from tidelog.simulation.work.writing import ORDERS

SEED = 7
DEFAULTS = StorageSettings()


def test_every_choice_is_drawn_and_half_of_the_runs_have_the_defaults() -> None:
    drawn = [draw_config(seed).storage for seed in range(300)]
    for name, values in CHOICES.items():
        assert {getattr(each, name) for each in drawn} == set(values), name
    assert 100 < drawn.count(DEFAULTS) < 200


def test_the_settings_are_settings_of_the_broker() -> None:
    """And all of them can be drawn."""
    assert CHOICES.keys() == {field.name for field in fields(StorageSettings)}
    assert CHOICES.keys() <= {field.name for field in fields(BrokerSettings)}


@pytest.mark.parametrize(
    ("storage", "least"),
    [
        (DEFAULTS, 1),
        (StorageSettings(log_segment_bytes=350), 8),
        (StorageSettings(log_index_interval_bytes=0, log_index_size_max_bytes=24), 8),
    ],
    ids=["defaults", "small-segments", "small-indexes"],
)
def test_a_run_with_small_segments_or_indexes_rolls_many(storage: StorageSettings, least: int) -> None:
    config = replace(draw_config(SEED), storage=storage, segment_ms=604_800_000, work=frozenset({"writes"}))
    counts = _segments_of_orders(config)
    assert all(count >= least for count in counts)
    assert least > 1 or set(counts) == {1}


def _segments_of_orders(config: SwarmConfig) -> list[int]:
    """Segments of each replica at the end of the run."""

    async def main() -> list[int]:
        chaos = Chaos(config, draw_schedule(config))
        assert (await chaos.run()).violations == []
        brokers = chaos._cluster.running
        return [
            len(log.segments)
            for broker in brokers
            if broker._logs is not None
            for topic_partition, log in broker._logs.logs.items()
            if topic_partition.topic == ORDERS
        ]

    return run_simulation(main())
