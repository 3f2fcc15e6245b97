"""A cluster on this machine that keeps its metadata in ZooKeeper."""

from pathlib import Path

from tests.cli.client import consume, produce
from tests.cli.local_cluster import local_cluster
from tests.store.zookeeper import running_zookeeper


def test_cluster_on_zookeeper_starts_fails_over_and_starts_again(tmp_path: Path) -> None:
    with (
        running_zookeeper(tmp_path / "zookeeper") as server,
        local_cluster(tmp_path / "data", brokers=3) as cluster,
    ):
        cluster.up("--zookeeper", f"{server.connect_string}/tides", "--set", "zookeeper.session.timeout.ms=2000")
        produce(cluster.bootstrap, "greetings", "one")
        (partition,) = cluster.status()["partitions"]
        cluster.run("kill", str(partition["leader"]))
        produce(cluster.bootstrap, "greetings", "two")
        cluster.run("down")
        assert not (cluster.data / "coordination.sqlite").exists()
        cluster.run("up", "--detach")
        assert consume(cluster.bootstrap, "greetings", 2) == ["one", "two"]
        assert cluster.states() == {1: "up", 2: "up", 3: "up"}
        cluster.run("down")
