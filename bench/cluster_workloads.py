"""The workloads for three brokers: each drives one running cluster and returns figures by measure."""

import time
from collections.abc import Callable

from bench import rdkafka
from bench.cluster_measures import CLUSTER_PARTITIONS, PERCENTS
from bench.clusters import SHORT_SESSIONS, THREE_BROKERS, Cluster
from bench.failover import run_trial
from bench.figures import percentile
from bench.measures import Sizes
from bench.processes import CpuMeter, resident_megabytes
from bench.rdkafka import LatencyRun, Transfer
from bench.scenarios import Figures, Scenario, Session, Step
from bench.workloads import KILOBYTE, LINGER, ONE_RECORD_PER_REQUEST, SETTLE_S, per_million, records_of

MANY_PARTITIONS = max(CLUSTER_PARTITIONS)


def started(session: Session) -> Figures:
    return {"cluster-start": session.start_seconds}


def idle(session: Session) -> Figures:
    memory, cpu_percent = idle_figures(session)
    return {"cluster-memory-idle": memory, "cluster-cpu-idle": cpu_percent}


def idle_figures(session: Session) -> tuple[float, float]:
    """Megabytes and percent of a core."""
    time.sleep(SETTLE_S)
    memory = resident_megabytes(session.peer.pids)
    with CpuMeter(session.peer.pids) as cpu:
        time.sleep(session.sizes.idle_seconds)
    return memory, 100 * cpu.seconds / cpu.elapsed_seconds


def warm_up(session: Session) -> Figures:
    records = records_of(session.sizes.cluster_bytes_per_run // 2, KILOBYTE)
    session.produce(records, KILOBYTE, LINGER, session.new_topic(MANY_PARTITIONS))
    session.produce(session.sizes.cluster_warm_requests, KILOBYTE, ONE_RECORD_PER_REQUEST, session.new_topic(1))
    return {}


def produce_1k(session: Session) -> Figures:
    records = records_of(session.sizes.cluster_bytes_per_run, KILOBYTE)
    figures: dict[str, float] = {}
    for count in CLUSTER_PARTITIONS:
        transfer, cpu = session.produce(records, KILOBYTE, LINGER, session.new_topic(count))
        figures |= produce_figures(f"cluster-{count}", transfer, cpu)
    return figures


def produce_figures(identity: str, transfer: Transfer, cpu: CpuMeter) -> dict[str, float]:
    return {
        f"{identity}-rate": 1000 * transfer.gigabytes / transfer.seconds,
        f"{identity}-cpu": cpu.seconds / transfer.gigabytes,
    }


def single_record_requests(session: Session) -> Figures:
    requests = session.sizes.cluster_pipelined_requests
    transfer, cpu = session.produce(requests, KILOBYTE, ONE_RECORD_PER_REQUEST, session.new_topic(1))
    return {
        "cluster-pipelined-rate": transfer.records_per_second,
        "cluster-pipelined-cpu": per_million(cpu, transfer),
    }


def latency(prefix: str, rate_per_second: int, linger_ms: int, partitions: int) -> Callable[[Session], Figures]:
    def work(session: Session) -> Figures:
        seconds, warm_seconds = session.sizes.cluster_latency_seconds, session.sizes.latency_warm_seconds
        acks = session.peer.acks
        run = LatencyRun("ack", rate_per_second, linger_ms, partitions, seconds, warm_seconds, acks=acks)
        topic = session.new_topic(partitions)
        session.write_back()
        values = rdkafka.latencies_ms(session.peer.bootstrap, topic, run)
        return {f"{prefix}-p{percent:g}": percentile(values, percent) for percent in PERCENTS}

    return work


def loaded_memory(session: Session) -> Figures:
    return {"cluster-memory-loaded": resident_megabytes(session.peer.pids)}


def growth(count: int) -> Callable[[Session], Figures]:
    def work(session: Session) -> Figures:
        identity = f"cluster-growth-{count}"
        topic = session.new_topic(count)
        idle_memory, idle_cpu = idle_figures(session)
        records = records_of(session.sizes.cluster_bytes_per_run // 4, KILOBYTE)
        # With many partitions the first pass over them costs far more than later ones: leave it out.
        session.produce(max(records // 8, 20 * count), KILOBYTE, LINGER, topic)
        transfer, cpu = session.produce(records, KILOBYTE, LINGER, topic)
        return {
            f"{identity}-idle-cpu": idle_cpu,
            f"{identity}-idle-memory": idle_memory,
            **produce_figures(identity, transfer, cpu),
            f"{identity}-memory": resident_megabytes(session.peer.pids),
        }

    return work


def failover(identity: str) -> Callable[[Session], Figures]:
    def work(session: Session) -> Figures:
        assert isinstance(session.peer, Cluster)
        topic = session.new_topic(1)
        trials = [run_trial(session.peer, topic) for _ in range(session.sizes.failovers)]
        seconds = [trial.seconds for trial in trials]
        return {
            f"{identity}-p50": seconds,
            f"{identity}-p99": seconds,
            f"{identity}-elected-p50": [trial.after_election_seconds for trial in trials],
            f"{identity}-client-p50": [trial.client_seconds for trial in trials],
        }

    return work


def cluster_scenarios(sizes: Sizes) -> list[Scenario]:
    warm = Step("warm up", warm_up)
    steps = (
        Step("start", started),
        Step("idle", idle),
        warm,
        Step("produce 1 KB", produce_1k),
        Step("one record per request", single_record_requests),
        Step("latency at 2,000/s", latency("cluster-2k", 2_000, 0, 1)),
        Step("latency at 10,000/s", latency("cluster-10k", 10_000, 5, MANY_PARTITIONS)),
        Step("memory", loaded_memory),
    )
    counts = (Step(f"partitions: {count:,}", growth(count)) for count in sizes.cluster_partition_counts)
    failovers = Step(f"kill the leader, {sizes.failovers} times", failover("failover"))
    short_failovers = Step(f"kill the leader, {sizes.failovers} times", failover("failover-short"))
    return [
        Scenario("cluster", steps, THREE_BROKERS),
        Scenario("cluster-growth", (warm, *counts), THREE_BROKERS),
        Scenario("failover", (failovers,), THREE_BROKERS),
        Scenario("failover-short-sessions", (short_failovers,), SHORT_SESSIONS),
    ]
