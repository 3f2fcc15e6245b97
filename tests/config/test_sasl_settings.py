"""SASL settings: what a listener needs, overrides of listeners and mechanisms, and what is refused at the start."""

import pytest

from tidelog.config.loading import SettingsError, load_broker_settings
from tidelog.config.resolution import DynamicBrokerConfigs, describe_broker

MODULES = "org.apache.kafka.common.security"
PLAIN = f'{MODULES}.plain.PlainLoginModule required username="admin" password="hunter2" user_admin="hunter2";'
SCRAM = f'{MODULES}.scram.ScramLoginModule required username="admin" password="hunter2";'
BASE = (
    "listeners=INSIDE://127.0.0.1:9092,OUTSIDE://127.0.0.1:9093",
    "listener.security.protocol.map=INSIDE:SASL_PLAINTEXT,OUTSIDE:SASL_PLAINTEXT",
    "inter.broker.listener.name=INSIDE",
    "sasl.mechanism.inter.broker.protocol=PLAIN",
    "sasl.enabled.mechanisms=PLAIN",
    f"listener.name.inside.plain.sasl.jaas.config={PLAIN}",
    "listener.name.outside.sasl.enabled.mechanisms=SCRAM-SHA-512",
    "listener.name.outside.scram-sha-512.connections.max.reauth.ms=5000",
)


def mistakes(*given: str) -> list[str]:
    with pytest.raises(SettingsError) as rejected:
        load_broker_settings(None, given)
    return rejected.value.mistakes


def test_listeners_and_mechanisms_have_settings_of_their_own() -> None:
    settings = load_broker_settings(None, BASE)
    assert settings.for_listener("INSIDE").sasl_enabled_mechanisms == ("PLAIN",)
    assert settings.for_listener("OUTSIDE").sasl_enabled_mechanisms == ("SCRAM-SHA-512",)
    assert settings.for_mechanism("OUTSIDE", "SCRAM-SHA-512").connections_max_reauth_ms == 5000
    assert settings.for_mechanism("INSIDE", "PLAIN").connections_max_reauth_ms == 0
    jaas = settings.jaas("INSIDE", "PLAIN")
    assert jaas is not None
    assert jaas.users == {"admin": "hunter2"}


@pytest.mark.parametrize(
    ("given", "mistake"),
    [
        (("listeners=SASL_PLAINTEXT://:1",), "supported: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER"),
        ((*BASE, "sasl.enabled.mechanisms=GSSAPI"), "listener INSIDE has mechanism GSSAPI"),
        ((*BASE[:5], *BASE[6:]), "needs users of PLAIN"),
        ((*BASE, "sasl.mechanism.inter.broker.protocol=SCRAM-SHA-256"), "brokers need username"),
        ((*BASE, f"listener.name.inside.plain.sasl.jaas.config={SCRAM}"), "needs PlainLoginModule"),
        ((*BASE, "listener.name.outside.sasl.enabled.mechanisms=OAUTHBEARER"), "needs sasl.oauthbearer.jwks"),
        ((*BASE, "listener.name.other.sasl.enabled.mechanisms=PLAIN"), "is for listener OTHER"),
        ((*BASE, f"sasl.jaas.config={PLAIN}"), "needs a listener and a mechanism"),
        ((*BASE, "sasl.server.callback.handler.class=com.example.Mine"), "classes of Java cannot be loaded"),
        ((*BASE, "sasl.login.class=x.Login"), "without it the broker would be unprotected"),
        ((*BASE, "listener.name.outside.plain.sasl.jaas.config=x required password=hunter2"), "semicolon"),
    ],
)
def test_what_cannot_work_is_refused_without_secrets(given: tuple[str, ...], mistake: str) -> None:
    found = mistakes(*given)
    assert any(mistake in each for each in found), found
    assert "hunter2" not in str(found)


def test_secrets_are_not_described() -> None:
    static = load_broker_settings(None, BASE)
    assert "hunter2" not in repr(static) + repr(describe_broker(static, DynamicBrokerConfigs()))
