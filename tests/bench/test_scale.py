"""Requests and writes of a controller as the cluster grows: counted, so that it holds on a busy machine."""

from bench.scale import Figures, measure
from tidelog.runtime.virtual_time import run_virtually

BROKERS = 10
START, BROKER_FAILURE, CONTROLLER_FAILURE = 0, 1, 2


def measured(partitions: int) -> list[Figures]:
    return run_virtually(measure(partitions, BROKERS, new_topics=50))


def test_bytes_and_writes_per_partition_do_not_grow_with_the_cluster() -> None:
    small, large = measured(300), measured(900)
    for before, after in zip(small, large, strict=True):
        assert after.writes / after.partitions <= 1.1 * before.writes / before.partitions, after.what
        assert after.bytes / after.partitions <= 1.1 * before.bytes / before.partitions, after.what
        assert after.requests <= before.requests + BROKERS, after.what


def test_a_failed_broker_costs_what_it_had_and_nothing_for_the_rest_of_the_cluster() -> None:
    figures = measured(600)
    failure, start = figures[BROKER_FAILURE], figures[START]
    assert failure.partitions == 600 * 3 // BROKERS
    assert failure.writes == failure.partitions
    assert failure.bytes < start.bytes / 3
    assert failure.requests <= 3 * BROKERS  # live brokers, roles, metadata: one of each to every broker
