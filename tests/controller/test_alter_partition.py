"""AlterPartition: what leaders of Apache Kafka may change, and what the controller makes of it."""

import pytest

from tests.controller.controlled_cluster import ControlledCluster, on_virtual_time
from tidelog.cluster.image import PartitionRegistration
from tidelog.controller.alter_partition import UNKNOWN_EPOCH, ProposedIsr, altered
from tidelog.controller.controller import Controller
from tidelog.controller.elections import Health
from tidelog.errors import (
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidRequest,
    InvalidUpdateVersion,
    KafkaError,
    NewLeaderElected,
    NotController,
    StaleBrokerEpoch,
    UnknownTopicOrPartition,
)
from tidelog.types import TopicPartition

ORDERS = TopicPartition("orders", 0)
LED_BY_1 = PartitionRegistration(
    0, (1, 2, 3), 1, 5, (1, 2), version=7, in_sync_epochs={1: 101, 2: 102}, eligible_leader_replicas=(3,)
)
HEALTHY = Health(frozenset({1, 2, 3}), epochs={1: 101, 2: 102, 3: 103})


def proposal(*in_sync: int, leader_epoch: int = 5, version: int = 7, epoch: int = UNKNOWN_EPOCH) -> ProposedIsr:
    return ProposedIsr(leader_epoch, version, tuple((each, epoch) for each in in_sync))


def test_replica_joins_in_its_current_incarnation() -> None:
    decision = altered(LED_BY_1, 1, proposal(1, 2, 3), HEALTHY)
    assert decision is not None
    found = decision.partition
    assert (found.in_sync_replicas, found.leader_epoch) == ((1, 2, 3), 5)
    assert found.in_sync_epochs == {1: 101, 2: 102, 3: 103}
    assert found.eligible_leader_replicas == ()


def test_replica_that_stays_keeps_its_recorded_incarnation() -> None:
    """Broker 2 has restarted since: only the controller may say that it is still in sync."""
    decision = altered(LED_BY_1, 1, proposal(1, 2, 3), HEALTHY._replace(epochs={1: 101, 2: 999, 3: 103}))
    assert decision is not None
    assert decision.partition.in_sync_epochs[2] == 102


def test_repeated_request_changes_nothing() -> None:
    assert altered(LED_BY_1, 1, proposal(1, 2, version=6), HEALTHY) is None


@pytest.mark.parametrize(
    ("leader", "proposed", "error"),
    [
        (1, proposal(1, leader_epoch=4), FencedLeaderEpoch),
        (1, proposal(1, leader_epoch=6), NotController),
        (1, proposal(1, version=8), NotController),
        (1, proposal(1, version=6), InvalidUpdateVersion),
        (2, proposal(2), InvalidRequest),
        (1, proposal(2), InvalidRequest),
        (1, proposal(1, 9), InvalidRequest),
        (1, proposal(1, 2, 3, epoch=5), IneligibleReplica),
    ],
)
def test_what_cannot_be_is_refused(leader: int, proposed: ProposedIsr, error: type[KafkaError]) -> None:
    with pytest.raises(error):
        altered(LED_BY_1, leader, proposed, HEALTHY)


@pytest.mark.parametrize(
    "health", [HEALTHY._replace(online=frozenset({1, 2})), HEALTHY._replace(shutting_down=frozenset({3}))]
)
def test_replica_on_a_broker_that_is_away_or_leaving_does_not_join(health: Health) -> None:
    with pytest.raises(IneligibleReplica):
        altered(LED_BY_1, 1, proposal(1, 2, 3), health)


async def ask(
    cluster: ControlledCluster, proposed: ProposedIsr, partition: TopicPartition = ORDERS, epoch: int | None = None
) -> PartitionRegistration | KafkaError:
    controller = controller_of(cluster)
    broker_epoch = controller.context.brokers[1].epoch if epoch is None else epoch
    found = (await controller.alter_partition(1, broker_epoch, {partition: proposed}))[partition]
    await cluster.settle()
    return found


def controller_of(cluster: ControlledCluster) -> Controller:
    return next(each for each in cluster.controllers.values() if each.is_active)


def test_new_isr_is_stored_and_sent_to_all_brokers_without_a_new_leader_epoch() -> None:
    async def scenario() -> None:
        cluster = await ControlledCluster.start()
        await cluster.create_topic("orders", [(1, 2, 3)])
        before = await cluster.partition("orders")
        cluster.forget_requests()
        found = await ask(cluster, proposal(1, 2, leader_epoch=0, version=before.version))
        assert isinstance(found, PartitionRegistration)
        stored = await cluster.partition("orders")
        assert (stored.in_sync_replicas, stored.leader_epoch, stored.version) == ((1, 2), 0, before.version + 1)
        assert (found.in_sync_replicas, found.version) == ((1, 2), stored.version)
        assert isinstance(
            await ask(cluster, proposal(1, 3, leader_epoch=0, version=before.version)), InvalidUpdateVersion
        )
        with pytest.raises(StaleBrokerEpoch):
            await ask(cluster, proposal(1, 2, 3), epoch=5)
        unknown = TopicPartition("unknown", 0)
        assert isinstance(await ask(cluster, proposal(1), unknown), UnknownTopicOrPartition)
        await cluster.stop()

    on_virtual_time(scenario)


def test_join_completes_a_reassignment() -> None:
    async def scenario() -> None:
        cluster = await ControlledCluster.start()
        await cluster.create_topic("orders", [(1, 2)])
        await controller_of(cluster).alter_partition_reassignments({ORDERS: (3, 2)})
        await cluster.settle()
        moving = await cluster.partition("orders")
        joined = proposal(1, 2, 3, leader_epoch=moving.leader_epoch, version=moving.version)
        assert isinstance(await ask(cluster, joined), NewLeaderElected)
        moved = await cluster.partition("orders")
        assert (moved.replicas, moved.in_sync_replicas, moved.leader) == ((3, 2), (2, 3), 3)
        await cluster.stop()

    on_virtual_time(scenario)
