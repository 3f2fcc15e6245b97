"""Real clients with permissions: administrators change rules, others get what the rules allow."""

import asyncio
import warnings
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from tests.certificates import Authority, Certificate
from tests.clients.test_tls import brokers, confluent
from tidelog.config.authorization import STANDARD_AUTHORIZER
from tidelog.server.broker import Broker

pytestmark = pytest.mark.clients

TIMEOUT_S = 30
GUARDED = {
    "authorizer_class_name": STANDARD_AUTHORIZER,
    "super_users": "User:broker;User:admin",
    "ssl_principal_mapping_rules": r"RULE:^.*CN=([a-z]+).*$/$1/",
}


def rule(
    resource: ResourceType,
    name: str,
    operation: AclOperation,
    pattern: ResourcePatternType = ResourcePatternType.LITERAL,
) -> AclBinding:
    return AclBinding(resource, name, pattern, "User:alice", "*", operation, AclPermissionType.ALLOW)


def failure_of_produce(settings: dict[str, object], topic: str) -> KafkaError | None:
    outcome: list[KafkaError | None] = []
    producer = Producer({**settings, "message.timeout.ms": 15_000})
    producer.produce(topic, b"value", on_delivery=lambda error, _: outcome.append(error))
    producer.flush(TIMEOUT_S)
    return outcome[0]


def first_of_consumer(settings: dict[str, object], topic: str, group: str) -> bytes | KafkaError | None:
    consumer = Consumer({**settings, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    try:
        for _ in range(TIMEOUT_S):
            message = consumer.poll(1)
            if message is not None:
                return message.error() or message.value()
        return None
    finally:
        consumer.close()


def use_confluent(broker: Broker, authority: Path, admin: Certificate, alice: Certificate) -> None:
    administrator = AdminClient(confluent(broker, authority, admin))
    settings = confluent(broker, authority, alice)
    administrator.create_topics([NewTopic("orders", 1, 1)])["orders"].result(TIMEOUT_S)
    denied = failure_of_produce(settings, "orders")
    assert denied is not None
    assert denied.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    rules = [
        rule(ResourceType.TOPIC, "ord", AclOperation.WRITE, ResourcePatternType.PREFIXED),
        rule(ResourceType.TOPIC, "orders", AclOperation.READ),
    ]
    for future in administrator.create_acls(rules).values():
        future.result(TIMEOUT_S)
    assert failure_of_produce(settings, "orders") is None
    refused = first_of_consumer(settings, "orders", "readers")
    assert isinstance(refused, KafkaError)
    assert refused.code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    (future,) = administrator.create_acls([rule(ResourceType.GROUP, "readers", AclOperation.READ)]).values()
    future.result(TIMEOUT_S)
    assert first_of_consumer(settings, "orders", "readers") == b"value"
    anything = (ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY)
    everything = AclBindingFilter(*anything)  # type: ignore[arg-type]
    assert len(administrator.describe_acls(everything).result(TIMEOUT_S)) == 3
    client = AdminClient(settings)
    (future,) = client.create_acls(rules[:1]).values()
    with pytest.raises(KafkaException) as raised:
        future.result(TIMEOUT_S)
    assert raised.value.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED
    (deleted,) = administrator.delete_acls([everything]).values()
    assert len(deleted.result(TIMEOUT_S)) == 3
    assert "orders" not in client.list_topics(timeout=TIMEOUT_S).topics


def test_confluent_kafka_gets_what_the_rules_allow(tmp_path: Path) -> None:
    asyncio.run(_with_a_broker(tmp_path, use_confluent))


def use_kafka_python(broker: Broker, authority: Path, admin: Certificate, alice: Certificate) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its own imports
        from kafka import admin as kafka_python

    client = kafka_python.KafkaAdminClient(
        bootstrap_servers=f"127.0.0.1:{broker.listeners[0].port}",
        security_protocol="SSL",
        ssl_cafile=str(authority),
        ssl_certfile=str(admin.location),
        ssl_keyfile=str(admin.location),
    )
    pattern = kafka_python.ResourcePattern(
        kafka_python.ResourceType.TOPIC, "pay", kafka_python.ACLResourcePatternType.PREFIXED
    )
    wanted = kafka_python.ACL(
        "User:alice", "*", kafka_python.ACLOperation.WRITE, kafka_python.ACLPermissionType.DENY, pattern
    )
    client.create_acls([wanted])
    selected = kafka_python.ACLFilter(
        None,
        None,
        kafka_python.ACLOperation.ANY,
        kafka_python.ACLPermissionType.ANY,
        kafka_python.ResourcePatternFilter(
            kafka_python.ResourceType.TOPIC, "payments", kafka_python.ACLResourcePatternType.MATCH
        ),
    )
    found = client.describe_acls(selected)
    assert "User:alice" in str(found), found
    client.delete_acls([selected])
    assert "User:alice" not in str(client.describe_acls(selected))
    client.close()


def test_kafka_python_manages_rules(tmp_path: Path) -> None:
    asyncio.run(_with_a_broker(tmp_path, use_kafka_python))


async def _with_a_broker(directory: Path, use: object) -> None:
    authority = Authority(directory)
    of_broker, admin, alice = (authority.sign(name, f"/O=tidelog/CN={name}") for name in ("broker", "admin", "alice"))
    async with brokers(directory, of_broker, 1, **GUARDED) as (broker,):
        await asyncio.to_thread(use, broker, authority.certificate, admin, alice)  # type: ignore[arg-type]
