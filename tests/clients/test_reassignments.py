"""Reassignments as kafka-python asks for them: moved, listed while one is under way, cancelled."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.broker import TidelogCluster, running
from tests.clients.conftest import CLIENT_MARKS
from tests.clients.driver import wait_until

pytestmark = CLIENT_MARKS


NO_REASSIGNMENT_IN_PROGRESS = 85
INVALID_REPLICA_ASSIGNMENT = 39


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[TidelogCluster]:
    process = TidelogCluster(tmp_path)
    with running(process):
        yield process


def test_kafka_python_moves_lists_and_cancels(cluster: TidelogCluster) -> None:
    from kafka import TopicPartition  # here, where its warnings are let pass
    from kafka.admin import KafkaAdminClient

    orders = TopicPartition("orders", 0)
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap.split(","))
    try:
        controller = admin.describe_cluster()["controller_id"]
        source, target = (each for each in cluster.brokers if each != controller)
        admin.create_topics({"orders": {"assignments": {0: [controller, source]}}}, wait_for_metadata=True)
        assert admin.alter_partition_reassignments({orders: [controller, target]}) == {orders: None}
        wait_until(lambda: replicas(admin) == [controller, target], "the replica moved")
        assert admin.list_partition_reassignments() == {}
        assert admin.alter_partition_reassignments({orders: None})[orders].errno == NO_REASSIGNMENT_IN_PROGRESS
        assert admin.alter_partition_reassignments({orders: [9]})[orders].errno == INVALID_REPLICA_ASSIGNMENT
        wait_until(
            lambda: has_begun_to_move_to_dead(cluster, source, admin, {orders: [controller, source]}), "it waits"
        )
        (found,) = admin.list_partition_reassignments([orders]).values()
        assert (found["adding_replicas"], found["removing_replicas"]) == ([source], [target])
        assert admin.alter_partition_reassignments({orders: None}) == {orders: None}
        assert admin.list_partition_reassignments() == {}
        wait_until(lambda: replicas(admin) == [controller, target], "the replicas are the old ones")
    finally:
        admin.close()


def has_begun_to_move_to_dead(cluster: TidelogCluster, dead: int, admin: Any, wanted: dict[Any, list[int]]) -> bool:
    """A killed broker is a live one until its session ends: a move to it is accepted, and waits."""
    cluster.brokers[dead].kill()
    (error,) = admin.alter_partition_reassignments(wanted).values()
    if error is None:
        return True
    assert error.errno == INVALID_REPLICA_ASSIGNMENT, "its session has ended before"
    cluster.brokers[dead].start()
    return False


def replicas(admin: Any) -> list[int]:
    (topic,) = admin.describe_topics(["orders"])
    (partition,) = topic["partitions"]
    return list(partition["replica_nodes"])
