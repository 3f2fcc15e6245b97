"""Latencies of producers beside a throttled move: before, while and after it, several runs of each.

`python -m bench.move_latency --first` lets brokers and client go before all other work of the machine (as root, on
Linux): on a busy machine latencies would otherwise show how long the processes wait for a core. In memory (`--directory
/dev/shm`) they do not wait for a disk either.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from bench import move_wire, rdkafka
from bench.clusters import THREE_BROKERS
from bench.figures import percentile
from bench.measures import Sizes
from bench.move_wire import ALL_BROKERS, BROKER, TOPIC
from bench.move_workloads import (
    LATENCY_PARTITIONS,
    LATENCY_RATE,
    QUOTA_WINDOW_S,
    SIDES,
    TARGETS,
    filled_topic,
    throttled_replicas,
)
from bench.page_cache import PageCache
from bench.rdkafka import LatencyRun
from bench.scenarios import Session

MOVED = "throttled"
PERCENTS = (50, 90, 95, 99, 99.9)
RUNS = 3
SURPLUS = 1.5
"""So much longer than the runs beside it the move takes."""
NO_LIMIT = 10**9
AUTOGROUP = Path("/proc/self/autogroup")


def go_first() -> None:
    """Before other sessions, and within this one."""
    with suppress(PermissionError):  # it leads a session already
        os.setsid()
    if AUTOGROUP.exists():
        AUTOGROUP.write_text("-15")
    os.nice(-10)


def latencies(session: Session, topic: str, seconds: int) -> list[float]:
    run = LatencyRun(
        "ack",
        LATENCY_RATE,
        linger_ms=0,
        partitions=LATENCY_PARTITIONS,
        seconds=seconds,
        warm_seconds=1,
        acks=session.peer.acks,
    )
    found = rdkafka.latencies_ms(session.peer.bootstrap, topic, run)
    return [percentile(found, percent) for percent in PERCENTS]


def throttle(ports: Sequence[int], rate: int) -> None:
    rates = {f"{side}.replication.throttled.rate": str(rate) for side in SIDES}
    move_wire.alter_settings(ports[0], BROKER, ALL_BROKERS, rates)


def compare(session: Session, seconds: int) -> None:
    rate, ports = session.sizes.move_rate, session.peer.ports
    filled_topic(session, MOVED, int(SURPLUS * RUNS * seconds * rate))
    beside = session.new_topic(LATENCY_PARTITIONS)
    latencies(session, beside, seconds)
    show("alone", [latencies(session, beside, seconds) for _ in range(RUNS)])
    throttle(ports, rate)
    move_wire.alter_settings(ports[0], TOPIC, MOVED, throttled_replicas())
    time.sleep(QUOTA_WINDOW_S)
    move_wire.alter_reassignments(ports, MOVED, TARGETS)
    show("beside", [latencies(session, beside, seconds) for _ in range(RUNS)])
    if not move_wire.topics_under_reassignment(ports):
        print("the move ended before the last run: these figures say less")
    throttle(ports, NO_LIMIT)
    move_wire.wait_until_moved(ports, MOVED, TARGETS)
    show("after", [latencies(session, beside, seconds)])


def show(when: str, runs: Sequence[Sequence[float]]) -> None:
    for run in runs:
        figures = "  ".join(f"p{percent:g} {value:7.2f}" for percent, value in zip(PERCENTS, run, strict=True))
        print(f"{when:7} {figures}  ms", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="Latencies of a producer alone and beside a throttled move.")
    parser.add_argument("--peer", choices=list(THREE_BROKERS), default="tidelog")
    parser.add_argument("--seconds", type=int, default=18, help="of each run")
    parser.add_argument("--directory", default=tempfile.gettempdir(), help="where brokers keep their logs")
    parser.add_argument("--first", action="store_true", help="before all other work of this machine")
    options = parser.parse_args()
    if options.first:
        go_first()
    rdkafka.ensure_built()
    print(f"load average {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory(prefix="bench-moves-", dir=options.directory) as directory:
        peer = THREE_BROKERS[options.peer](Path(directory))
        try:
            compare(Session(peer, Sizes(), PageCache(), start_seconds=peer.start()), options.seconds)
        finally:
            peer.kill()
    return 0


if __name__ == "__main__":
    sys.exit(main())
