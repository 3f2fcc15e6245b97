"""The checks of the invariants can fail: each notices what was made wrong by hand."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.server.harness import batch_of
from tests.simulation.scenario import TOPIC, create_topic, in_sync, produce, replica, simulate, stored, wait_for
from tidelog.cluster.znodes import CLUSTER_ID, ClusterNode, TakeoverState, encode_cluster, encode_state, state_path
from tidelog.protocol.record_batch import place
from tidelog.simulation.cluster import SimulatedCluster
from tidelog.simulation.invariants import Invariants, InvariantViolated
from tidelog.store.interface import NO_OWNER, Set
from tidelog.types import TopicPartition

PARTITION = TopicPartition(TOPIC, 0)
Damage = Callable[[SimulatedCluster, Invariants], None]


async def whole_cluster(cluster: SimulatedCluster) -> Invariants:
    """Broker 1 leads, and two records are everywhere."""
    await create_topic(cluster, [1, 2, 3])
    invariants = Invariants(cluster)
    for value in (b"a", b"b"):
        invariants.history.on_acknowledged(PARTITION, await produce(cluster, value), value)
    await wait_for(lambda: all(replica(cluster, each).log.high_watermark == 2 for each in (1, 2, 3)))
    invariants.check_settled()
    return invariants


def write_state(cluster: SimulatedCluster, **changes: object) -> None:
    state = replace(stored(cluster), **changes)  # type: ignore[arg-type]
    cluster.store_state.perform([Set(state_path(*PARTITION), encode_state(state))], NO_OWNER)


def let_a_broker_lead_out_of_sync(cluster: SimulatedCluster, invariants: Invariants) -> None:
    write_state(cluster, in_sync_replicas=(2, 3))


def cut_an_in_sync_replica(cluster: SimulatedCluster, invariants: Invariants) -> None:
    invariants.history.ends.clear()
    replica(cluster, 2).log.truncate_to(1)


def cut_what_was_acknowledged(cluster: SimulatedCluster, invariants: Invariants) -> None:
    replica(cluster, 2).log.truncate_to(1)


def give_a_follower_another_record(cluster: SimulatedCluster, invariants: Invariants) -> None:
    log = replica(cluster, 2).log
    log.truncate_to(1)
    other = bytearray(batch_of(b"c"))
    place(other, 1, 0)
    log.append_as_follower(other)


def lower_a_high_watermark(cluster: SimulatedCluster, invariants: Invariants) -> None:
    replica(cluster, 1).log.high_watermark = 1


def read_something_else(cluster: SimulatedCluster, invariants: Invariants) -> None:
    invariants.history.on_read(PARTITION, 1, b"c")


def begin_an_epoch_without_being_controller(cluster: SimulatedCluster, invariants: Invariants) -> None:
    write_state(cluster, leader_epoch=1)


def change_who_is_in_sync_without_leading(cluster: SimulatedCluster, invariants: Invariants) -> None:
    write_state(cluster, in_sync_replicas=(1, 2))


def lead_before_the_takeover_is_done(cluster: SimulatedCluster, invariants: Invariants) -> None:
    node = ClusterNode("cluster", TakeoverState.REGISTERING)
    cluster.store_state.perform([Set(CLUSTER_ID, encode_cluster(node))], NO_OWNER)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (let_a_broker_lead_out_of_sync, "I1 .* the leader is not in sync"),
        (cut_an_in_sync_replica, "I2 .* holds up to 1, and 2 is committed"),
        (give_a_follower_another_record, r"I3 .* both hold \(1, 0\)"),
        (cut_what_was_acknowledged, "I4 .* ends at 1, 2 was acknowledged"),
        (lower_a_high_watermark, "I5 .* fell from 2 to 1"),
        (read_something_else, "I5 .* was b'b' and is read as b'c'"),
        (begin_an_epoch_without_being_controller, "I6 .* another session is controller"),
        (change_who_is_in_sync_without_leading, "I6 .* not written by its leader"),
        (lead_before_the_takeover_is_done, "I6 .* broker 1 leads in epoch 0, and the store is not in use"),
    ],
)
def test_damage_is_noticed(damage: Damage, message: str) -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        invariants = await whole_cluster(cluster)
        damage(cluster, invariants)
        invariants.check()

    with pytest.raises(InvariantViolated, match=message):
        simulate(scenario)


def test_a_replica_in_a_failed_log_directory_is_not_compared() -> None:
    """Seed 100057: the check came between the failure of the directory and the step that reaches its partitions."""

    async def scenario(cluster: SimulatedCluster) -> None:
        invariants = await whole_cluster(cluster)
        replica(cluster, 3).log.directory.is_online = False
        invariants.check()

    simulate(scenario)


def test_a_replica_that_stays_out_of_sync_is_noticed_in_the_end() -> None:
    """I7"""

    async def scenario(cluster: SimulatedCluster) -> None:
        invariants = await whole_cluster(cluster)
        cluster.kill(3)
        await wait_for(lambda: in_sync(cluster) == {1, 2})
        invariants.check()
        assert not invariants.is_settled()
        invariants.check_settled()

    with pytest.raises(InvariantViolated, match=r"I7 .* in-sync replicas are \(1, 2\)"):
        simulate(scenario)


def test_records_that_are_lost_or_doubled_are_noticed_in_the_end() -> None:
    """I4"""

    async def scenario(cluster: SimulatedCluster) -> None:
        invariants = await whole_cluster(cluster)
        invariants.history.acknowledged[PARTITION][b"never written"] = 2
        invariants.check_settled()

    with pytest.raises(InvariantViolated, match=r"I4 .* b'never written', which was acknowledged, 0 times"):
        simulate(scenario)
