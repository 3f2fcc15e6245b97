"""Deleted keys of a compacted topic stay deleted when a replica was away for longer than delete.retention.ms (R45)."""

import asyncio
from typing import Any
from unittest.mock import patch

import pytest

from tests.server.harness import produce_request
from tests.simulation.scenario import (
    PRODUCE_VERSION,
    TOPIC,
    ask,
    create_topic,
    in_sync,
    is_leading,
    replica,
    simulate,
    wait_for,
)
from tests.storage.compacted_log import records_in
from tidelog.protocol.messages.produce import ProduceResponse
from tidelog.protocol.records import Record, build_batch
from tidelog.server.cluster_state import ClusterState
from tidelog.simulation.cluster import SimulatedCluster
from tidelog.storage.log import Log

CLEANED_SOON: dict[str, Any] = {"cleanup_policy": "compact", "segment_ms": 500, "min_cleanable_dirty_ratio": 0.01}
DELETE_RETENTION_MS = 1000


async def write(cluster: SimulatedCluster, key: bytes, value: bytes | None) -> None:
    batch = build_batch([Record(0, cluster.clock.now_ms(), key, value)])
    response = await ask(cluster, 1, produce_request(TOPIC, bytes(batch), 0, -1), ProduceResponse, PRODUCE_VERSION)
    assert response.responses[0].partition_responses[0].error_code == 0


def values_of(log: Log, key: bytes) -> list[bytes | None]:
    return [record.value for record in records_in(log) if record.key == key]


async def a_replica_misses_a_tombstone(cluster: SimulatedCluster) -> None:
    await create_topic(cluster, [1, 2], delete_retention_ms=DELETE_RETENTION_MS, **CLEANED_SOON)
    await write(cluster, b"k", b"old")
    cluster.kill(2)
    await wait_for(lambda: in_sync(cluster) == {1})
    await write(cluster, b"k", None)
    for _ in range(20):
        await asyncio.sleep(0.5)
        await write(cluster, b"other", b"v")
    assert values_of(replica(cluster, 1).log, b"k") in ([], [None]), "the value was cleaned"
    await cluster.start(2)
    await wait_for(lambda: in_sync(cluster) == {1, 2})
    cluster.kill(1)
    await wait_for(lambda: is_leading(cluster, 2))
    assert (values_of(replica(cluster, 2).log, b"k") or [None])[-1] is None, "the deleted key is back"


def test_a_key_stays_deleted_though_a_replica_was_away_for_long() -> None:
    simulate(a_replica_misses_a_tombstone, controller=3, log_cleaner_backoff_ms=200)


def test_the_key_is_back_where_tombstones_go_by_time_alone() -> None:
    with (
        patch.object(ClusterState, "are_replicas_in_sync", lambda _self, _partition: True),
        pytest.raises(AssertionError, match="the deleted key is back"),
    ):
        simulate(a_replica_misses_a_tombstone, controller=3, log_cleaner_backoff_ms=200)


async def tombstones_go_when_all_are_in_sync(cluster: SimulatedCluster) -> None:
    await create_topic(cluster, [1, 2], delete_retention_ms=DELETE_RETENTION_MS, **CLEANED_SOON)
    await write(cluster, b"k", b"old")
    await write(cluster, b"k", None)
    for _ in range(20):
        await asyncio.sleep(0.5)
        await write(cluster, b"other", b"v")
    assert values_of(replica(cluster, 1).log, b"k") == []
    assert values_of(replica(cluster, 2).log, b"k") == []


def test_tombstones_are_deleted_on_all_replicas_that_are_in_sync() -> None:
    simulate(tombstones_go_when_all_are_in_sync, controller=3, log_cleaner_backoff_ms=200)
