"""Security settings of clients: Kafka's and librdkafka's names, secrets from elsewhere, mistakes without secrets."""

from pathlib import Path

import pytest

from tidelog.config.client import BadClientSettings, ClientSecurity, client_security, load_client_security
from tidelog.config.config_providers import UnresolvedSecret, resolve

JAAS = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="{}";'
SCRAM = {"security.protocol": "sasl_ssl", "sasl.mechanism": "SCRAM-SHA-512"}


def test_a_client_properties_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSWORD", 'quote " and ; and \\')
    file = tmp_path / "client.properties"
    file.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\nclient.id=mine\n"
        f"sasl.jaas.config={JAAS.format('${env:PASSWORD}')}\nssl.truststore.location=/ca.pem\n"
        "sasl.login.class=any\n"
    )
    resolved = load_client_security(str(file)).resolve()
    assert (resolved.protocol, resolved.mechanism) == ("SASL_SSL", "SCRAM-SHA-512")
    assert resolved.options == {"username": "alice", "password": 'quote " and ; and \\'}
    assert resolved.ssl.ssl_truststore_location == "/ca.pem"
    assert "quote" not in repr(resolved)


@pytest.mark.parametrize(
    "given",
    [
        {"ssl.secure.random.implementation": "SHA1PRNG"},
        {"ssl.engine.factory.class": "org.apache.kafka.common.security.ssl.DefaultSslEngineFactory"},
        {"ssl.endpoint.identification.algorithm": "HTTPS"},
        {"sasl.kerberos.kinit.cmd": "/usr/bin/kinit", "sasl.kerberos.service.name": "kafka"},
        {"sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": "100", "sasl.login.refresh.window.factor": "0.8"},
    ],
)
def test_what_only_tunes_a_java_client_is_accepted(given: dict[str, str]) -> None:
    assert client_security({"security.protocol": "SSL", **given}).resolve().ssl.ssl_endpoint_identification_algorithm


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "README.md"
    file.write_text("# Tidelog\n\nA replicated event log: installs with pip.\n")
    with pytest.raises(BadClientSettings, match="is not a client"):
        load_client_security(str(file))
    file.write_text("")
    assert load_client_security(str(file)).resolve().protocol == "PLAINTEXT"


def test_a_class_of_java_is_refused() -> None:
    for name in ("ssl.engine.factory.class", "sasl.oauthbearer.jwt.retriever.class"):
        with pytest.raises(BadClientSettings, match="is not supported"):
            client_security({name: "com.example.Class"})


def test_names_of_librdkafka(tmp_path: Path) -> None:
    key = tmp_path / "key.pem"
    key.write_text("KEY")
    given = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": "sesame",
        "ssl.ca.location": "/ca.pem",
        "ssl.key.location": str(key),
    }
    resolved = client_security(given).resolve()
    assert resolved.options == {"username": "alice", "password": "sesame"}
    assert (resolved.ssl.ssl_truststore_location, resolved.ssl.ssl_keystore_key) == ("/ca.pem", "KEY")


def test_secrets_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "secrets").write_text("password=a:b\n")
    assert resolve(f"<${{file:{tmp_path}/secrets:password}}>") == "<a:b>"
    for text in (
        "${env:NO_SUCH_VARIABLE_HERE}",
        f"${{file:{tmp_path}/secrets:other}}",
        "${file:/none:x}",
        "${vault:a:b}",
    ):
        with pytest.raises(UnresolvedSecret):
            resolve(text)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"security.protocol": "TLS"}, "must be one of PLAINTEXT"),
        ({"sasl.mechanissm": "PLAIN"}, "did you mean sasl.mechanism"),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism is GSSAPI"),
        ({**SCRAM}, "needs sasl.jaas.config"),
        ({**SCRAM, "sasl.jaas.config": JAAS.format("hunter2")[:-1]}, "semicolon"),
        ({**SCRAM, "sasl.mechanism": "PLAIN", "sasl.jaas.config": JAAS.format("hunter2")}, "needs PlainLoginModule"),
        ({**SCRAM, "sasl.username": "a", "sasl.password": "${env:NO_SUCH_VARIABLE_HERE}"}, "has no variable"),
    ],
)
def test_mistakes_are_named_without_secrets(given: dict[str, str], reason: str) -> None:
    with pytest.raises(BadClientSettings, match=reason) as refused:
        client_security(given).resolve()
    assert "hunter2" not in str(refused.value)


def test_secrets_are_not_shown() -> None:
    security = client_security({**SCRAM, "sasl.username": "a", "sasl.password": "hunter2"})
    assert "hunter2" not in repr(security) + repr(security.resolve())
    assert security.literal_secrets() == ["sasl.password"]
    assert ClientSecurity().resolve().protocol == "PLAINTEXT"
