"""Streams while brokers die: three real brokers, and the leader of what is read killed in the middle."""

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.client import WAIT_S
from tests.cli.local_cluster import LocalCluster, local_cluster
from tests.spark.queries import Reader, numbered, running
from tests.spark_session import produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.processes]

TOPIC = "orders"
PARTITIONS = 3


def create_replicated(cluster: LocalCluster) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])[TOPIC].result(WAIT_S)


def kill_leader(cluster: LocalCluster) -> None:
    partition: dict[str, Any] = cluster.status()["partitions"][0]
    os.kill(cluster.pid(partition["leader"]), signal.SIGKILL)


def test_killed_leaders_neither_fail_a_stream_nor_cost_or_repeat_a_row(spark: "SparkSession", tmp_path: Path) -> None:
    """One query that reads on the driver and one whose tasks read, both of the same topic."""
    with local_cluster(tmp_path / "data", brokers=3) as cluster:
        cluster.up()
        create_replicated(cluster)
        reader = Reader(spark, cluster.bootstrap, TOPIC)
        with (
            running(reader.stream(), tmp_path / "driver") as on_driver,
            running(reader.stream(driverReadRows="0"), tmp_path / "tasks") as in_tasks,
        ):
            for number in range(3):
                produce(cluster.bootstrap, TOPIC, numbered(300, 300 * number))
                on_driver.wait_for(300 * number + 200)
                if number < 2:
                    cluster.up()  # the one that was killed before
                    kill_leader(cluster)
            for query in (on_driver, in_tasks):
                query.wait_for(900)
                assert query.values() == sorted(f"value-{number}" for number in range(900))
