"""The brokers that the benchmark compares, with TLS to clients and between brokers.

Topics are created, and the start is noticed, on a listener without TLS, by the same probes as everywhere.
"""

from collections.abc import Mapping
from pathlib import Path

from bench.clusters import BROKER_IDS, KAFKA_COORDINATORS, REPLICATED, KafkaCluster, TidelogCluster
from bench.peers import KafkaPeer, Peer, Peers, TidelogPeer
from tidelog.cli.local_cluster.certificates import AUTHORITY_FILE, broker_file, make_certificates
from tools.apache_kafka import free_port, new_cluster_id

PROTOCOLS = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,CLIENTS:SSL,BROKERS:SSL"


def tls_settings(directory: Path, broker_id: int, listeners: Mapping[str, int]) -> dict[str, str]:
    """Of both peers. Certificates are made on first use, as `tidelog up --secure` makes them."""
    make_certificates(directory, range(1, max(BROKER_IDS) + 1))
    return {
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in listeners.items()),
        "listener.security.protocol.map": PROTOCOLS,
        "inter.broker.listener.name": "BROKERS",
        "listener.name.brokers.ssl.client.auth": "required",
        "ssl.enabled.protocols": "TLSv1.3",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(directory / broker_file(broker_id)),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(directory / AUTHORITY_FILE),
    }


class TidelogWithTls(TidelogPeer):
    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str] | None = None,
        broker_id: int = 1,
        certificates: Path | None = None,
    ) -> None:
        super().__init__(directory, settings)
        self.certificates = certificates or directory / "certificates"
        self.tls_port = free_port()
        listeners = {"PLAINTEXT": self._port, "CLIENTS": self.tls_port, "BROKERS": free_port()}
        self._settings |= tls_settings(self.certificates, broker_id, listeners)


class KafkaWithTls(KafkaPeer):
    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str] | None = None,
        *,
        broker_id: int = 1,
        controller_port: int = 0,
        cluster_id: str = "",
        certificates: Path | None = None,
    ) -> None:
        controller_port = controller_port or free_port()
        super().__init__(
            directory, settings, broker_id=broker_id, controller_port=controller_port, cluster_id=cluster_id
        )
        self.certificates = certificates or directory / "certificates"
        self.tls_port = free_port()
        listeners = {"PLAINTEXT": self._kafka.port, "CLIENTS": self.tls_port, "BROKERS": free_port()}
        changed = tls_settings(self.certificates, broker_id, listeners | {"CONTROLLER": controller_port})
        self._kafka._settings |= changed | {
            "advertised.listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in listeners.items())
        }


class TidelogClusterWithTls(TidelogCluster):
    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.members = {
            broker_id: TidelogWithTls(
                directory / f"broker-{broker_id}",
                REPLICATED | {"broker.id": str(broker_id)} | self.store_settings(),
                broker_id,
                directory / "certificates",
            )
            for broker_id in BROKER_IDS
        }


class KafkaClusterWithTls(KafkaCluster):
    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        controller_ports = {broker_id: free_port() for broker_id in BROKER_IDS}
        voters = ",".join(f"{broker_id}@127.0.0.1:{port}" for broker_id, port in controller_ports.items())
        cluster_id = new_cluster_id()
        self.members = {
            broker_id: KafkaWithTls(
                directory / f"broker-{broker_id}",
                {**REPLICATED, **KAFKA_COORDINATORS, "controller.quorum.voters": voters},
                broker_id=broker_id,
                controller_port=port,
                cluster_id=cluster_id,
                certificates=directory / "certificates",
            )
            for broker_id, port in controller_ports.items()
        }


class TlsAddress:
    """Where clients with TLS find a peer, and whom they trust."""

    def __init__(self, peer: Peer) -> None:
        members = list(getattr(peer, "members", {1: peer}).values())
        self.bootstrap = ",".join(f"127.0.0.1:{member.tls_port}" for member in members)
        self.authority = members[0].certificates / AUTHORITY_FILE


ONE_BROKER_WITH_TLS: Peers = {TidelogPeer.name: TidelogWithTls, KafkaPeer.name: KafkaWithTls}
THREE_BROKERS_WITH_TLS: Peers = {TidelogPeer.name: TidelogClusterWithTls, KafkaPeer.name: KafkaClusterWithTls}
