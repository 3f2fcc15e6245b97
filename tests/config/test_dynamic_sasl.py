"""SASL settings of a listener at run time: what can be changed, and what is refused with a reason."""

import pytest

from tidelog.config.broker import BrokerSettings
from tidelog.config.dynamic_changes import check_dynamic_change
from tidelog.config.resolution import (
    ConfigSource,
    DynamicBrokerConfigs,
    describe_broker,
    effective_broker_settings,
    validate_dynamic_broker_configs,
)
from tidelog.errors import InvalidRequest

MODULES = "org.apache.kafka.common.security"
PLAIN = f'{MODULES}.plain.PlainLoginModule required user_alice="hunter2";'
SCRAM = f"{MODULES}.scram.ScramLoginModule required;"
PREFIX = "listener.name.clients."
STATIC = BrokerSettings(
    listeners=("BROKERS://127.0.0.1:1", "CLIENTS://127.0.0.1:2"),
    listener_security_protocol_map="BROKERS:PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
    inter_broker_listener_name="BROKERS",
    sasl_enabled_mechanisms=("PLAIN",),
    listener_overrides={f"{PREFIX}plain.sasl.jaas.config": PLAIN},
)


def change(name: str, value: str, *, for_one_broker: bool = True) -> None:
    validate_dynamic_broker_configs({name: value}, for_one_broker=for_one_broker)
    check_dynamic_change(STATIC, {name: value}, for_one_broker=for_one_broker)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sasl.enabled.mechanisms", "PLAIN,SCRAM-SHA-512"),
        ("connections.max.reauth.ms", "60000"),
        ("plain.connections.max.reauth.ms", "60000"),
        ("sasl.server.max.receive.size", "1000"),
        ("scram-sha-512.sasl.jaas.config", SCRAM),
    ],
)
def test_what_can_be_changed(name: str, value: str) -> None:
    change(PREFIX + name, value)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        (f"{PREFIX}plain.sasl.jaas.config", PLAIN, "Passwords and keys cannot be stored"),
        (f"{PREFIX}plain.sasl.jaas.config", "nonsense", "does not end with a semicolon"),
        (f"{PREFIX}sasl.jaas.config", PLAIN, "needs a supported mechanism"),
        (f"{PREFIX}gssapi.sasl.jaas.config", PLAIN, "needs a supported mechanism"),
        (f"{PREFIX}sasl.enabled.mechanisms", "GSSAPI", "has mechanism GSSAPI"),
        (f"{PREFIX}sasl.enabled.mechanisms", "", "needs a mechanism"),
        (f"{PREFIX}sasl.enabled.mechanisms", "PLAIN,OAUTHBEARER", "OAUTHBEARER"),
        (f"{PREFIX}sasl.server.max.receive.size", "0", "Invalid value"),
        (f"{PREFIX}sasl.mechanism.inter.broker.protocol", "PLAIN", "for existing listener CLIENTS, restart broker"),
        (f"{PREFIX}oauthbearer.sasl.oauthbearer.expected.issuer", "x", "for existing listener CLIENTS, restart broker"),
        (f"{PREFIX}sasl.kerberos.service.name", "x", "Not supported"),
        ("listener.name.other.sasl.enabled.mechanisms", "PLAIN", "listener OTHER, which is not among the listeners"),
        ("sasl.enabled.mechanisms", "PLAIN", "Cannot update these configs dynamically"),
        ("sasl.jaas.config", PLAIN, "Cannot update these configs dynamically"),
    ],
)
def test_what_is_refused(name: str, value: str, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason) as refused:
        change(name, value)
    assert "hunter2" not in str(refused.value)


def test_mechanisms_of_all_brokers_cannot_be_changed_at_once() -> None:
    with pytest.raises(InvalidRequest, match="broker id must be specified"):
        change(f"{PREFIX}sasl.enabled.mechanisms", "PLAIN", for_one_broker=False)


def test_bearer_tokens_cannot_be_enabled_without_a_restart() -> None:
    bearer = f'{MODULES}.oauthbearer.OAuthBearerLoginModule required unsecuredValidatorRequiredScope="x";'
    static = BrokerSettings(
        listeners=STATIC.listeners,
        listener_security_protocol_map=STATIC.listener_security_protocol_map,
        inter_broker_listener_name="BROKERS",
        sasl_enabled_mechanisms=("PLAIN",),
        listener_overrides={**STATIC.listener_overrides, f"{PREFIX}oauthbearer.sasl.jaas.config": bearer},
    )
    with pytest.raises(InvalidRequest, match="OAUTHBEARER cannot be enabled dynamically for existing listener CLIENTS"):
        check_dynamic_change(static, {f"{PREFIX}sasl.enabled.mechanisms": "OAUTHBEARER"}, for_one_broker=True)


def test_what_apache_kafka_stored_and_nobody_can_read_is_ignored() -> None:
    stored = {
        f"{PREFIX}plain.sasl.jaas.config": "encodedPassword:xyz",
        f"{PREFIX}sasl.server.max.receive.size": "many",
        f"{PREFIX}sasl.mechanism.inter.broker.protocol": "GSSAPI",
        f"{PREFIX}connections.max.reauth.ms": "7000",
    }
    settings = effective_broker_settings(STATIC, DynamicBrokerConfigs(per_broker=stored))
    assert settings.listener_overrides == {
        **STATIC.listener_overrides,
        f"{PREFIX}connections.max.reauth.ms": "7000",
    }


def test_settings_of_listeners_are_described_without_secrets() -> None:
    dynamic = DynamicBrokerConfigs(per_broker={f"{PREFIX}sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256"})
    described = {each.name: each for each in describe_broker(STATIC, dynamic) if each.name.startswith(PREFIX)}
    mechanisms = described[f"{PREFIX}sasl.enabled.mechanisms"]
    assert (mechanisms.value, mechanisms.source) == ("PLAIN,SCRAM-SHA-256", ConfigSource.DYNAMIC_BROKER_CONFIG)
    module = described[f"{PREFIX}plain.sasl.jaas.config"]
    assert (module.value, module.is_sensitive, module.source) == (None, True, ConfigSource.STATIC_BROKER_CONFIG)
    assert "hunter2" not in str(described)
