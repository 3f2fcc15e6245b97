"""Real clients over TLS, with and without certificates of their own, against three brokers with TLS between them."""

import asyncio
import uuid
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from tests.certificates import Authority, Certificate
from tests.clients.secured_brokers import secured_brokers
from tidelog.client.admin.admin import Admin
from tidelog.client.consumer.consumer import BEGINNING
from tidelog.client.consumer.consumer import Consumer as OwnConsumer
from tidelog.client.network.bootstrap import Address
from tidelog.client.producer.producer import Producer as OwnProducer
from tidelog.client.producer.producer import ProducerSettings
from tidelog.client.routing.cluster import Cluster
from tidelog.config.broker import BrokerSettings
from tidelog.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tidelog.runtime.clock import SystemClock
from tidelog.runtime.randomness import SystemRandomness
from tidelog.runtime.socket_network import SocketNetwork
from tidelog.runtime.tls_context import ListenerTls
from tidelog.server.broker import Broker
from tidelog.types import TopicPartition

pytestmark = pytest.mark.clients

COUNT = 200
BROKER_RESOURCE, SET = 4, 0
MAX_FRAME_BYTES = 100 * 1024 * 1024


def brokers(
    directory: Path, certificate: Certificate, count: int, **settings: object
) -> AbstractAsyncContextManager[list[Broker]]:
    values = {"ssl_client_auth": "required", "offsets_topic_replication_factor": min(count, 3)}
    return secured_brokers(directory, certificate, "SSL", count, **values | settings)


def own_tls(certificate: Certificate) -> ListenerTls:
    return ListenerTls(BrokerSettings(**certificate.ssl_settings))  # type: ignore[arg-type]


def confluent(broker: Broker, authority: Path, certificate: Certificate | None = None) -> dict[str, Any]:
    values: dict[str, Any] = {
        "bootstrap.servers": f"127.0.0.1:{broker.listeners[0].port}",
        "security.protocol": "SSL",
        "ssl.ca.location": str(authority),
        "socket.timeout.ms": 10_000,
    }
    if certificate is not None:
        values |= {"ssl.certificate.location": str(certificate.location), "ssl.key.location": str(certificate.location)}
    return values


def produce_and_consume(settings: dict[str, Any], topic: str) -> list[bytes]:
    producer = Producer({**settings, "acks": "all"})
    for number in range(COUNT):
        producer.produce(topic, b"%d" % number * 500)
    assert producer.flush(60) == 0
    consumer = Consumer({**settings, "group.id": str(uuid.uuid4()), "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    values: list[bytes] = []
    while len(values) < COUNT:
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None, message.error()
        values.append(message.value() or b"")
    consumer.close()
    return values


def test_three_brokers_with_tls_between_them(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, alice = authority.sign("broker"), authority.sign("alice", "/O=Users/CN=alice")

    async def main() -> None:
        async with brokers(tmp_path, certificate, 3) as started:
            addresses = [Address("127.0.0.1", each.listeners[0].port) for each in started]
            network = SocketNetwork(MAX_FRAME_BYTES, tls=own_tls(alice))
            async with Cluster(network, addresses, SystemRandomness()) as cluster:
                await Admin(cluster).create_topic("t", partitions=3, replication_factor=3)
                async with OwnProducer(cluster, SystemClock(), ProducerSettings(linger_s=0.0)) as producer:
                    for number in range(COUNT):
                        await producer.send("t", b"%d" % number * 5000, partition=0)
                async with OwnConsumer(cluster) as consumer:
                    await consumer.assign({TopicPartition("t", 0): BEGINNING})
                    values = [(await anext(consumer)).value for _ in range(COUNT)]
                assert values == [b"%d" % number * 5000 for number in range(COUNT)]
                assert {len(each.replicas.get("t", 0).log.segments) for each in started} == {1}
                await Admin(cluster).create_topic("u", partitions=1, replication_factor=3)
            sessions = [
                connection.session.principal for each in started for connection in each.acceptor.registry._connections
            ]
            assert {str(each) for each in sessions} >= {"User:CN=localhost,O=tidelog"}
            loop = asyncio.get_running_loop()
            settings = confluent(started[1], authority.certificate, alice)
            found = await loop.run_in_executor(None, produce_and_consume, settings, "u")
            assert found == [b"%d" % number * 500 for number in range(COUNT)]

    asyncio.run(main())


def test_clients_with_and_without_a_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, alice = authority.sign("broker"), authority.sign("alice", "/O=Users/CN=alice")
    settings = {
        "listeners": ("SSL://127.0.0.1:0", "MUTUAL://127.0.0.1:0", "BROKERS://127.0.0.1:0"),
        "listener_security_protocol_map": "SSL:SSL,MUTUAL:SSL,BROKERS:PLAINTEXT",
        "inter_broker_listener_name": "BROKERS",
        "ssl_client_auth": "none",
        "listener_overrides": {"listener.name.mutual.ssl.client.auth": "required"},
    }

    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with brokers(tmp_path, certificate, 1, **settings) as (broker,):
            anonymous = confluent(broker, authority.certificate)
            assert len(await loop.run_in_executor(None, produce_and_consume, anonymous, "t")) == COUNT
            mutual = {"bootstrap.servers": f"127.0.0.1:{broker.listeners[1].port}"}
            with pytest.raises(KafkaException):
                await loop.run_in_executor(None, lambda: AdminClient(anonymous | mutual).list_topics(timeout=5))
            named = confluent(broker, authority.certificate, alice) | mutual
            listed = await loop.run_in_executor(None, lambda: AdminClient(named).list_topics(timeout=30))
            assert "t" in listed.topics

    asyncio.run(main())


def test_certificates_are_exchanged_while_clients_write(tmp_path: Path) -> None:
    """By AlterConfigs on one listener, without an error for anybody."""
    authority = Authority(tmp_path)
    certificate, renewed = authority.sign("broker"), authority.sign("renewed", "/O=tidelog/CN=renewed")

    async def main() -> None:
        async with brokers(tmp_path, certificate, 1) as (broker,):
            address = Address("127.0.0.1", broker.listeners[0].port)
            network = SocketNetwork(MAX_FRAME_BYTES, tls=own_tls(certificate))
            async with Cluster(network, [address], SystemRandomness()) as cluster:
                await Admin(cluster).create_topic("t", partitions=1)
                async with OwnProducer(cluster, SystemClock(), ProducerSettings(linger_s=0.0)) as producer:
                    for number in range(COUNT):
                        await producer.send("t", b"%d" % number)
                        if number == COUNT // 2:
                            connection = await cluster.connections.to(address)
                            change = AlterableConfig(
                                "listener.name.ssl.ssl.keystore.location", SET, str(renewed.location)
                            )
                            request = IncrementalAlterConfigsRequest(
                                [AlterConfigsResource(BROKER_RESOURCE, "1", [change])]
                            )
                            response = await connection.ask(request, IncrementalAlterConfigsResponse)
                            assert response.responses[0].error_code == 0, response
            _, writer = await asyncio.open_connection(
                *address, ssl=own_tls(certificate).client_context, server_hostname="127.0.0.1"
            )
            shown = writer.get_extra_info("peercert")
            assert (("commonName", "renewed"),) in shown["subject"]
            writer.close()

    asyncio.run(main())
