"""A compacted log that was copied has gaps, and no compaction of its own: no crash may take them for damage."""

import asyncio

from tests.server.harness import produce_request
from tests.simulation.scenario import (
    PRODUCE_VERSION,
    TOPIC,
    Scenario,
    ask,
    create_topic,
    in_sync,
    replica,
    simulate,
    stored,
    wait_for,
)
from tests.simulation.test_lost_store import lose_store
from tests.simulation.test_reassignment import alter, settled_at
from tests.storage.compacted_log import records_in
from tidelog.protocol.messages.produce import ProduceResponse
from tidelog.protocol.records import Record, build_batch
from tidelog.simulation.clients import client_cluster
from tidelog.simulation.cluster import SimulatedCluster
from tidelog.simulation.work.requests import alter_settings

OLD, NEW, CONTROLLER = (1, 2, 3), (4, 5, 6), 7
KEYS = 7
LONG_MS = 604_800_000


async def write(cluster: SimulatedCluster, number: int) -> None:
    record = Record(0, cluster.clock.now_ms(), b"k%d" % (number % KEYS), b"v%d" % number)
    request = produce_request(TOPIC, bytes(build_batch([record])), 0, -1)
    response = await ask(cluster, stored(cluster).leader, request, ProduceResponse, PRODUCE_VERSION)
    assert response.responses[0].partition_responses[0].error_code == 0


async def copied(cluster: SimulatedCluster) -> None:
    """The topic was compacted, and then moved to other brokers, whose logs have one segment each."""
    await create_topic(
        cluster, OLD, cleanup_policy="compact", segment_ms=500, min_cleanable_dirty_ratio=0.01, min_insync_replicas=2
    )
    for number in range(60):
        await write(cluster, number)
        await asyncio.sleep(0.1)
    await alter_settings(client_cluster(cluster, 1, "operator"), TOPIC, {"segment.ms": str(LONG_MS)})
    await asyncio.sleep(5)
    assert len(records_in(replica(cluster, OLD[0]).log)) < 60, "it was compacted"
    assert await alter(cluster, NEW) == 0
    await settled_at(cluster, *NEW)
    for number in range(60, 70):
        await write(cluster, number)
    await asyncio.sleep(5)


def values(cluster: SimulatedCluster) -> dict[bytes | None, bytes | None]:
    return {each.key: each.value for each in records_in(replica(cluster, stored(cluster).leader).log)}


async def killed_after_its_policy_was_changed(cluster: SimulatedCluster) -> None:
    await copied(cluster)
    await alter_settings(client_cluster(cluster, 1, "operator"), TOPIC, {"cleanup.policy": "delete"})
    await asyncio.sleep(1)
    before = values(cluster)
    for each in NEW:
        cluster.kill(each)
    await asyncio.gather(*(cluster.start(each) for each in NEW))
    await wait_for(lambda: stored(cluster).leader != -1 and in_sync(cluster) == set(NEW), 60)
    assert len(before) == KEYS
    assert values(cluster) == before


async def killed_with_the_store_lost(cluster: SimulatedCluster) -> None:
    """Nobody knows the settings of the topic while logs are loaded."""
    await copied(cluster)
    before = values(cluster)
    for each in cluster.machines:
        cluster.kill(each)
    lose_store(cluster)
    await asyncio.gather(*(cluster.start(each) for each in cluster.machines))
    await wait_for(lambda: stored(cluster).leader != -1, 60)
    await asyncio.sleep(10)
    assert len(before) == KEYS
    assert values(cluster) == before


def run(scenario: Scenario) -> None:
    simulate(scenario, 7, controller=CONTROLLER, log_cleaner_backoff_ms=200)


def test_a_copied_log_is_whole_after_a_crash_though_its_topic_is_no_longer_compacted() -> None:
    run(killed_after_its_policy_was_changed)


def test_a_copied_log_is_whole_after_a_crash_though_its_settings_are_lost() -> None:
    run(killed_with_the_store_lost)
