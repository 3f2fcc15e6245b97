"""The coordination store is lost and the log directories are not: R44."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.simulation.scenario import (
    all_well_again,
    ask,
    controller_of,
    create_topic,
    in_sync,
    produce,
    produce_to,
    read_all,
    replica,
    simulate,
    stored,
    wait_for,
)
from tidelog.cluster import znodes
from tidelog.errors import CoordinatorLoadInProgress
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tidelog.server.broker import CannotStart
from tidelog.simulation.cluster import SimulatedCluster
from tidelog.simulation.inspection import is_in_use
from tidelog.simulation.invariants import Invariants
from tidelog.store.interface import Operation
from tidelog.store.memory import MemoryStoreState
from tidelog.types import BrokerId

WAIT_MS = 5000


def lose_store(cluster: SimulatedCluster) -> None:
    """Of brokers that run, each learns that its session is unknown to the new, empty store."""
    lost, cluster.store_state = cluster.store_state, MemoryStoreState()
    for session_id in list(lost.sessions):
        lost.expire(session_id)


async def wait_for_records(cluster: SimulatedCluster, *expected: bytes) -> None:
    """The high watermark rises as soon as the followers have fetched."""
    leader = stored(cluster).leader
    await wait_for(lambda: replica(cluster, leader).log.high_watermark == len(expected))
    assert await read_all(cluster) == list(expected)


def topic_id_of(cluster: SimulatedCluster) -> object:
    node = cluster.store_state.nodes[znodes.topic_path("orders")]
    return znodes.decode_topic("orders", node.data, 0, [None], {}).topic_id


def is_stray(cluster: SimulatedCluster, broker_id: BrokerId) -> bool:
    entries = cluster.machines[broker_id].disk.list_directory("/logs")
    return any(entry.name.endswith(("-stray", "-delete")) for entry in entries)


async def new_producer_id(cluster: SimulatedCluster, broker_id: BrokerId) -> int:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    while (response := await ask(cluster, broker_id, request, InitProducerIdResponse)).error_code:
        assert response.error_code == CoordinatorLoadInProgress.code, response
        await asyncio.sleep(0.1)
    return response.producer_id


async def written_before(cluster: SimulatedCluster) -> None:
    await create_topic(cluster, [2, 1, 3], retention_ms=777_000_000)
    await produce(cluster, b"one", b"two")
    await asyncio.sleep(2.0)  # what brokers note of their cluster is on disk


async def kill_all(cluster: SimulatedCluster) -> None:
    for broker in list(cluster.running):
        cluster.kill(broker.broker_id)
    await asyncio.sleep(1.0)


def test_brokers_that_start_with_an_empty_store_have_everything_again() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await written_before(cluster)
        topic_id, epoch = topic_id_of(cluster), stored(cluster).leader_epoch
        before = await new_producer_id(cluster, 2)
        await cluster.stop_all()
        lose_store(cluster)
        await cluster.start_all()
        await wait_for(lambda: in_sync(cluster) == {1, 2, 3})
        await wait_for_records(cluster, b"one", b"two")
        assert topic_id_of(cluster) == topic_id
        assert stored(cluster).leader_epoch > epoch
        assert await new_producer_id(cluster, 1) >= before + 1
        assert b"777000000" in cluster.store_state.nodes[znodes.topic_config_path("orders")].data
        await produce(cluster, b"three")
        await wait_for_records(cluster, b"one", b"two", b"three")
        await all_well_again(cluster)
        assert not any(is_stray(cluster, each) for each in cluster.machines)

    simulate(scenario)


def test_the_newest_log_leads_and_the_others_follow_it() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await written_before(cluster)
        cluster.kill(2)
        await produce(cluster, b"three", timeout_s=60)
        cluster.kill(1)
        await produce(cluster, b"four", timeout_s=60)
        await kill_all(cluster)
        lose_store(cluster)
        await cluster.start_all()
        assert stored(cluster).leader == 3
        await wait_for_records(cluster, b"one", b"two", b"three", b"four")
        await all_well_again(cluster)
        assert in_sync(cluster) == {1, 2, 3}

    simulate(scenario, min_insync_replicas=1)


def test_nobody_serves_while_a_member_is_missing_and_then_the_start_is_refused() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await written_before(cluster)
        await kill_all(cluster)
        lose_store(cluster)
        starts = [asyncio.ensure_future(cluster.start(each)) for each in (1, 3)]
        await asyncio.sleep(1.0)
        wanted = MetadataRequest(topics=[MetadataRequestTopic(name="orders")], allow_auto_topic_creation=True)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(WAIT_MS / 1000 / 2):
                await ask(cluster, 1, wanted, MetadataResponse)
        for start in starts:
            with pytest.raises(CannotStart, match=r"hold 1 topic with 1 partition, and broker 2 of this"):
                await start
        await asyncio.sleep(1.0)
        assert znodes.topic_path("orders") not in cluster.store_state.nodes
        await cluster.start_all()
        await all_well_again(cluster)
        await wait_for_records(cluster, b"one", b"two")

    simulate(scenario, takeover_wait_ms=WAIT_MS)


def test_a_member_that_lost_its_directories_is_missed_unless_that_is_accepted() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await written_before(cluster)
        await kill_all(cluster)
        lose_store(cluster)
        cluster.wipe(2)
        for _ in range(2):  # the first attempt leaves a mark of the cluster in the new directories
            results = await asyncio.gather(*map(cluster.start, (1, 2, 3)), return_exceptions=True)
            assert all(isinstance(result, CannotStart) for result in results), results
            assert any("broker 2 held replicas, and its log directories are new" in str(each) for each in results)
            await asyncio.sleep(1.0)
        await asyncio.gather(*(cluster.start(each, unclean_takeover_enable=True) for each in (1, 2, 3)))
        await wait_for_records(cluster, b"one", b"two")
        assert sorted(stored(cluster).in_sync_replicas) == [1, 3]

    simulate(scenario, takeover_wait_ms=WAIT_MS)


def test_a_store_that_is_lost_while_brokers_run_is_filled_again() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await written_before(cluster)
        before, topic_id = await new_producer_id(cluster, 1), topic_id_of(cluster)
        epoch = stored(cluster).leader_epoch
        lose_store(cluster)
        await wait_for(lambda: znodes.state_path("orders", 0) in cluster.store_state.nodes)
        assert stored(cluster).leader_epoch > epoch
        assert topic_id_of(cluster) == topic_id
        await produce(cluster, b"three")
        await wait_for_records(cluster, b"one", b"two", b"three")
        assert await new_producer_id(cluster, 1) > before
        await all_well_again(cluster)

    simulate(scenario)


def test_a_store_that_is_lost_while_one_broker_is_down_waits_for_it() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await written_before(cluster)
        cluster.kill(1)
        await asyncio.sleep(2.0)
        lose_store(cluster)
        await asyncio.sleep(WAIT_MS / 1000 * 2)
        assert znodes.topic_path("orders") not in cluster.store_state.nodes
        assert "broker 1 of this cluster is not running" in cluster.broker(2)._membership.suspension
        await cluster.start(1)
        await produce(cluster, b"three")
        await wait_for_records(cluster, b"one", b"two", b"three")
        assert cluster.broker(2)._membership.suspension == ""

    simulate(scenario, takeover_wait_ms=WAIT_MS)


def test_a_store_that_is_older_than_the_logs_is_refused() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await written_before(cluster)
        await cluster.stop_all()
        path = znodes.CONTROLLER_EPOCH
        node = cluster.store_state.nodes[path]
        cluster.store_state.nodes[path] = replace(node, data=b"0")
        with pytest.raises(CannotStart, match="the coordination store is older than the log directories"):
            await cluster.start(1)

    simulate(scenario)


def test_an_empty_store_of_another_cluster_is_refused() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await written_before(cluster)
        await cluster.stop_all()
        lose_store(cluster)
        cluster.wipe(1)
        await cluster.start(1)
        with pytest.raises(CannotStart, match=r"belongs to cluster\.id="):
            await cluster.start(2)
        assert replica_count(cluster, 2) == 1

    simulate(scenario)


def replica_count(cluster: SimulatedCluster, broker_id: BrokerId) -> int:
    entries = cluster.machines[broker_id].disk.list_directory("/logs")
    return sum(entry.name == "orders-0" for entry in entries)


def test_nobody_with_a_shorter_log_leads_before_it_has_caught_up() -> None:
    """Below min ISR others would be eligible, but nobody can tell whether a shorter log has all that was committed."""

    async def scenario(cluster: SimulatedCluster) -> None:
        await create_topic(cluster, [1, 2, 3], min_insync_replicas=2)
        await produce(cluster, b"one")
        cluster.cut_off_from_peers(1)
        await produce_to(cluster, 1, b"two", acks=1)
        await asyncio.sleep(2)
        await kill_all(cluster)
        lose_store(cluster)
        await cluster.start_all()  # still cut off: the others cannot follow
        assert (stored(cluster).leader, stored(cluster).in_sync_replicas) == (1, (1,))
        cluster.kill(1)
        await wait_for(lambda: stored(cluster).leader == -1)
        await asyncio.sleep(20)
        assert (stored(cluster).leader, stored(cluster).in_sync_replicas) == (-1, (1,))
        await all_well_again(cluster, timeout_s=60)
        await wait_for_records(cluster, b"one", b"two")

    simulate(scenario, takeover_wait_ms=WAIT_MS)


async def epoch_in_metadata(cluster: SimulatedCluster, broker_id: BrokerId) -> int:
    """The leader epoch that a client hears of."""
    wanted = MetadataRequest(topics=[MetadataRequestTopic(name="orders")], allow_auto_topic_creation=False)
    response = await ask(cluster, broker_id, wanted, MetadataResponse)
    assert response.topics
    return response.topics[0].partitions[0].leader_epoch


def test_leaders_are_in_a_later_epoch_than_clients_know_though_nobody_noted_that_one() -> None:
    """Clients ignore metadata of an older epoch than they know: they would never find the leader."""

    async def scenario(cluster: SimulatedCluster) -> None:
        await create_topic(cluster, [2, 3])
        await asyncio.sleep(2.0)
        cluster.kill(2)
        await wait_for(lambda: stored(cluster).leader == 3)
        await asyncio.sleep(0.1)
        cluster.kill(3)
        await wait_for(lambda: stored(cluster).leader == -1)
        await asyncio.sleep(0.1)
        known = await epoch_in_metadata(cluster, 1)
        assert known == stored(cluster).leader_epoch
        await kill_all(cluster)  # before broker 1 writes down what it answered
        lose_store(cluster)
        await cluster.start_all()
        assert await epoch_in_metadata(cluster, 1) > known
        await all_well_again(cluster)

    simulate(scenario)


async def killed_while_it_registers(cluster: SimulatedCluster) -> BrokerId:
    """The controller of the takeover, which has registered topics, but not said that this was all."""
    written = asyncio.Event()

    def on_written(_: int, operations: Sequence[Operation]) -> None:
        if any(each.path == znodes.state_path("orders", 0) for each in operations):
            written.set()

    cluster.store_state.on_written.append(on_written)
    cluster.store_state.lose()
    await written.wait()
    cluster.store_state.on_written.remove(on_written)
    controller = controller_of(cluster)
    cluster.kill(controller)
    assert not is_in_use(cluster.store_state)
    return controller


def test_the_next_controller_registers_again_what_the_one_before_did_not_finish() -> None:
    """And is judged as a controller, though the chosen leaders lead in the same leader epoch."""

    async def scenario(cluster: SimulatedCluster) -> None:
        await written_before(cluster)
        invariants = Invariants(cluster)
        cluster.store_state.latency_s = 0.01
        killed = await killed_while_it_registers(cluster)
        first = stored(cluster)
        await asyncio.sleep(5)
        assert not is_in_use(cluster.store_state)
        invariants.check()
        await cluster.start(killed)
        await wait_for(lambda: is_in_use(cluster.store_state))
        assert (stored(cluster).leader, stored(cluster).leader_epoch) == (first.leader, first.leader_epoch)
        assert stored(cluster).controller_epoch > first.controller_epoch
        await produce(cluster, b"three")
        await wait_for_records(cluster, b"one", b"two", b"three")
        await all_well_again(cluster)
        invariants.check()

    simulate(scenario)
