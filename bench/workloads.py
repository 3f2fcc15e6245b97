"""The workloads for one broker: each drives a running one and returns figures by measure."""

import time
from collections.abc import Callable
from statistics import median

from bench import rdkafka
from bench.figures import percentile
from bench.measures import Sizes
from bench.peers import ONE_BROKER
from bench.processes import CpuMeter, resident_megabytes
from bench.rdkafka import LatencyRun, Transfer
from bench.scenarios import PARTITIONS, Figures, Scenario, Session, Step

KILOBYTE = 1024
RECORDS_PER_BATCH = 64
SETTLE_S = 2.0
"""A broker that has just started still has something to do; idle begins afterwards."""

LINGER = {"linger.ms": "5"}
ONE_RECORD_PER_REQUEST = {"linger.ms": "0", "batch.num.messages": "1"}
ONE_IN_FLIGHT = ONE_RECORD_PER_REQUEST | {"max.in.flight.requests.per.connection": "1"}


def records_of(total_bytes: int, value_bytes: int) -> int:
    return max(1, total_bytes // value_bytes)


def started(session: Session) -> Figures:
    return {"start": session.start_seconds}


def idle(session: Session) -> Figures:
    time.sleep(SETTLE_S)
    memory = resident_megabytes(session.peer.pids)
    with CpuMeter(session.peer.pids) as cpu:
        time.sleep(session.sizes.idle_seconds)
    return {"memory-idle": memory, "cpu-idle": 100 * cpu.seconds / cpu.elapsed_seconds}


def warm_up(session: Session) -> Figures:
    """Lets a just-in-time compiler do its work before anything counts; the same for every peer."""
    sizes = session.sizes
    topic = session.new_topic()
    records = records_of(sizes.warm_bytes, KILOBYTE)
    session.produce(records, KILOBYTE, LINGER, topic)
    session.produce(sizes.warm_requests, KILOBYTE, ONE_RECORD_PER_REQUEST)
    session.consume(topic, PARTITIONS, records)
    return {}


def produce_and_consume_1k(session: Session) -> Figures:
    topic = session.new_topic()
    records = records_of(session.sizes.bytes_per_run, KILOBYTE)
    produced, produce_cpu = session.produce(records, KILOBYTE, LINGER, topic)
    consumed, consume_cpu = session.consume(topic, PARTITIONS, records)
    session.most_records_per_second = produced.records_per_second
    return {
        "produce-1k-rate": produced.records_per_second,
        "produce-1k-cpu": produce_cpu.seconds / produced.gigabytes,
        "consume-rate": consumed.records_per_second,
        "consume-cpu": consume_cpu.seconds / consumed.gigabytes,
    }


def produce_100b(session: Session) -> Figures:
    transfer, cpu = session.produce(records_of(session.sizes.bytes_per_run // 4, 100), 100, LINGER)
    return {
        "produce-100b-rate": transfer.records_per_second,
        "produce-100b-cpu": 1e6 * cpu.seconds / transfer.records,
    }


def single_record_requests(session: Session) -> Figures:
    pipelined, pipelined_cpu = session.produce(session.sizes.pipelined_requests, KILOBYTE, ONE_RECORD_PER_REQUEST)
    alone, alone_cpu = session.produce(session.sizes.one_in_flight_requests, KILOBYTE, ONE_IN_FLIGHT)
    return {
        "pipelined-rate": pipelined.records_per_second,
        "pipelined-cpu": per_million(pipelined_cpu, pipelined),
        "one-in-flight-rate": alone.records_per_second,
        "one-in-flight-cpu": per_million(alone_cpu, alone),
    }


def per_million(cpu: CpuMeter, transfer: Transfer) -> float:
    return 1e6 * cpu.seconds / transfer.records


def end_to_end_latency(session: Session) -> Figures:
    run = LatencyRun("end", 2_000, 0, PARTITIONS, session.sizes.end_to_end_seconds, session.sizes.latency_warm_seconds)
    return _latency(session, "end", run)


def acknowledgement_latency(session: Session) -> Figures:
    run = LatencyRun("ack", 200_000, 5, PARTITIONS, session.sizes.ack_seconds, warm_seconds=1)
    return _latency(session, "ack", run)


def half_load_latency(session: Session) -> Figures:
    """At half of what this broker took at most, just before."""
    rate = int(session.most_records_per_second / 2)
    run = LatencyRun("end", rate, 5, PARTITIONS, session.sizes.ack_seconds, warm_seconds=1)
    return {"half-rate": rate, **_latency(session, "half", run)}


def _latency(session: Session, prefix: str, run: LatencyRun) -> Figures:
    topic = session.new_topic()
    session.write_back()
    values = rdkafka.latencies_ms(session.peer.bootstrap, topic, run)
    return {f"{prefix}-p{percent:g}": percentile(values, percent) for percent in (50, 99, 99.9)}


def loaded_memory(session: Session) -> Figures:
    return {"memory-loaded": resident_megabytes(session.peer.pids)}


def growth_in_partitions(count: int) -> Callable[[Session], Figures]:
    def work(session: Session) -> Figures:
        topic = session.new_topic(count)
        requests = records_of(session.sizes.bytes_per_run, KILOBYTE * RECORDS_PER_BATCH)
        load = {"partitions": count, "window": 5, "records_per_request": RECORDS_PER_BATCH, "value_bytes": KILOBYTE}
        # With many partitions the first pass over them costs Kafka far more system time than later ones: leave it out.
        session.load(topic, 2 * count, **load)
        produced, produce_cpu = session.load(topic, requests, **load)
        consumed, consume_cpu = session.consume(topic, count, requests * RECORDS_PER_BATCH)
        records = records_of(session.sizes.bytes_per_run // 4, KILOBYTE)
        spread, spread_cpu = session.produce(records, KILOBYTE, LINGER, session.new_topic(count))
        return {
            f"partitions-{count}-produce-cpu": produce_cpu.seconds / produced.gigabytes,
            f"partitions-{count}-consume-cpu": consume_cpu.seconds / consumed.gigabytes,
            f"partitions-{count}-spread-cpu": spread_cpu.seconds / spread.gigabytes,
            f"partitions-{count}-spread-rate": spread.records_per_second,
        }

    return work


def growth_in_connections(count: int) -> Callable[[Session], Figures]:
    def work(session: Session) -> Figures:
        topic = session.new_topic()
        common = {"partitions": PARTITIONS, "connections": count}
        in_turn, in_turn_cpu = session.load(topic, session.sizes.load_requests, window=1, **common)
        figures = {f"connections-{count}-in-turn-cpu": per_million(in_turn_cpu, in_turn)}
        if count > 1:
            busy, busy_cpu = session.load(topic, session.sizes.load_requests, window=count, **common)
            figures[f"connections-{count}-busy-cpu"] = per_million(busy_cpu, busy)
            figures[f"connections-{count}-busy-rate"] = busy.records_per_second
        return figures

    return work


def start_with_many_partitions(session: Session) -> Figures:
    one_seconds, one_memory = restart(session)
    # In portions, because a broker may refuse to make too many partitions with one request.
    left = session.sizes.many_partitions
    while left > 0:
        session.new_topic(min(left, 1_000))
        left -= 1_000
    many_seconds, many_memory = restart(session)
    return {
        "start-one-partition": one_seconds,
        "start-many-partitions": many_seconds,
        "memory-per-partition": 1000 * (many_memory - one_memory) / session.sizes.many_partitions,
    }


def start_with_much_stored(session: Session) -> Figures:
    empty_seconds, _memory = restart(session)
    session.produce(records_of(session.sizes.stored_bytes, KILOBYTE), KILOBYTE, LINGER)
    full_seconds, _memory = restart(session)
    return {"start-nothing-stored": empty_seconds, "start-stored": full_seconds}


def restart(session: Session) -> tuple[float, float]:
    """Stops it cleanly and starts it again, some times: the median time, and the memory after the last start."""
    times = []
    for _ in range(session.sizes.starts):
        session.peer.stop()
        session.write_back()
        times.append(session.peer.start())
    time.sleep(SETTLE_S)
    return median(times), resident_megabytes(session.peer.pids)


def one_broker_scenarios(sizes: Sizes) -> list[Scenario]:
    warm = Step("warm up", warm_up)
    partitions = (Step(f"partitions: {count:,}", growth_in_partitions(count)) for count in sizes.partition_counts)
    connections = (Step(f"connections: {count:,}", growth_in_connections(count)) for count in sizes.connection_counts)
    return [
        Scenario(
            "one-broker",
            (
                Step("start", started),
                Step("idle", idle),
                warm,
                Step("produce and consume 1 KB", produce_and_consume_1k),
                Step("produce 100 B", produce_100b),
                Step("one record per request", single_record_requests),
                Step("end-to-end latency", end_to_end_latency),
                Step("acknowledgement latency", acknowledgement_latency),
                Step("latency at half the maximum", half_load_latency),
                Step("memory", loaded_memory),
            ),
            ONE_BROKER,
        ),
        Scenario("growth", (warm, *connections, *partitions), ONE_BROKER),
        Scenario("start-partitions", (Step("start with many partitions", start_with_many_partitions),), ONE_BROKER),
        Scenario("start-stored", (Step("start with much stored", start_with_much_stored),), ONE_BROKER),
    ]
