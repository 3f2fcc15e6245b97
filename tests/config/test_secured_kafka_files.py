"""Files of secured brokers of Apache Kafka, as its documentation writes them: taken as they are, or refused."""

import logging
from pathlib import Path

import pytest

from tidelog.config.listener_settings import ListenerSettings
from tidelog.config.loading import SettingsError, load_broker_settings

MODULES = "org.apache.kafka.common.security"
PLAIN_USERS = (
    f'{MODULES}.plain.PlainLoginModule required username="admin" password="hunter2" user_admin="hunter2"'
    ' user_alice="hunter3";'
)
SCRAM_LOGIN = f'{MODULES}.scram.ScramLoginModule required username="admin" password="hunter2";'

SASL_SSL_OF_KAFKA_3_9 = f"""
broker.id=0
zookeeper.connect=localhost:2181
listeners=SASL_SSL://localhost:9092
security.inter.broker.protocol=SASL_SSL
sasl.mechanism.inter.broker.protocol=SCRAM-SHA-256
sasl.enabled.mechanisms=SCRAM-SHA-256
sasl.kerberos.service.name=kafka
listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config={MODULES}.scram.ScramLoginModule required \\
   username="admin" \\
   password="hunter2";
ssl.keystore.location=/var/private/ssl/server.keystore.p12
ssl.keystore.password=test1234
ssl.key.password=test1234
ssl.truststore.location=/var/private/ssl/server.truststore.p12
ssl.truststore.password=test1234
ssl.client.auth=required
ssl.enabled.protocols=TLSv1.2,TLSv1.3
ssl.protocol=TLSv1.3
ssl.keystore.type=PKCS12
ssl.truststore.type=PKCS12
ssl.secure.random.implementation=SHA1PRNG
ssl.endpoint.identification.algorithm=HTTPS
ssl.engine.factory.class={MODULES}.ssl.DefaultSslEngineFactory
authorizer.class.name=kafka.security.authorizer.AclAuthorizer
super.users=User:admin;User:CN=kafka,OU=Tide
allow.everyone.if.no.acl.found=false
password.encoder.secret=hunter4
password.encoder.iterations=4096
"""

COMBINED_KRAFT = f"""
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@localhost:9093
listeners=BROKER://0.0.0.0:9092,CONTROLLER://localhost:9093
advertised.listeners=BROKER://localhost:9092
controller.listener.names=CONTROLLER
inter.broker.listener.name=BROKER
listener.security.protocol.map=BROKER:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT
sasl.enabled.mechanisms=PLAIN
sasl.mechanism.inter.broker.protocol=PLAIN
sasl.mechanism.controller.protocol=PLAIN
listener.name.broker.plain.sasl.jaas.config={PLAIN_USERS}
listener.name.controller.plain.sasl.jaas.config={PLAIN_USERS}
listener.name.controller.gssapi.sasl.jaas.config=com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true;
listener.name.controller.sasl.enabled.mechanisms=PLAIN
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:admin
early.start.listeners=CONTROLLER
principal.builder.class={MODULES}.authenticator.DefaultKafkaPrincipalBuilder
"""

KRAFT_BROKER_WITH_CERTIFICATES = """
process.roles=broker
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=SSL://localhost:9092
controller.listener.names=CONTROLLER
inter.broker.listener.name=SSL
listener.security.protocol.map=SSL:SSL,CONTROLLER:SSL
listener.name.controller.ssl.keystore.location=/etc/kafka/controller.pem
listener.name.controller.ssl.client.auth=required
ssl.keystore.location=/etc/kafka/broker.pem
ssl.keystore.type=PEM
ssl.allow.dn.changes=true
"""

TOKENS_OF_KAFKA_3_9 = f"""
listeners=SASL_PLAINTEXT://localhost:9092
security.inter.broker.protocol=SASL_PLAINTEXT
sasl.enabled.mechanisms=OAUTHBEARER
sasl.mechanism.inter.broker.protocol=OAUTHBEARER
listener.name.sasl_plaintext.oauthbearer.sasl.server.callback.handler.class=\\
  {MODULES}.oauthbearer.secured.OAuthBearerValidatorCallbackHandler
listener.name.sasl_plaintext.oauthbearer.sasl.login.callback.handler.class=\\
  {MODULES}.oauthbearer.secured.OAuthBearerLoginCallbackHandler
listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config={MODULES}.oauthbearer.OAuthBearerLoginModule required \\
  clientId="tide" clientSecret="hunter2" scope="logs";
listener.name.sasl_plaintext.oauthbearer.sasl.oauthbearer.jwks.endpoint.url=file:///etc/kafka/keys.json
sasl.oauthbearer.token.endpoint.url=https://idp.example/token
sasl.oauthbearer.expected.audience=kafka
sasl.oauthbearer.header.urlencode=false
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms=100
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms=10000
sasl.login.refresh.window.factor=0.8
sasl.login.connect.timeout.ms=1000
sasl.login.retry.backoff.ms=100
"""

TOKENS_OF_KAFKA_4_3 = f"""
listeners=SASL_PLAINTEXT://localhost:9092
security.inter.broker.protocol=SASL_PLAINTEXT
sasl.enabled.mechanisms=OAUTHBEARER
sasl.mechanism.inter.broker.protocol=OAUTHBEARER
listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config={MODULES}.oauthbearer.OAuthBearerLoginModule required ;
listener.name.sasl_plaintext.oauthbearer.sasl.oauthbearer.jwks.endpoint.url=file:///etc/kafka/keys.json
listener.name.sasl_plaintext.oauthbearer.sasl.oauthbearer.jwt.validator.class={MODULES}.oauthbearer.BrokerJwtValidator
sasl.oauthbearer.jwt.retriever.class={MODULES}.oauthbearer.ClientCredentialsJwtRetriever
sasl.oauthbearer.client.credentials.client.id=tide
sasl.oauthbearer.client.credentials.client.secret=hunter2
sasl.oauthbearer.scope=logs
sasl.oauthbearer.token.endpoint.url=https://idp.example/token
"""

PEM_INLINE = """
listeners=SSL://localhost:9092
security.inter.broker.protocol=SSL
ssl.keystore.type=PEM
ssl.keystore.key=-----BEGIN ENCRYPTED PRIVATE KEY----- MII -----END ENCRYPTED PRIVATE KEY-----
ssl.keystore.certificate.chain=-----BEGIN CERTIFICATE----- MII -----END CERTIFICATE-----
ssl.truststore.type=PEM
ssl.truststore.certificates=-----BEGIN CERTIFICATE----- MII -----END CERTIFICATE-----
ssl.key.password=hunter2
"""

LIMITS_OF_LISTENERS = """
listeners=CLIENTS://localhost:9092,BROKERS://localhost:9093
listener.security.protocol.map=CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT
inter.broker.listener.name=BROKERS
listener.name.clients.max.connections=100
listener.name.clients.max.connection.creation.rate=10
listener.name.clients.num.network.threads=8
"""


def loaded(tmp_path: Path, text: str) -> ListenerSettings:
    file = tmp_path / "server.properties"
    file.write_text(text)
    return load_broker_settings(str(file))


def refusals(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(SettingsError) as refused:
        loaded(tmp_path, text)
    return [each.removeprefix(f"{tmp_path / 'server.properties'}:") for each in refused.value.mistakes]


@pytest.mark.parametrize(
    "text",
    [
        SASL_SSL_OF_KAFKA_3_9,
        COMBINED_KRAFT,
        KRAFT_BROKER_WITH_CERTIFICATES,
        TOKENS_OF_KAFKA_3_9,
        TOKENS_OF_KAFKA_4_3,
        PEM_INLINE,
        LIMITS_OF_LISTENERS,
    ],
    ids=["3.9", "combined", "certificates", "tokens 3.9", "tokens 4.3", "PEM", "limits"],
)
def test_it_is_taken_as_it_is(tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str) -> None:
    with caplog.at_level(logging.INFO):
        assert "hunter" not in repr(loaded(tmp_path, text))
    assert "hunter" not in caplog.text


def test_a_controller_listener_and_its_settings_are_left_out(tmp_path: Path) -> None:
    settings = loaded(tmp_path, COMBINED_KRAFT)
    assert [each.listener_name for each in settings.endpoints] == ["BROKER"]
    assert all("controller" not in name for name in settings.listener_overrides)


def test_limits_of_one_listener(tmp_path: Path) -> None:
    settings = loaded(tmp_path, LIMITS_OF_LISTENERS)
    assert settings.for_listener("CLIENTS").max_connections == 100
    assert settings.for_listener("BROKERS").max_connections > 100


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("principal.builder.class=com.example.Builder", "principal.builder.class: not supported"),
        ("ssl.engine.factory.class=com.example.Factory", "ssl.engine.factory.class: not supported"),
        ("delegation.token.secret.key=hunter2", "delegation.token.secret.key: not supported"),
        ("delegation.token.master.key=hunter2", "delegation.token.master.key: not supported"),
        ("client.quota.callback.class=com.example.Quotas", "client.quota.callback.class: not supported"),
        ("authorizer.class.name=com.example.Ranger", "there are no plugins"),
        ("sasl.oauthbearer.jwt.validator.class=com.example.V", "sasl.oauthbearer.jwt.validator.class: not supported"),
        ("sasl.oauthbearer.header.urlencode=true", "sasl.oauthbearer.header.urlencode: not supported"),
        ("ssl.allow.dn.changes=false", "ssl.allow.dn.changes: not supported"),
        (
            "process.roles=controller\nnode.id=1\ncontroller.listener.names=C\nlisteners=C://localhost:9093\n"
            "listener.security.protocol.map=C:PLAINTEXT",
            "process.roles: every broker can be the controller",
        ),
        ("config.providers=vault\nconfig.providers.vault.class=com.example.Vault", "config.providers.vault.class"),
    ],
)
def test_what_is_not_supported_stops_the_start_with_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    (mistake,) = refusals(tmp_path, text)
    assert sentence in mistake
    assert "hunter" not in mistake


def test_kerberos_stops_the_start(tmp_path: Path) -> None:
    text = """
listeners=SASL_PLAINTEXT://localhost:9092
security.inter.broker.protocol=SASL_PLAINTEXT
sasl.mechanism.inter.broker.protocol=GSSAPI
sasl.enabled.mechanisms=GSSAPI
sasl.kerberos.service.name=kafka
"""
    assert all("mechanism GSSAPI" in each for each in refusals(tmp_path, text))


WITH_JAAS_FILE = """
listeners=CLIENTS://localhost:9092,BROKERS://localhost:9093
listener.security.protocol.map=CLIENTS:SASL_PLAINTEXT,BROKERS:SASL_PLAINTEXT
inter.broker.listener.name=BROKERS
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256
sasl.mechanism.inter.broker.protocol=PLAIN
"""
JAAS_FILE = f"""
KafkaServer {{
    {MODULES}.plain.PlainLoginModule required
    username="admin"
    password="hunter2"
    user_admin="hunter2";

    {SCRAM_LOGIN}
}};
clients.KafkaServer {{
    {MODULES}.plain.PlainLoginModule required
    user_alice="hunter3";
}};
Client {{
    org.apache.zookeeper.server.auth.DigestLoginModule required username="kafka" password="hunter4";
}};
"""


def test_logins_of_a_jaas_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sections of a listener come before those of all; lines in the settings before both."""
    path = tmp_path / "jaas.conf"
    path.write_text(JAAS_FILE)
    monkeypatch.setenv("KAFKA_OPTS", f"-Xmx1g -Djava.security.auth.login.config={path}")
    settings = loaded(tmp_path, WITH_JAAS_FILE)
    assert "hunter" not in repr(settings)

    def users(listener: str, settings: ListenerSettings = settings) -> list[str]:
        entry = settings.jaas(listener, "PLAIN")
        return [] if entry is None else list(entry.users)

    assert (users("BROKERS"), users("CLIENTS")) == (["admin"], ["alice"])
    assert settings.jaas("CLIENTS", "SCRAM-SHA-256") is None
    line = f'listener.name.clients.plain.sasl.jaas.config={MODULES}.plain.PlainLoginModule required user_bob="hunter5";'
    assert users("CLIENTS", loaded(tmp_path, f"{WITH_JAAS_FILE}{line}\n")) == ["bob"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "cannot read JAAS file"),
        ("KafkaServer { x", "expected sections"),
        ("Client { };", "needs users of PLAIN"),
    ],
)
def test_a_jaas_file_that_cannot_be_used(tmp_path: Path, text: str | None, reason: str) -> None:
    path = tmp_path / "jaas.conf"
    if text is not None:
        path.write_text(text)
    found = refusals(tmp_path, f"{WITH_JAAS_FILE}java.security.auth.login.config={path}\n")
    assert reason in found[0]


def test_config_providers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """KIP-421: values in files and in the environment; `${...}` of other names stays as it is."""
    secrets = tmp_path / "secrets.properties"
    secrets.write_text("store=hunter2\njaas=" + PLAIN_USERS.replace("\\", "\\\\") + "\n")
    (tmp_path / "key").write_text("hunter3")
    monkeypatch.setenv("TRUST", "hunter4")
    settings = load_broker_settings(
        None,
        [
            "config.providers=files,dir, env",
            "config.providers.files.class=org.apache.kafka.common.config.provider.FileConfigProvider",
            f"config.providers.files.param.allowed.paths={tmp_path}",
            "config.providers.dir.class=org.apache.kafka.common.config.provider.DirectoryConfigProvider",
            "config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider",
            "listeners=SASL_SSL://localhost:9092",
            "security.inter.broker.protocol=SASL_SSL",
            "sasl.enabled.mechanisms=PLAIN",
            "sasl.mechanism.inter.broker.protocol=PLAIN",
            f"listener.name.sasl_ssl.plain.sasl.jaas.config=${{files:{secrets}:jaas}}",
            "ssl.keystore.location=/etc/kafka/x.p12",
            f"ssl.keystore.password=${{files:{secrets}:store}}",
            f"ssl.key.password=${{dir:{tmp_path}:key}}",
            "ssl.truststore.password=${env:TRUST}${vault:x:y}",
        ],
    )
    assert settings.ssl_keystore_password == "hunter2"
    assert settings.ssl_key_password == "hunter3"
    assert settings.ssl_truststore_password == "hunter4${vault:x:y}"
    entry = settings.jaas("SASL_SSL", "PLAIN")
    assert entry is not None
    assert entry.users == {"admin": "hunter2", "alice": "hunter3"}


def test_a_secret_that_is_missing_stops_the_start(tmp_path: Path) -> None:
    text = f"""
config.providers=file
config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider
ssl.keystore.password=${{file:{tmp_path}/none.properties:key}}
"""
    (mistake,) = refusals(tmp_path, text)
    assert f"ssl.keystore.password: cannot read {tmp_path}/none.properties" in mistake
