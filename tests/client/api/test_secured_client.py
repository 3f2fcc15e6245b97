"""The public client with TLS and a login: the settings of Kafka's clients."""

import asyncio
from pathlib import Path

import pytest

from tests.certificates import Authority
from tests.clients.test_sasl import brokers
from tidelog.client import Admin, Consumer, Producer

pytestmark = pytest.mark.clients


def test_a_login_over_tls(tmp_path: Path) -> None:
    certificate = Authority(tmp_path).sign("broker")
    config = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "admin",
        "sasl.password": "hunter2",
        "ssl.truststore.location": str(certificate.authority),
        "ssl.truststore.type": "PEM",
    }

    async def main() -> None:
        async with brokers(tmp_path, certificate, "SASL_SSL") as (broker,):
            address = broker.advertised_address
            async with Admin(address, config=config) as admin:
                await admin.create_topic("tides", partitions=1)
            async with Producer(address, config=config) as producer:
                await producer.send("tides", b"low")
            async with Consumer(address, "tides", group="g", start="earliest", config=config) as consumer:
                assert [record.value for record in await consumer.poll()] == [b"low"]

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_wrong_security_setting_is_reported_at_once() -> None:
    with pytest.raises(ValueError, match=r"sasl\.user is not supported; did you mean sasl\.username\?"):
        Producer("localhost:1", config={"sasl.user": "admin"})
