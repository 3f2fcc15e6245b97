"""Our declarations against the definitions that Apache Kafka 4.3.0 prints of itself."""

from pathlib import Path
from typing import NamedTuple

import pytest

from tidelog.config.broker import BrokerSettings
from tidelog.config.group import ConsumerGroupSettings
from tidelog.config.sasl import sasl_setting_names
from tidelog.config.setting import Setting, default_text, settings_of
from tidelog.config.ssl import ssl_setting_names
from tidelog.config.topic import TopicSettings

DELIBERATE_DIFFERENCES = {
    "broker.heartbeat.interval.ms": {"bounds"},
    "broker.id": {"bounds"},
    "broker.session.timeout.ms": {"bounds"},
    "default.replication.factor": {"bounds"},
    "group.consumer.assignors": {"bounds"},
    "group.consumer.migration.policy": {"bounds"},
    "listener.security.protocol.map": {"update"},
    "listeners": {"update"},
    "log.dir": {"default"},
    "node.id": {"default", "bounds"},
    "queued.max.request.bytes": {"default"},
    "replica.high.watermark.checkpoint.interval.ms": {"bounds"},
    "replica.lag.time.max.ms": {"bounds"},
    "replica.selector.class": {"bounds"},
    "replica.socket.timeout.ms": {"bounds"},
    "socket.listen.backlog.size": {"default"},
}
"""Stricter than Kafka, or another default; everything else must be Kafka's."""

OWN_SETTINGS = {
    "coordination.store",
    "java.security.auth.login.config",
    "message.max.decompressed.bytes",
    "metrics.basic.auth",
    "metrics.listener",
    "metrics.ssl.enable",
    "takeover.wait.ms",
    "tracing.endpoint",
    "unclean.takeover.enable",
    "zookeeper.sasl.clientconfig",
    "zookeeper.sasl.jaas.config",
}
OWN_TOPIC_SETTINGS = {"max.decompressed.message.bytes"}
KAFKA_3_9_SETTINGS = {
    "control.plane.listener.name",
    "controlled.shutdown.max.retries",
    "controlled.shutdown.retry.backoff.ms",
    "leader.imbalance.per.broker.percentage",
    "reserved.broker.max.id",
    "zookeeper.connect",
    "zookeeper.connection.timeout.ms",
    "zookeeper.session.timeout.ms",
    "zookeeper.set.acl",
} | {name for name in settings_of(BrokerSettings) if name.startswith("zookeeper.ssl.")}


NOT_COMPARED = {"security.inter.broker.protocol"} | ssl_setting_names() | sasl_setting_names()
"""Written without Kafka's printed definitions, which are still to be compared."""

OF_THE_AUTHORIZER = {"allow.everyone.if.no.acl.found", "authorizer.class.name", "super.users"}
"""Kafka's authorizers read these themselves; the broker defines the class name only, as any text."""

LEVELS = {"topic": TopicSettings, "broker": BrokerSettings, "group": ConsumerGroupSettings}


class Definition(NamedTuple):
    level: str
    name: str
    type: str
    default: str
    bounds: str
    update: str


def kafka_definitions() -> list[Definition]:
    lines = (Path(__file__).parent / "kafka_settings.txt").read_text().splitlines()
    return [Definition(*line.split(" ")) for line in lines if not line.startswith("#")]


def ours(definition: Definition) -> Setting:
    return settings_of(LEVELS[definition.level])[definition.name]


def bounds(known: Setting) -> str:
    if known.one_of:
        return f"[{',_'.join(known.one_of)}]"
    if known.at_least is None:
        return "-"
    text = f"[{known.at_least},...,{known.at_most}]" if known.at_most is not None else f"[{known.at_least},...]"
    return text if known.also_allowed is None else f"{text}_or_{known.also_allowed}"


def differences(definition: Definition, known: Setting) -> set[str]:
    found = {
        "type": (definition.type, known.type.name),
        "default": (definition.default, "null" if known.default is None else default_text(known)),
        "bounds": (definition.bounds, bounds(known)),
        "update": (definition.update, known.update.value if definition.level == "broker" else "-"),
    }
    return {aspect for aspect, (theirs, our) in found.items() if theirs != our}


@pytest.mark.parametrize("definition", kafka_definitions(), ids=lambda found: f"{found.level}:{found.name}")
def test_a_setting_has_the_type_default_bounds_and_update_mode_of_kafka(definition: Definition) -> None:
    assert differences(definition, ours(definition)) == DELIBERATE_DIFFERENCES.get(definition.name, set())


def test_every_declared_setting_was_compared() -> None:
    compared = {(found.level, found.name) for found in kafka_definitions()}
    declared = {(level, name) for level, declaring in LEVELS.items() for name in settings_of(declaring)}
    own = {("broker", name) for name in OWN_SETTINGS | KAFKA_3_9_SETTINGS | NOT_COMPARED | OF_THE_AUTHORIZER}
    assert declared - compared == own | {("topic", name) for name in OWN_TOPIC_SETTINGS}
