"""Three brokers that log in to each other over TLS, killed one after another; hostile handshakes on a live listener."""

import random
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.certificates import Authority, Certificate
from tests.clients.broker import TidelogProcess
from tools.apache_kafka import free_port

pytestmark = pytest.mark.clients

PASSWORD = "a-secret-of-brokers"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
JAAS = f'{MODULE} required username="broker" password="{PASSWORD}" user_broker="{PASSWORD}" user_alice="sesame";'
FUZZED_HANDSHAKES = 1000


class SecureBrokers:
    def __init__(self, directory: Path, certificate: Certificate, count: int) -> None:
        ports = [free_port() for _ in range(count)]
        self.authority = certificate.authority
        self.brokers = [
            TidelogProcess(
                directory / f"broker-{number}",
                {
                    "broker.id": str(number),
                    "listeners": f"SASL_SSL://127.0.0.1:{port}",
                    "security.inter.broker.protocol": "SASL_SSL",
                    "sasl.enabled.mechanisms": "PLAIN",
                    "sasl.mechanism.inter.broker.protocol": "PLAIN",
                    "listener.name.sasl_ssl.plain.sasl.jaas.config": JAAS,
                    "ssl.keystore.type": "PEM",
                    "ssl.keystore.location": str(certificate.location),
                    "ssl.truststore.type": "PEM",
                    "ssl.truststore.location": str(certificate.authority),
                    "coordination.store": str(directory / "coordination.sqlite"),
                    "default.replication.factor": str(count),
                    "offsets.topic.replication.factor": str(count),
                    "min.insync.replicas": str(min(count, 2)),
                },
                port,
            )
            for number, port in enumerate(ports, start=1)
        ]
        self.ports = ports

    def settings(self, **more: Any) -> dict[str, Any]:
        return {
            "bootstrap.servers": ",".join(broker.bootstrap for broker in self.brokers),
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": "sesame",
            "ssl.ca.location": str(self.authority),
            "log_level": 0,
            **more,
        }

    def start(self) -> None:
        for broker in self.brokers:
            broker.launch()
        for broker in self.brokers:
            broker.wait_until_it_listens()

    def kill(self) -> None:
        for broker in self.brokers:
            broker.kill()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return Authority(tmp_path_factory.mktemp("certificates")).sign("broker")


@pytest.fixture
def cluster(tmp_path: Path, certificate: Certificate, request: pytest.FixtureRequest) -> Iterator[SecureBrokers]:
    found = SecureBrokers(tmp_path, certificate, getattr(request, "param", 1))
    found.start()
    yield found
    found.kill()


@pytest.mark.parametrize("cluster", [3], indirect=True)
def test_no_acknowledged_record_is_lost_when_brokers_are_killed(cluster: SecureBrokers) -> None:
    admin: Any = AdminClient(cluster.settings())
    admin.create_topics([NewTopic("kept", 3, 3)])["kept"].result(30)
    acknowledged: list[bytes] = []
    producer = Producer(cluster.settings(**{"enable.idempotence": True, "message.timeout.ms": 120_000}))

    def note(error: object, message: Any) -> None:
        assert error is None, error
        acknowledged.append(message.value())

    def produce(count: int) -> None:
        for _ in range(count):
            producer.produce("kept", str(len(acknowledged) + len(producer)).encode(), on_delivery=note)
            producer.poll(0)
            time.sleep(0.001)

    produce(200)
    for broker in cluster.brokers:
        broker.kill()
        produce(200)
        broker.start()
        assert producer.flush(90) == 0
    consumer = Consumer(cluster.settings(**{"group.id": "g", "auto.offset.reset": "earliest"}))
    consumer.subscribe(["kept"])
    found: list[bytes] = []
    while len(found) < len(acknowledged):
        message = consumer.poll(30)
        assert message is not None, f"{len(found)} of {len(acknowledged)}"
        assert message.error() is None, message.error()
        found.append(message.value() or b"")
    consumer.close()
    assert sorted(found) == sorted(acknowledged)
    output = "".join(broker.output() for broker in cluster.brokers)
    assert PASSWORD not in output
    assert "sesame" not in output


def client_hello(authority: Path) -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context(cafile=str(authority))
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


def test_hostile_handshakes_disturb_nobody(cluster: SecureBrokers) -> None:
    """Mutated TLS handshakes, and mutated SASL frames inside of TLS."""
    chance, hello = random.Random(17), client_hello(cluster.authority)
    producer = Producer(cluster.settings())
    delivered: list[bytes] = []
    address = ("127.0.0.1", cluster.ports[0])
    for index in range(FUZZED_HANDSHAKES):
        data = bytearray(hello)
        for _ in range(chance.randint(1, 6)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        with suppress(OSError), socket.create_connection(address, 5) as connection:
            connection.sendall(data[: chance.randrange(1, len(data) + 1)])
        if index % 100 == 0:
            producer.produce(
                "t", str(index).encode(), on_delivery=lambda _, message: delivered.append(message.value() or b"")
            )
            producer.poll(0)
    context = ssl.create_default_context(cafile=str(cluster.authority))
    for _ in range(100):
        with (
            suppress(OSError),
            socket.create_connection(address, 5) as connection,
            context.wrap_socket(connection, server_hostname="localhost") as secured,
        ):
            frame = b"\0\x11\0\1\0\0\0\1\0\1x\0\5PLAIN" + chance.randbytes(chance.randrange(32))
            secured.sendall(len(frame).to_bytes(4, "big") + frame)
            secured.sendall(chance.randbytes(chance.randrange(64)))
    assert producer.flush(60) == 0
    assert len(delivered) == FUZZED_HANDSHAKES // 100
    assert "Traceback" not in cluster.brokers[0].output()
    cluster.brokers[0].stop()
