"""Failover as clients see it: `python -m bench.client_failover`; librdkafka, the Java client and franz-go.

Three brokers, factor 3, the clients' defaults. A trial begins when all replicas are in sync: a client writes, and the
leader of partition 0 is killed (kill -9) or stopped (SIGTERM, a controlled shutdown). Measured is the time from the
signal to the acknowledgement of a record of partition 0 that was sent after it. The signal comes at a random moment:
some clients look around once a second, and a trial must not be in step with them.
"""

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import probes
from bench.clusters import THREE_BROKERS, Cluster
from bench.peers import Peer
from bench.steady_writers import WRITERS, Ack, Load
from compat.foreign import ClientUnavailable

POLL_S = 0.005
TRIAL_LIMIT_S = 90.0
PARTITION = 0


@dataclass(frozen=True)
class Scenario:
    title: str
    partitions: int
    pause_ms: float
    is_kill: bool

    @property
    def topic(self) -> str:
        return f"steady-{self.partitions}"


SCENARIOS = (
    Scenario("kill -9, 1 partition, 100 records/s", 1, 10.0, is_kill=True),
    Scenario("kill -9, 1 partition, 1,000 records/s", 1, 1.0, is_kill=True),
    Scenario("kill -9, 12 partitions, 100 records/s", 12, 10.0, is_kill=True),
    Scenario("controlled shutdown, 1 partition, 100 records/s", 1, 10.0, is_kill=False),
    Scenario("controlled shutdown, 12 partitions, 100 records/s", 12, 10.0, is_kill=False),
)


def first_acknowledged(acks: Iterable[Ack], ended: float, partition: int) -> float | None:
    """When a record that was sent after the end of the leader was first acknowledged."""
    return min((ack.acknowledged for ack in acks if ack.partition == partition and ack.sent > ended), default=None)


def run_trial(cluster: Cluster, scenario: Scenario, client: str) -> float:
    """Seconds without an acknowledgement, as the client saw it."""
    probes.wait_until_in_sync(cluster.ports, scenario.topic, time.monotonic() + TRIAL_LIMIT_S)
    deadline = time.monotonic() + TRIAL_LIMIT_S
    load = Load(scenario.topic, scenario.partitions, scenario.pause_ms)
    with WRITERS[client](cluster.bootstrap, load) as writer:
        while not any(ack.partition == PARTITION for ack in writer.acks):
            probes.check(deadline, f"{client} wrote nothing")
            time.sleep(POLL_S)
        time.sleep(writer.settle_s + random.random())
        leader = cluster.members[probes.ask_topic(cluster.ports[0], scenario.topic).partitions[PARTITION].leader]
        ended = time.time()
        if scenario.is_kill:
            leader.kill()
        else:
            leader.stop()
        while (acknowledged := first_acknowledged(writer.acks, ended, PARTITION)) is None:
            probes.check(deadline, f"{client} had no write acknowledged after the end of a leader")
            time.sleep(POLL_S)
    leader.launch()
    probes.wait_until_in_sync(cluster.ports, scenario.topic, time.monotonic() + TRIAL_LIMIT_S)
    return acknowledged - ended


def run_scenario(cluster: Cluster, scenario: Scenario, clients: Sequence[str], rounds: int) -> None:
    """Rounds alternate between the clients."""
    seconds: dict[str, list[float]] = {client: [] for client in clients}
    for _ in range(rounds):
        for client in clients:
            seconds[client].append(run_trial(cluster, scenario, client))
    for client, found in seconds.items():
        print(row(scenario.title, client, found), flush=True)


def row(title: str, client: str, seconds: Sequence[float]) -> str:
    tenth = sorted(seconds)[-max(1, len(seconds) // 10)]
    return f"| {title} | {client} | {statistics.median(seconds):.2f} | {tenth:.2f} | {max(seconds):.2f} |"


def available(clients: Iterable[str]) -> list[str]:
    found = []
    for client in clients:
        command = getattr(WRITERS[client], "command", None)
        try:
            if command is not None:
                command()
        except ClientUnavailable as reason:
            print(f"left out {client}: {reason}")
        else:
            found.append(client)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--clients", nargs="+", choices=WRITERS, default=list(WRITERS))
    parser.add_argument("--peer", choices=THREE_BROKERS, default="tidelog")
    parser.add_argument("--only", help="scenarios whose title contains this")
    arguments = parser.parse_args()
    clients = available(arguments.clients)
    with tempfile.TemporaryDirectory(prefix="tidelog-failover-") as directory:
        peer: Peer = THREE_BROKERS[arguments.peer](Path(directory))
        assert isinstance(peer, Cluster)
        with peer:
            scenarios = [each for each in SCENARIOS if (arguments.only or "") in each.title]
            for partitions in sorted({each.partitions for each in scenarios}):
                probes.create_topic(peer.ports, f"steady-{partitions}", partitions)
            print("| scenario | client | median s | slowest tenth s | longest s |\n|---|---|---|---|---|", flush=True)
            for scenario in scenarios:
                run_scenario(peer, scenario, clients, arguments.rounds)


if __name__ == "__main__":
    main()
