"""Real clients that log in, over SASL_PLAINTEXT and SASL_SSL, against brokers that log in to each other."""

import asyncio
import subprocess
import sys
import uuid
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import aiokafka
import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import admin as confluent_admin
from confluent_kafka.admin import AdminClient

from tests.certificates import Authority, Certificate
from tests.clients.secured_brokers import secured_brokers
from tidelog.server.broker import Broker

pytestmark = pytest.mark.clients

_admin: Any = confluent_admin  # its types leave these out
ScramCredentialInfo, ScramMechanism = _admin.ScramCredentialInfo, _admin.ScramMechanism
UserScramCredentialDeletion = _admin.UserScramCredentialDeletion
UserScramCredentialUpsertion = _admin.UserScramCredentialUpsertion

MODULES = "org.apache.kafka.common.security"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
ADMIN = f'{MODULES}.plain.PlainLoginModule required username="admin" password="hunter2" user_admin="hunter2"'


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    directory = tmp_path_factory.mktemp("certificates")
    return Authority(directory).sign("broker")


def brokers(
    directory: Path, certificate: Certificate, protocol: str, count: int = 1, **settings: object
) -> AbstractAsyncContextManager[list[Broker]]:
    values = {
        "sasl_enabled_mechanisms": MECHANISMS,
        "sasl_mechanism_inter_broker_protocol": "PLAIN",
        "listener_overrides": {f"listener.name.{protocol.lower()}.plain.sasl.jaas.config": f"{ADMIN};"},
        "offsets_topic_replication_factor": count,
        "group_initial_rebalance_delay_ms": 0,
    }
    return secured_brokers(directory, certificate, protocol, count, **values | settings)


def librdkafka(bootstrap: str, protocol: str, mechanism: str, user: str, password: str, ca: Path) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": protocol,
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
        "ssl.ca.location": str(ca),
        "log_level": 0,
    }


def add_user(settings: dict[str, Any], user: str, mechanism: Any, password: str) -> None:
    admin: Any = AdminClient(settings)
    change = UserScramCredentialUpsertion(user, ScramCredentialInfo(mechanism, 8192), password.encode())
    for future in admin.alter_user_scram_credentials([change]).values():
        future.result(30)
    described = admin.describe_user_scram_credentials([user])[user].result(30)
    assert [(each.mechanism, each.iterations) for each in described.scram_credential_infos] == [(mechanism, 8192)]


def round_trip(settings: dict[str, Any]) -> None:
    topic = f"t-{uuid.uuid4()}"
    producer = Producer(settings)
    for index in range(50):
        producer.produce(topic, str(index))
    assert producer.flush(30) == 0
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    values: set[Any] = set()
    while len(values) < 50:
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None, message.error()
        values.add(message.value())
    consumer.close()


def in_thread(work: Callable[[], None]) -> Awaitable[None]:
    return asyncio.to_thread(work)


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_librdkafka_with_every_mechanism(tmp_path: Path, certificate: Certificate, protocol: str) -> None:
    async def main() -> None:
        async with brokers(tmp_path, certificate, protocol) as (broker,):
            bootstrap, ca = broker.advertised_address, certificate.authority
            admin = librdkafka(bootstrap, protocol, "PLAIN", "admin", "hunter2", ca)
            await in_thread(lambda: round_trip(admin))
            for mechanism, number in (
                ("SCRAM-SHA-256", ScramMechanism.SCRAM_SHA_256),
                ("SCRAM-SHA-512", ScramMechanism.SCRAM_SHA_512),
            ):
                user = f"alice-{mechanism}"
                await in_thread(lambda user=user, number=number: add_user(admin, user, number, "pa=ss,word"))  # type: ignore[misc]
                known = librdkafka(bootstrap, protocol, mechanism, user, "pa=ss,word", ca)
                await in_thread(lambda known=known: round_trip(known))  # type: ignore[misc]
                wrong = AdminClient({**known, "sasl.password": "wrong"})
                with pytest.raises(KafkaException):
                    await asyncio.to_thread(wrong.list_topics, timeout=2)
            deletion = UserScramCredentialDeletion("alice-SCRAM-SHA-256", ScramMechanism.SCRAM_SHA_256)
            administrator: Any = AdminClient(admin)
            (deleted,) = administrator.alter_user_scram_credentials([deletion]).values()
            await asyncio.to_thread(deleted.result, 30)

    asyncio.run(main())


@pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_kafka_python_and_aiokafka(tmp_path: Path, certificate: Certificate) -> None:
    async def main() -> None:
        async with brokers(tmp_path, certificate, "SASL_PLAINTEXT") as (broker,):
            bootstrap = broker.advertised_address
            admin = librdkafka(bootstrap, "SASL_PLAINTEXT", "PLAIN", "admin", "hunter2", certificate.authority)
            await in_thread(lambda: add_user(admin, "alice", ScramMechanism.SCRAM_SHA_512, "sesame"))
            settings: dict[str, Any] = {
                "bootstrap_servers": bootstrap,
                "security_protocol": "SASL_PLAINTEXT",
                "sasl_mechanism": "SCRAM-SHA-512",
                "sasl_plain_username": "alice",
                "sasl_plain_password": "sesame",
            }

            def with_kafka_python() -> None:
                import kafka  # it warns of itself when it is imported

                producer = kafka.KafkaProducer(**settings)
                assert producer.send("python", b"one").get(30).offset == 0
                producer.close()

            await in_thread(with_kafka_python)
            own = aiokafka.AIOKafkaProducer(**settings)
            await own.start()
            assert (await own.send_and_wait("python", b"two")).offset == 1
            await own.stop()
            plain = {**settings, "sasl_mechanism": "PLAIN", "sasl_plain_username": "admin"}
            failing = aiokafka.AIOKafkaProducer(**plain)
            with pytest.raises(aiokafka.errors.KafkaError):
                await failing.start()
            await failing.stop()

    asyncio.run(main())


def test_three_brokers_log_in_to_each_other_by_scram_over_tls(tmp_path: Path, certificate: Certificate) -> None:
    def admin_of(broker: Broker) -> dict[str, Any]:
        address, ca = broker.advertised_address, certificate.authority
        return librdkafka(address, "SASL_SSL", "PLAIN", "admin", "hunter2", ca)

    async def main() -> None:
        scram = f'{MODULES}.scram.ScramLoginModule required username="broker" password="hunter2";'
        async with brokers(tmp_path, certificate, "SASL_SSL") as (first,):
            admin = librdkafka(first.advertised_address, "SASL_SSL", "PLAIN", "admin", "hunter2", certificate.authority)
            await in_thread(lambda: add_user(admin, "broker", ScramMechanism.SCRAM_SHA_256, "hunter2"))
        jaas = {
            "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config": scram,
            "listener.name.sasl_ssl.plain.sasl.jaas.config": f"{ADMIN};",
        }
        more = {"sasl_mechanism_inter_broker_protocol": "SCRAM-SHA-256", "listener_overrides": jaas}
        async with brokers(
            tmp_path,
            certificate,
            "SASL_SSL",
            3,
            **more,
            default_replication_factor=3,
            min_insync_replicas=3,
            connections_max_reauth_ms=1500,
        ) as started:
            bootstrap = ",".join(each.advertised_address for each in started)
            await in_thread(lambda: add_user(admin_of(started[0]), "dora", ScramMechanism.SCRAM_SHA_256, "sesame"))
            deadline = asyncio.get_running_loop().time() + 1  # on all brokers within a second
            while not all(each.acceptor.credentials.get("SCRAM-SHA-256", "dora") for each in started):
                assert asyncio.get_running_loop().time() < deadline
                await asyncio.sleep(0.01)
            user = librdkafka(bootstrap, "SASL_SSL", "SCRAM-SHA-256", "broker", "hunter2", certificate.authority)
            for _ in range(3):  # sessions expire meanwhile, of clients and between brokers
                await in_thread(lambda: round_trip({**user, "acks": "all"}))

    asyncio.run(main())


@pytest.mark.parametrize(("password", "code"), [("hunter2", 0), ("wrong", 1)])
def test_our_commands_take_client_properties(
    tmp_path: Path, certificate: Certificate, password: str, code: int
) -> None:
    async def main() -> None:
        async with brokers(tmp_path, certificate, "SASL_SSL") as (broker,):
            properties = tmp_path / "client.properties"
            properties.write_text(
                "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nssl.truststore.type=PEM\n"
                f"ssl.truststore.location={certificate.authority}\n"
                f'sasl.jaas.config={MODULES}.plain.PlainLoginModule required username="admin" password="{password}";\n'
            )
            command = [sys.executable, "-m", "tidelog", "topic", "create", "orders"]
            command += ["--bootstrap", broker.advertised_address, "--command-config", str(properties)]
            ended = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60)
            assert ended.returncode == code, ended.stderr
            if code:
                assert "Authentication failed: Invalid username or password; see --command-config" in ended.stderr
            assert password not in ended.stdout + ended.stderr

    asyncio.run(main())
