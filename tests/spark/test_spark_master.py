"""A wrong Spark master is reported before Java starts."""

import socket

import pytest

from tidelog.spark.spark_master import WrongMaster, reject_wrong_master


@pytest.mark.parametrize(
    "master", ["local", "local[2]", "local[*]", "local-cluster[2,1,1024]", "yarn", "k8s://https://a"]
)
def test_masters_that_spark_knows(master: str) -> None:
    reject_wrong_master(master)


@pytest.mark.parametrize("master", ["foo", "locall[2]", "localhost:7077", "spark://localhost"])
def test_what_is_not_a_master_is_reported(master: str) -> None:
    with pytest.raises(WrongMaster, match=f"'{master}' is not a Spark master: use".replace("[", r"\[")):
        reject_wrong_master(master)


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
