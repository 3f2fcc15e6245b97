"""The workloads with TLS: each drives one running peer and returns figures by measure."""

import json
import subprocess
import sys

from bench import rdkafka
from bench.cluster_workloads import MANY_PARTITIONS, produce_figures
from bench.measures import Sizes
from bench.processes import CpuMeter
from bench.rdkafka import Transfer
from bench.scenarios import PARTITIONS, Figures, Scenario, Session, Step
from bench.tls_peers import ONE_BROKER_WITH_TLS, THREE_BROKERS_WITH_TLS, TlsAddress
from bench.workloads import KILOBYTE, records_of


def run_client(session: Session, work: str, topic: str, partitions: int, records: int) -> tuple[Transfer, CpuMeter]:
    address = TlsAddress(session.peer)
    command = [sys.executable, "-m", "bench.tls_client", work, "--topic", topic, "--bootstrap", address.bootstrap]
    command += ["--authority", str(address.authority), "--records", str(records), "--partitions", str(partitions)]
    command += ["--value-bytes", str(KILOBYTE), "--acks", str(session.peer.acks)]
    session.write_back()
    with CpuMeter(session.peer.pids) as cpu:
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=rdkafka.REPOSITORY)
    if done.returncode != 0:
        raise rdkafka.ClientFailed(done.stderr.strip().rpartition("\n")[2])
    return Transfer(**json.loads(done.stdout)), cpu


def warm_up(session: Session) -> Figures:
    topic, records = session.new_topic(), records_of(session.sizes.warm_bytes // 2, KILOBYTE)
    run_client(session, "produce", topic, PARTITIONS, records)
    run_client(session, "consume", topic, PARTITIONS, records)
    return {}


def warm_up_cluster(session: Session) -> Figures:
    records = records_of(session.sizes.cluster_bytes_per_run // 2, KILOBYTE)
    run_client(session, "produce", session.new_topic(MANY_PARTITIONS), MANY_PARTITIONS, records)
    return {}


def produce_and_consume(session: Session) -> Figures:
    topic, records = session.new_topic(), records_of(session.sizes.bytes_per_run, KILOBYTE)
    figures: dict[str, float] = {}
    for work in ("produce", "consume"):
        figures |= produce_figures(f"tls-{work}", *run_client(session, work, topic, PARTITIONS, records))
    return figures


def replicate(session: Session) -> Figures:
    topic, records = session.new_topic(MANY_PARTITIONS), records_of(session.sizes.cluster_bytes_per_run, KILOBYTE)
    return produce_figures("tls-cluster", *run_client(session, "produce", topic, MANY_PARTITIONS, records))


def tls_scenarios(_: Sizes) -> list[Scenario]:
    one = (Step("warm up", warm_up), Step("produce and consume 1 KB", produce_and_consume))
    three = (Step("warm up", warm_up_cluster), Step("produce 1 KB, factor 3", replicate))
    return [
        Scenario("tls-one-broker", one, ONE_BROKER_WITH_TLS),
        Scenario("tls-cluster", three, THREE_BROKERS_WITH_TLS),
    ]
