"""The login to ZooKeeper as settings, a JAAS file and KAFKA_OPTS give it, and mistakes that stop the start."""

from pathlib import Path

import pytest

from tidelog.config.broker import BrokerSettings
from tidelog.config.loading import SettingsError, load_broker_settings

MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"
LOGIN = f'{MODULE} required username="kafka" password="hunter2";'
CONNECT = "zookeeper.connect=zk:2181"


@pytest.fixture
def jaas_file(tmp_path: Path) -> Path:
    file = tmp_path / "jaas.conf"
    file.write_text(f'Client {{ {LOGIN} }};\nOther {{ {MODULE} required username="other" password="x"; }};')
    return file


def mistakes(*given: str) -> list[str]:
    with pytest.raises(SettingsError) as refused:
        load_broker_settings(None, [CONNECT, *given])
    assert "hunter2" not in str(refused.value)
    return refused.value.mistakes


def test_without_anything_there_is_no_login() -> None:
    assert load_broker_settings(None, [CONNECT]).zookeeper_user is None


def test_the_login_is_a_setting() -> None:
    settings = load_broker_settings(None, [CONNECT, f"zookeeper.sasl.jaas.config={LOGIN}", "zookeeper.set.acl=true"])
    assert settings.zookeeper_user == ("kafka", "hunter2")
    assert settings.zookeeper_set_acl
    assert "hunter2" not in repr(settings)


def test_the_login_is_a_section_of_the_jaas_file(jaas_file: Path) -> None:
    given = [CONNECT, f"java.security.auth.login.config={jaas_file}"]
    assert load_broker_settings(None, given).zookeeper_user == ("kafka", "hunter2")
    assert load_broker_settings(None, [*given, "zookeeper.sasl.clientconfig=Other"]).zookeeper_user == ("other", "x")
    assert load_broker_settings(None, [*given, "zookeeper.sasl.clientconfig=None"]).zookeeper_user is None


def test_a_password_that_others_can_read_is_a_warning(jaas_file: Path, caplog: pytest.LogCaptureFixture) -> None:
    given = [CONNECT, f"java.security.auth.login.config={jaas_file}"]
    for mode, lines in ((0o600, 0), (0o640, 1)):
        jaas_file.chmod(mode)
        load_broker_settings(None, given)
        assert len([each for each in caplog.messages if "can be read by others" in each]) == lines


def test_the_jaas_file_is_named_in_kafka_opts(jaas_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_OPTS", f"-Xmx1g '-Djava.security.auth.login.config={jaas_file}' -Dfoo=bar")
    assert load_broker_settings(None, [CONNECT]).zookeeper_user == ("kafka", "hunter2")
    other = jaas_file.with_name("other.conf")
    other.write_text("Client { " + LOGIN.replace("kafka", "carol") + " };")
    settings = load_broker_settings(None, [CONNECT, f"java.security.auth.login.config={other}"])
    assert settings.zookeeper_user == ("carol", "hunter2")


@pytest.mark.parametrize("options", ["-Djava.security.auth.login.config=/nowhere", "-Dx='", ""])
def test_a_broker_without_zookeeper_does_not_mind(options: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_OPTS", options)
    assert load_broker_settings(None).zookeeper_connect is None


def test_what_is_not_supported_stops_the_start_with_a_sentence(jaas_file: Path) -> None:
    kerberos = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true;"
    (mistake,) = mistakes(f"zookeeper.sasl.jaas.config={kerberos}")
    assert mistake.startswith("--set: zookeeper.sasl.jaas.config: Krb5LoginModule is not supported for ZooKeeper; use")
    (mistake,) = mistakes("java.security.auth.login.config=/nowhere")
    assert mistake.endswith("cannot read JAAS file /nowhere: No such file or directory")
    jaas_file.write_text(LOGIN)
    (mistake,) = mistakes(f"java.security.auth.login.config={jaas_file}")
    assert mistake.endswith(f"JAAS file {jaas_file}: expected sections NAME {{ ... }};")
    (mistake,) = mistakes(f'zookeeper.sasl.jaas.config={MODULE} required password="hunter2";')
    assert mistake.endswith('DigestLoginModule needs username="..." password="..."')


def test_acls_need_somebody_who_owns_the_nodes() -> None:
    (mistake,) = mistakes("zookeeper.set.acl=true")
    assert mistake.startswith("--set: zookeeper.set.acl: zookeeper.set.acl is true, but nobody would own the nodes")
    certificate = ["zookeeper.ssl.client.enable=true", "zookeeper.ssl.keystore.location=/etc/key.pem"]
    assert load_broker_settings(None, [CONNECT, "zookeeper.set.acl=true", *certificate]).zookeeper_set_acl


def test_the_password_is_no_part_of_what_is_shown() -> None:
    assert "hunter2" not in repr(BrokerSettings(zookeeper_sasl_jaas_config=LOGIN))
