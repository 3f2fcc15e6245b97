"""Clients of five kinds over TLS: with a login (SCRAM-SHA-512), and with certificates on both sides."""

import asyncio
import json
import ssl
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from confluent_kafka import Consumer, Producer
from confluent_kafka import admin as confluent_admin

from compat.foreign import FOREIGN_CLIENTS, ClientUnavailable
from compat.remote import RemoteDriver
from tests.certificates import Authority, Certificate
from tests.clients.broker import TidelogProcess, running
from tests.clients.driver import ProducerOptions, Record
from tools.apache_kafka import free_port

MODULES = "org.apache.kafka.common.security"
ADMIN = f'{MODULES}.plain.PlainLoginModule required username="admin" password="hunter2" user_admin="hunter2";'
USER, PASSWORD = "alice", "pa=ss,word"
FILE_VARIABLE = "TIDELOG_COMPAT_SECURITY"
RECORDS = [f"record {number}".encode() for number in range(20)]
TIMEOUT_S = 60.0
FOREIGN = ("Java 3.9", "Java 4.3", "franz-go", "kafkajs")

_admin: Any = confluent_admin  # its types leave some of this out


class Way(NamedTuple):
    """How a client connects: with a login, or with a certificate of its own."""

    name: str
    bootstrap: str
    certificate: Certificate
    has_login: bool

    def file(self, directory: Path, password: str = PASSWORD) -> Path:
        """What programs of other languages read."""
        content = {"authority": str(self.certificate.authority)}
        if self.has_login:
            content |= {"user": USER, "password": password}
        else:
            content["certificate"] = str(self.certificate.location)
        file = directory / f"{self.name}-{len(password)}.json"
        file.write_text(json.dumps(content))
        return file


def check(names: Sequence[str] = ()) -> list[str]:
    """What went wrong; with the clients of these names, or with all."""
    faults = []
    with tempfile.TemporaryDirectory(prefix="compat-secured-") as scratch:
        directory = Path(scratch)
        authority = Authority(directory)
        server, client = authority.sign("broker"), authority.sign("client", "/O=tidelog/CN=alice")
        ports = free_port(), free_port()
        with running(TidelogProcess(directory, _settings(server, *ports), ports[0])):
            login = Way("login", f"127.0.0.1:{ports[0]}", client, True)
            _add_user(login)
            for way in (login, Way("certificate", f"127.0.0.1:{ports[1]}", client, False)):
                for name, use in _uses(directory).items():
                    if not names or name in names:
                        faults += _tried(name, way, use)
    return faults


def _tried(name: str, way: Way, use: Callable[[Way, str], None]) -> list[str]:
    try:
        use(way, f"{way.name}-{name}".replace(" ", "-"))
    except ClientUnavailable:
        raise
    except Exception as fault:  # noqa: BLE001 - clients fail in many ways, and the others are to be tried
        return [f"{name} with a {way.name}: {type(fault).__name__}: {fault}"]
    return []


def _settings(server: Certificate, login_port: int, certificate_port: int) -> Mapping[str, str]:
    return {
        "listeners": f"LOGIN://127.0.0.1:{login_port},MUTUAL://127.0.0.1:{certificate_port}",
        "listener.security.protocol.map": "LOGIN:SASL_SSL,MUTUAL:SSL",
        "inter.broker.listener.name": "MUTUAL",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "listener.name.login.plain.sasl.jaas.config": ADMIN,
        "listener.name.mutual.ssl.client.auth": "required",
        "ssl.keystore.location": str(server.location),
        "ssl.truststore.location": str(server.authority),
        "ssl.endpoint.identification.algorithm": "",
        "auto.create.topics.enable": "false",
    }


def _add_user(way: Way) -> None:
    settings = _librdkafka(way) | {"sasl.mechanism": "PLAIN", "sasl.username": "admin", "sasl.password": "hunter2"}
    info = _admin.ScramCredentialInfo(_admin.ScramMechanism.SCRAM_SHA_512, 8192)
    change = _admin.UserScramCredentialUpsertion(USER, info, PASSWORD.encode())
    admin = _admin.AdminClient(settings)
    for future in admin.alter_user_scram_credentials([change]).values():
        future.result(TIMEOUT_S)


def _uses(directory: Path) -> dict[str, Callable[[Way, str], None]]:
    foreign = {each.name: each for each in FOREIGN_CLIENTS}

    def program(name: str) -> Callable[[Way, str], None]:
        return lambda way, topic: _use_program(foreign[name].command(), way, topic, directory)

    return {"librdkafka": _use_librdkafka, "aiokafka": _use_aiokafka} | {name: program(name) for name in FOREIGN}


def _use_program(command: Sequence[str], way: Way, topic: str, directory: Path) -> None:
    driver = RemoteDriver(way.bootstrap, ["env", f"{FILE_VARIABLE}={way.file(directory)}", *command])
    try:
        driver.create_topic(topic, 1, {})
        driver.produce(topic, [Record(value) for value in RECORDS], ProducerOptions())
        read = driver.consume(topic, 0, 0, len(RECORDS))
        assert [each.value for each in read] == RECORDS, read
        assert topic in driver.list_topics()
        driver.delete_topic(topic)
    finally:
        driver.close()


def _librdkafka(way: Way) -> dict[str, Any]:
    settings = {"bootstrap.servers": way.bootstrap, "ssl.ca.location": str(way.certificate.authority), "log_level": 0}
    if way.has_login:
        login = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": USER, "sasl.password": PASSWORD}
        return settings | login | {"security.protocol": "SASL_SSL"}
    own = str(way.certificate.location)
    return settings | {"security.protocol": "SSL", "ssl.certificate.location": own, "ssl.key.location": own}


def _use_librdkafka(way: Way, topic: str) -> None:
    settings = _librdkafka(way)
    admin = _admin.AdminClient(settings)
    admin.create_topics([_admin.NewTopic(topic, 1)])[topic].result(TIMEOUT_S)
    producer = Producer(settings)
    for value in RECORDS:
        producer.produce(topic, value)
    assert producer.flush(TIMEOUT_S) == 0
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    read: list[Any] = []
    while len(read) < len(RECORDS):
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        assert message.error() is None, message.error()
        read.append(message.value())
    consumer.close()
    assert read == RECORDS
    admin.delete_topics([topic])[topic].result(TIMEOUT_S)


def _use_aiokafka(way: Way, topic: str) -> None:
    asyncio.run(_aiokafka(way, topic))


async def _aiokafka(way: Way, topic: str) -> None:
    context = ssl.create_default_context(cafile=str(way.certificate.authority))
    settings: dict[str, Any] = {"bootstrap_servers": way.bootstrap, "ssl_context": context, "security_protocol": "SSL"}
    if way.has_login:
        login = {"sasl_mechanism": "SCRAM-SHA-512", "sasl_plain_username": USER, "sasl_plain_password": PASSWORD}
        settings |= login | {"security_protocol": "SASL_SSL"}
    else:
        context.load_cert_chain(str(way.certificate.location))
    admin = AIOKafkaAdminClient(**settings)
    await admin.start()
    await admin.create_topics([NewTopic(topic, 1, 1)])
    async with AIOKafkaProducer(**settings) as producer:
        for value in RECORDS:
            await producer.send_and_wait(topic, value)
    async with AIOKafkaConsumer(topic, **settings, group_id=topic, auto_offset_reset="earliest") as consumer:
        async with asyncio.timeout(TIMEOUT_S):
            read = [(await consumer.getone()).value for _ in RECORDS]
    assert read == RECORDS
    await admin.delete_topics([topic])
    await admin.close()


if __name__ == "__main__":
    for complaint in check():
        print(complaint)
