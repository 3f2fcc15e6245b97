"""Brokers on real sockets for what runs in the client's thread."""

from collections.abc import Iterator

import pytest

from tests.client.fake_cluster import HOST, FakeCluster
from tests.spark.pyspark_version import HAS_LIMITS
from tidelog.client.network.bootstrap import Address
from tidelog.runtime.socket_network import SocketNetwork
from tidelog.spark import client_thread
from tools.apache_kafka import free_port

collect_ignore = [] if HAS_LIMITS else ["test_driver_reads.py"]
"""Its reader has limits."""


@pytest.fixture
def fakes() -> Iterator[FakeCluster]:
    """It lives on the client's loop too, and nothing else does."""
    client_thread.stop()
    cluster = FakeCluster(brokers=1)
    cluster.brokers[1].address = Address(HOST, free_port())
    client_thread.run(cluster.listen(SocketNetwork(1_000_000)))

    async def end() -> None:
        cluster.brokers[1].close()

    yield cluster
    client_thread.run(end())
