"""The workloads that move replicas between brokers: unthrottled, and throttled beside a producer."""

import threading
import time
from collections.abc import Mapping

from bench import move_wire, rdkafka
from bench.cluster_workloads import idle_figures
from bench.clusters import THREE_BROKERS
from bench.figures import percentile
from bench.measures import Sizes
from bench.move_measures import LATENCY_PERCENTS
from bench.move_wire import ALL_BROKERS, BROKER, TOPIC, Places
from bench.processes import CpuMeter
from bench.rdkafka import LatencyRun
from bench.scenarios import Figures, Scenario, Session, Step
from bench.workloads import KILOBYTE, LINGER, records_of

PARTITIONS = 4
SOURCES: Places = {partition: (1, 2) if partition % 2 else (2, 1) for partition in range(PARTITIONS)}
TARGETS: Places = dict.fromkeys(range(PARTITIONS), (3,))
ONE_IN_SYNC = {"min.insync.replicas": "1"}
LATENCY_RATE = 500
LATENCY_PARTITIONS = 3
SIDES = ("leader", "follower")
QUOTA_WINDOW_S = 11.0
"""In which both measure a rate (`replication.quota.window.num` of one second): what came before it does not count."""


def idle(session: Session) -> Figures:
    memory, cpu_percent = idle_figures(session)
    return {"move-idle-memory": memory, "move-idle-cpu": cpu_percent}


def filled_topic(session: Session, topic: str, total_bytes: int) -> float:
    """Gigabytes of record values in a topic on brokers 1 and 2."""
    move_wire.create_placed_topic(session.peer.ports, topic, SOURCES, ONE_IN_SYNC)
    transfer, _ = session.produce(records_of(total_bytes, KILOBYTE), KILOBYTE, LINGER, topic)
    session.write_back()
    return transfer.gigabytes


def warm_up(session: Session) -> Figures:
    move_all(session, "warm", session.sizes.move_bytes // 4)
    return {}


def move_all(session: Session, topic: str, total_bytes: int) -> tuple[float, CpuMeter]:
    gigabytes = filled_topic(session, topic, total_bytes)
    with CpuMeter(session.peer.pids) as cpu:
        move_wire.alter_reassignments(session.peer.ports, topic, TARGETS)
        move_wire.wait_until_moved(session.peer.ports, topic, TARGETS)
    return gigabytes, cpu


def unthrottled(session: Session) -> Figures:
    gigabytes, cpu = move_all(session, "moved", session.sizes.move_bytes)
    return {"move-rate": 1000 * gigabytes / cpu.elapsed_seconds, "move-cpu": cpu.seconds / gigabytes}


def throttled(session: Session) -> Figures:
    """The latency of a producer to another topic is taken first alone, then beside the move."""
    sizes, ports = session.sizes, session.peer.ports
    gigabytes = filled_topic(session, "throttled", sizes.move_bytes)
    beside = session.new_topic(LATENCY_PARTITIONS)
    alone = latencies(session, beside, "move-alone")
    rates = {f"{side}.replication.throttled.rate": str(sizes.move_rate) for side in SIDES}
    move_wire.alter_settings(ports[0], BROKER, ALL_BROKERS, rates)
    move_wire.alter_settings(ports[0], TOPIC, "throttled", throttled_replicas())
    time.sleep(QUOTA_WINDOW_S)
    found: dict[str, float] = {}
    started = time.monotonic()
    move_wire.alter_reassignments(ports, "throttled", TARGETS)
    producer = threading.Thread(target=lambda: found.update(latencies(session, beside, "move-beside")))
    producer.start()
    move_wire.wait_until_moved(ports, "throttled", TARGETS)
    seconds = time.monotonic() - started
    producer.join()
    if not found:
        raise rdkafka.ClientFailed("the producer beside the move failed")
    return {"move-throttled-time": seconds / (1e9 * gigabytes / sizes.move_rate), **alone, **found}


def throttled_replicas() -> dict[str, str]:
    """As `kafka-reassign-partitions --throttle` lists them: leaders are all of before, followers those that are new."""
    leaders = ",".join(f"{partition}:{broker}" for partition, places in SOURCES.items() for broker in sorted(places))
    followers = ",".join(f"{partition}:{broker}" for partition, places in TARGETS.items() for broker in places)
    return {
        "leader.replication.throttled.replicas": leaders,
        "follower.replication.throttled.replicas": followers,
    }


def latencies(session: Session, topic: str, prefix: str) -> Mapping[str, float]:
    sizes = session.sizes
    run = LatencyRun(
        "ack",
        LATENCY_RATE,
        linger_ms=0,
        partitions=LATENCY_PARTITIONS,
        seconds=sizes.move_latency_seconds,
        warm_seconds=sizes.latency_warm_seconds,
        acks=session.peer.acks,
    )
    values = rdkafka.latencies_ms(session.peer.bootstrap, topic, run)
    return {f"{prefix}-p{percent:g}": percentile(values, percent) for percent in LATENCY_PERCENTS}


def move_scenarios(sizes: Sizes) -> list[Scenario]:
    steps = (
        Step("idle before moves", idle),
        Step("warm up by a move", warm_up),
        Step("move, unthrottled", unthrottled),
        Step(f"move at {sizes.move_rate / 1e6:g} MB/s beside a producer", throttled),
    )
    return [Scenario("moves", steps, THREE_BROKERS)]
