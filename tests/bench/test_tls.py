"""The part with TLS: its peers, its client and its figures, on a broker with TLS and next to nothing to do."""

from dataclasses import replace
from pathlib import Path

import pytest

from bench.login_costs import measure
from bench.measures import QUICK
from bench.page_cache import PageCache
from bench.scenarios import Session
from bench.tls_measures import tls_measures
from bench.tls_peers import KafkaClusterWithTls, TidelogClusterWithTls, TidelogWithTls, TlsAddress
from bench.tls_workloads import produce_and_consume, run_client


def test_clusters_have_ports_of_their_own_and_one_authority(tmp_path: Path) -> None:
    for cluster in (TidelogClusterWithTls(tmp_path / "tidelog"), KafkaClusterWithTls(tmp_path / "kafka")):
        address = TlsAddress(cluster)
        assert len({*cluster.ports, *(int(each.rpartition(":")[2]) for each in address.bootstrap.split(","))}) == 6
        assert address.authority.is_file()


@pytest.mark.processes
def test_the_client_writes_and_reads_with_tls(tmp_path: Path) -> None:
    sizes = replace(QUICK, bytes_per_run=1_000_000)
    with TidelogWithTls(tmp_path) as peer:
        session = Session(peer, sizes, PageCache())
        figures = produce_and_consume(session)
        assert set(figures) < {measure.id for measure in tls_measures(sizes)}
        transfer, _ = run_client(session, "produce", session.new_topic(), 4, 100)
        assert transfer.records == 100


def test_costs_of_connections_are_measured_for_each_protocol() -> None:
    assert list(measure(connections=2, warm_up=1)) == ["PLAINTEXT", "SASL_PLAINTEXT", "SSL", "SASL_SSL"]
