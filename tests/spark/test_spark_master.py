"""A wrong Spark master is reported before Java starts."""

import re
import socket

import pytest

from tidelog.spark.spark_master import WrongMaster, reject_wrong_master


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]", "local[*, 4]", "local-cluster[2,1,1024]"])
def test_masters_that_spark_knows(master: str) -> None:
    reject_wrong_master(master)


@pytest.mark.parametrize(
    "master",
    [
        "foo",
        "locall[2]",
        "local[x]",
        "local[0]",
        "local[]",
        "localhost:7077",
        "spark://localhost",
        "k8s://",
        "k8s://https://a:port",
    ],
)
def test_what_is_not_a_master_is_reported(master: str) -> None:
    with pytest.raises(WrongMaster, match=re.escape(f"'{master}' is not a Spark master: use")):
        reject_wrong_master(master)


def test_yarn_needs_the_configuration_of_its_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it Spark looks for a resource manager on this machine, for a quarter of an hour."""
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(WrongMaster, match="HADOOP_CONF_DIR"):
        reject_wrong_master("yarn")
    monkeypatch.setenv("YARN_CONF_DIR", "/etc/hadoop")
    reject_wrong_master("yarn")


@pytest.mark.parametrize("scheme", ["", "http://", "https://"])
def test_a_kubernetes_that_does_not_answer_is_reported(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"k8s://{scheme}127.0.0.1:{listening.getsockname()[1]}"
        reject_wrong_master(address)
    with pytest.raises(WrongMaster, match=f"no Kubernetes API answers at {address} .*refused"):
        reject_wrong_master(address)
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    reject_wrong_master(address)


def test_a_master_that_does_not_answer_is_reported() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, but nobody listens
        port = taken.getsockname()[1]
        with pytest.raises(WrongMaster, match=rf"no Spark master answers at spark://127.0.0.1:{port} .*refused"):
            reject_wrong_master(f"spark://127.0.0.1:{port}")


def test_one_of_two_masters_is_enough() -> None:
    with socket.socket() as closed, socket.create_server(("127.0.0.1", 0)) as listening:
        closed.bind(("127.0.0.1", 0))
        ports = closed.getsockname()[1], listening.getsockname()[1]
        reject_wrong_master(f"spark://127.0.0.1:{ports[0]},127.0.0.1:{ports[1]}")
