"""Addresses of the brokers' metrics, as `tidelog up` shows them."""

import socket
import urllib.request
from pathlib import Path

from tests.cli.local_cluster import local_cluster
from tests.server.scrape import Scrape
from tidelog.cli.local_cluster.plan import METRICS_PORT_OFFSET


def metrics_line(said: str) -> str:
    (line,) = [line for line in said.splitlines() if line.startswith("metrics: ")]
    return line


def test_each_broker_shows_its_metrics_above_its_own_port(tmp_path: Path) -> None:
    with local_cluster(tmp_path / "data", brokers=2) as cluster:
        said = cluster.up()
        urls = [f"http://127.0.0.1:{cluster.port + METRICS_PORT_OFFSET + number}/metrics" for number in (0, 1)]
        assert metrics_line(said) == f"metrics: {' '.join(urls)}"
        assert said.splitlines()[-1].startswith("bootstrap: ")
        found = []
        for url in urls:
            with urllib.request.urlopen(url, timeout=60) as response:
                found.append(Scrape(response.read().decode()))
        assert sum(each("kafka_controller_kafkacontroller_activecontrollercount") for each in found) == 1
        assert sum(each("kafka_controller_kafkacontroller_activebrokercount") for each in found) == 2


def test_a_port_that_is_taken_leaves_a_broker_without_metrics_but_running(tmp_path: Path) -> None:
    with local_cluster(tmp_path / "data", brokers=1) as cluster, socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", cluster.port + METRICS_PORT_OFFSET))
        other.listen()
        assert metrics_line(cluster.up()) == "metrics: none (none for broker 1: port in use)"
        assert cluster.states() == {1: "up"}
