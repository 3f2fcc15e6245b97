"""Limits of clients: no internal topics, no settings that lock others out, no posing as another producer."""

import time

from compat.answers.conversation import Conversation, chapter
from compat.answers.coordinators import GROUP, find_coordinators
from compat.answers.requests import create_topic
from compat.answers.writers import TIMEOUT_MS, prepare
from tidelog.config.broker import BrokerSettings
from tidelog.config.setting import ConfigType, Setting, UpdateMode, settings_of
from tidelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tidelog.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tidelog.protocol.records import Record, build_batch

BROKER = 4
BROKER_ID = "1"
LAST_EPOCH = 32_767
VALUES = {
    ConfigType.BOOLEAN: ("true", "x"),
    ConfigType.STRING: ("", "x"),
    ConfigType.PASSWORD: ("", "x"),
    ConfigType.LIST: ("", "x"),
    ConfigType.DOUBLE: ("-1", "0", "1", "2"),
    ConfigType.INT: (str(-(2**31)), "-2", "-1", "0", "1", "2", "3", "100000", str(2**31 - 1)),
    ConfigType.LONG: (str(-(2**63)), "-2", "-1", "0", "1", "1048576", "1048577", str(2**63 - 1)),
}


NO_CLEANING = "a cleaner that may read nothing compacts nothing: Tidelog refuses such a rate, Kafka keeps it"
OF_LISTENERS = "Tidelog changes TLS by listener only; Kafka keeps it for listeners that are added later"
KNOWN_LIMITS = {
    **{
        f"log.cleaner.io.max.bytes.per.second={value!r} for broker {resource!r}": NO_CLEANING
        for value in ("-1", "0")
        for resource in ("", BROKER_ID)
    },
    **{
        f"{name}={value!r} for broker {BROKER_ID!r}": OF_LISTENERS
        for name in ("ssl.cipher.suites", "ssl.enabled.protocols", "ssl.endpoint.identification.algorithm")
        for value in ("", "x")
    },
}


@chapter("names of internal topics")
def internal_topics(talk: Conversation) -> None:
    find_coordinators(talk, GROUP, "somebody")
    for name in ("__cluster_metadata", "__consumer_offsets", "__share_group_state"):
        for version in (2, 7):
            wanted = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
            request = CreateTopicsRequest(topics=[wanted], timeout_ms=TIMEOUT_MS, validate_only=True)
            talk.ask(f"create {name}, v{version}", request, version)


OWN_SETTINGS = {"message.max.decompressed.bytes"}
"""Kafka does not know them, and takes any value for what it does not know."""


def _dynamic_settings() -> list[Setting]:
    return [
        known
        for known in settings_of(BrokerSettings).values()
        if known.update is not UpdateMode.READ_ONLY and known.name not in OWN_SETTINGS
    ]


@chapter("settings that change while a broker runs, at their limits")
def dynamic_settings(talk: Conversation) -> None:
    for known in _dynamic_settings():
        for value in VALUES[known.type]:
            for resource in ("", BROKER_ID):
                change = AlterableConfig(name=known.name, config_operation=0, value=value)
                wanted = AlterConfigsResource(resource_type=BROKER, resource_name=resource, configs=[change])
                request = IncrementalAlterConfigsRequest(resources=[wanted], validate_only=True)
                talk.ask(f"{known.name}={value!r} for broker {resource!r}", request, 1)


@chapter("producer ids of strangers")
def strangers(talk: Conversation) -> None:
    """An epoch is believed if its first sequence is 0, from any client; anything else changes nothing."""
    prepare(talk)
    topic, _ = create_topic(talk, "topic")
    for epoch in (1, LAST_EPOCH - 1, LAST_EPOCH):
        for sequence in (-1, 0, 1, 2, 5):
            request = InitProducerIdRequest(None, TIMEOUT_MS)
            owner = talk.ask_quietly(request, 5, InitProducerIdResponse).producer_id
            case = f"epoch {epoch}, sequence {sequence}"
            for number in range(2):
                talk.ask(f"{case}: the owner's batch {number}", _produce(topic, owner, 0, number), 9)
            talk.ask(f"{case}: the stranger's batch", _produce(topic, owner, epoch, sequence), 9)
            talk.ask(f"{case}: the owner goes on", _produce(topic, owner, 0, 2), 9)
            talk.ask(f"{case}: the owner repeats itself", _produce(topic, owner, 0, 1), 9)
            talk.ask(f"{case}: the stranger goes on", _produce(topic, owner, epoch, sequence + 1), 9)


def _produce(topic: str, producer_id: int, epoch: int, sequence: int) -> ProduceRequest:
    record = Record(0, int(time.time() * 1000), None, b"value")
    batch = build_batch([record], producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(0, memoryview(batch))])
    return ProduceRequest(acks=-1, timeout_ms=TIMEOUT_MS, topic_data=[data])
