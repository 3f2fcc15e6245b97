"""Three brokers on this machine as one peer: every topic has three replicas, and writes wait for all in sync."""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar

from bench import probes, wire
from bench.peers import FIRST_TOPIC, START_LIMIT_S, KafkaPeer, Peer, Peers, TidelogPeer
from tools.apache_kafka import free_port, new_cluster_id
from tools.zookeeper import ZooKeeper

BROKER_IDS = (1, 2, 3)
REPLICATED = {"default.replication.factor": "3", "min.insync.replicas": "2"}
KAFKA_COORDINATORS = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
}
KAFKA_SHORT_SESSIONS = {"broker.session.timeout.ms": "1000", "broker.heartbeat.interval.ms": "200"}
ZOOKEEPER_SHORT_SESSIONS = {"zookeeper.session.timeout.ms": "1000"}


class Cluster(Peer):
    acks = wire.ACKS_ALL

    members: Mapping[int, Peer]
    """By broker id."""

    @property
    def pids(self) -> list[int]:
        return [pid for member in self.members.values() for pid in member.pids]

    @property
    def ports(self) -> list[int]:
        return [port for member in self.members.values() for port in member.ports]

    def prepare(self) -> None:
        self._all_at_once(lambda member: member.prepare())

    def launch(self) -> None:
        for member in self.members.values():
            member.launch()

    def start(self) -> float:
        """Seconds to the first acknowledged produce, which needs two of them; returns when all are in sync."""
        seconds = super().start()
        probes.wait_until_in_sync(self.ports, FIRST_TOPIC, time.monotonic() + START_LIMIT_S)
        return seconds

    def stop(self) -> None:
        self._all_at_once(lambda member: member.stop())

    def kill(self) -> None:
        for member in self.members.values():
            member.kill()

    def last_words(self) -> str:
        return "\n".join(f"broker {broker_id}:\n{member.last_words()}" for broker_id, member in self.members.items())

    def _all_at_once(self, work: Callable[[Peer], None]) -> None:
        with ThreadPoolExecutor(len(self.members)) as threads:
            list(threads.map(work, self.members.values()))


class TidelogCluster(Cluster):
    """Metadata in the embedded store, one file for all."""

    name = TidelogPeer.name
    title = TidelogPeer.title

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.members = {
            broker_id: TidelogPeer(
                directory / f"broker-{broker_id}", REPLICATED | {"broker.id": str(broker_id)} | self.store_settings()
            )
            for broker_id in BROKER_IDS
        }

    def store_settings(self) -> dict[str, str]:
        return {"coordination.store": str(self.directory / "coordination.sqlite")}


class TidelogOnZooKeeper(TidelogCluster):
    """Sessions of one second; a ZooKeeper server of its own, which is not counted among its processes."""

    def __init__(self, directory: Path) -> None:
        self._zookeeper = ZooKeeper(free_port(), directory / "zookeeper")
        super().__init__(directory)

    def store_settings(self) -> dict[str, str]:
        return ZOOKEEPER_SHORT_SESSIONS | {"zookeeper.connect": self._zookeeper.connect_string}

    def prepare(self) -> None:
        super().prepare()
        self._zookeeper.start()

    def stop(self) -> None:
        super().stop()
        self._zookeeper.stop()

    def kill(self) -> None:
        super().kill()
        self._zookeeper.kill()


class KafkaCluster(Cluster):
    """KRaft, combined mode: each is broker and controller."""

    name = KafkaPeer.name
    title = KafkaPeer.title
    session_settings: ClassVar[Mapping[str, str]] = {}

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        controller_ports = {broker_id: free_port() for broker_id in BROKER_IDS}
        voters = ",".join(f"{broker_id}@127.0.0.1:{port}" for broker_id, port in controller_ports.items())
        settings = {**REPLICATED, **KAFKA_COORDINATORS, **self.session_settings, "controller.quorum.voters": voters}
        cluster_id = new_cluster_id()
        self.members = {
            broker_id: KafkaPeer(
                directory / f"broker-{broker_id}",
                settings,
                broker_id=broker_id,
                controller_port=port,
                cluster_id=cluster_id,
            )
            for broker_id, port in controller_ports.items()
        }


class KafkaWithShortSessions(KafkaCluster):
    session_settings = KAFKA_SHORT_SESSIONS


THREE_BROKERS: Peers = {TidelogCluster.name: TidelogCluster, KafkaCluster.name: KafkaCluster}
SHORT_SESSIONS: Peers = {TidelogCluster.name: TidelogOnZooKeeper, KafkaCluster.name: KafkaWithShortSessions}
