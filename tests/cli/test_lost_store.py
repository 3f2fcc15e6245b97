"""The coordination store is lost while the log directories are whole: no record is."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.client import consume, produce
from tests.cli.local_cluster import LocalCluster, local_cluster

RECORDS = [f"record {number}" for number in range(1000)]
PAUSE_S = 0.2


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with local_cluster(tmp_path / "data", brokers=3) as found:
        yield found


def lose_store(cluster: LocalCluster) -> None:
    for path in cluster.data.glob("coordination.sqlite*"):
        path.unlink()


def test_records_are_there_after_the_store_was_removed_between_down_and_up(cluster: LocalCluster) -> None:
    cluster.up()
    produce(cluster.bootstrap, "orders", *RECORDS)
    cluster.run("down")
    lose_store(cluster)
    cluster.up()
    produce(cluster.bootstrap, "orders", "after")
    assert consume(cluster.bootstrap, "orders", len(RECORDS) + 1) == [*RECORDS, "after"]
    (partition,) = [each for each in cluster.status()["partitions"] if each["topic"] == "orders"]
    assert sorted(partition["isr"]) == sorted(partition["replicas"]) == [1, 2, 3]
    for number in (1, 2, 3):
        assert "earlier topic" not in cluster.log(number)
