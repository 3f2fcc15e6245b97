import logging
from pathlib import Path

import pytest

from tidelog.config.broker import BrokerSettings
from tidelog.config.consistency import _BOUNDS_AT_START
from tidelog.config.listeners import Endpoint
from tidelog.config.loading import SettingsError, load_broker_settings
from tidelog.config.setting import ConfigType, settings_of


def mistakes(*overrides: str) -> list[str]:
    with pytest.raises(SettingsError) as raised:
        load_broker_settings(None, overrides)
    assert str(raised.value) == "\n".join(raised.value.mistakes)
    return raised.value.mistakes


def test_without_file_and_flags_the_defaults_count() -> None:
    assert load_broker_settings(None) == BrokerSettings()


def test_flags_win_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=3\nlog.dirs=/a, /b\n")
    settings = load_broker_settings(str(file), ["num.partitions=5"])
    assert settings.num_partitions == 5
    assert settings.log_directories == ("/a", "/b")
    assert settings.originals == {"num.partitions": "5", "log.dirs": "/a, /b"}


def test_all_mistakes_of_a_file_and_the_flags_are_listed_at_once_with_their_places(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("# comment\nlog.retention.hour=5\nnum.partitions=none\nzzz=1\n")
    with pytest.raises(SettingsError) as raised:
        load_broker_settings(str(file), ["log.segment.bytes=5", "oops", "broker.id=1", "node.id=2"])
    assert raised.value.mistakes == [
        "--set oops: expected key=value",
        f"{file}:2: log.retention.hour: unknown setting; did you mean log.retention.hours?",
        f"{file}:4: zzz: unknown setting",
        f"{file}:3: num.partitions=none: not a number of type INT",
        "--set: log.segment.bytes=5: value must be at least 1048576",
        "--set: node.id: broker.id is 1, but node.id, which means the same, is 2",
    ]


def test_a_missing_file_is_one_clear_sentence(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"none.properties: No such file or directory"):
        load_broker_settings(str(tmp_path / "none.properties"))


def test_a_file_that_is_not_text_is_one_clear_sentence(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SettingsError, match="not a text file in UTF-8"):
        load_broker_settings(str(file))


def test_a_setting_that_only_kafka_knows_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        load_broker_settings(None, ["num.io.threads=8", "zookeeper.ssl.crl.enable=false", "ssl.protocol=TLSv1.3"])
    assert [record.getMessage() for record in caplog.records] == [
        "Kafka setting has no effect place=--set name=num.io.threads",
        "Kafka setting has no effect place=--set name=zookeeper.ssl.crl.enable",
        "Kafka setting has no effect place=--set name=ssl.protocol",
    ]


@pytest.mark.parametrize(
    "given",
    [
        "ssl.engine.factory.class=x.Factory",
        "ssl.provider=BC",
        "sasl.login.class=x.Login",
        "listener.name.plaintext.ssl.engine.factory.class=x.Factory",
        "listener.name.outside.gssapi.sasl.jaas.config=secret",
        "principal.builder.class=x.Builder",
        "delegation.token.secret.key=secret",
        "zookeeper.ssl.crl.enable=true",
        "create.topic.policy.class.name=x.Policy",
    ],
)
def test_a_setting_that_would_guard_a_broker_is_not_silently_left_out(given: str) -> None:
    name = given.partition("=")[0]
    assert mistakes(given) == [f"--set: {name}: not supported; without it the broker would be unprotected"]
    assert "secret" not in mistakes(given)[0].replace(name, "")


@pytest.mark.parametrize(
    "name",
    ["kafka.security.authorizer.AclAuthorizer", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"],
)
def test_the_authorizer_has_the_names_of_kafka_classes(name: str) -> None:
    settings = load_broker_settings(None, [f"authorizer.class.name={name}", "super.users=User:admin;User:CN=a,O=b"])
    assert (settings.authorizer_class_name, settings.super_users) == (name, "User:admin;User:CN=a,O=b")
    (mistake,) = mistakes("authorizer.class.name=com.example.Plugin")
    assert "there are no plugins" in mistake
    (mistake,) = mistakes("super.users=admin")
    assert "User:alice" in mistake


def test_logins_that_no_listener_asks_for_are_a_mistake() -> None:
    expected = "no listener has SASL, and everybody could connect without a login"
    for given in ("sasl.enabled.mechanisms=SCRAM-SHA-512", "connections.max.reauth.ms=1000"):
        assert [each.endswith(expected) for each in mistakes(given)] == [True]


def test_a_listener_without_a_host_is_on_the_loopback_interface() -> None:
    settings = load_broker_settings(None)
    assert (
        settings.endpoints == settings.advertised_endpoints == (Endpoint("PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT"),)
    )
    assert settings.listeners_without_host == ("PLAINTEXT",)


def test_a_listener_on_every_interface_advertises_the_name_of_the_machine() -> None:
    settings = load_broker_settings(None, ["listeners=PLAINTEXT://0.0.0.0:9092"])
    assert settings.endpoints == (Endpoint("PLAINTEXT", "0.0.0.0", 9092, "PLAINTEXT"),)
    assert settings.advertised_endpoints == (Endpoint("PLAINTEXT", "", 9092, "PLAINTEXT"),)
    assert settings.listeners_without_host == ()


def test_an_address_that_others_cannot_reach_is_not_advertised() -> None:
    (mistake,) = mistakes("listeners=PLAINTEXT://:9092", "advertised.listeners=PLAINTEXT://tide1:9092")
    assert mistake.endswith("for every interface set listeners=PLAINTEXT://0.0.0.0:PORT")
    assert load_broker_settings(None, ["advertised.listeners=PLAINTEXT://localhost:19092"])


def test_the_address_for_metrics() -> None:
    assert load_broker_settings(None).metrics_address is None
    assert load_broker_settings(None, ["metrics.listener="]).metrics_address is None
    assert load_broker_settings(None, ["metrics.listener=:9404"]).metrics_address == ("127.0.0.1", 9404)
    assert load_broker_settings(None, ["metrics.listener=0.0.0.0:9404"]).metrics_address == ("0.0.0.0", 9404)
    assert load_broker_settings(None, ["metrics.listener=[::1]:0"]).metrics_address == ("::1", 0)


def test_node_id_and_broker_id_are_one() -> None:
    settings = load_broker_settings(None, ["node.id=7"])
    assert (settings.broker_id, settings.node_id, settings.configured_broker_id) == (7, 7, 7)
    assert load_broker_settings(None).configured_broker_id is None


@pytest.mark.parametrize(
    ("override", "mistake"),
    [
        ("log.retention.minutes=0", "log.retention.ms: must be unlimited (-1) or at least 1"),
        ("log.roll.ms=0", "--set: log.roll.ms: must be at least 1"),
        ("log.roll.jitter.ms=-1", "--set: log.roll.jitter.ms: must be at least 0"),
        ("log.dir=", "log.dirs: at least one log directory must be given"),
        ("listeners=", "--set: listeners: at least one listener must be given"),
        ("listeners=9092", "--set: listeners: expected NAME://host:port, found '9092'"),
        ("listeners=PLAINTEXT://a:99999", "--set: listeners: expected NAME://host:port, found 'PLAINTEXT://a:99999'"),
        ("listeners=X://a:1", "--set: listeners: listener.security.protocol.map has no protocol for listener X"),
        (
            "advertised.listeners=PLAINTEXT://0.0.0.0:1",
            "--set: advertised.listeners: clients cannot connect to 0.0.0.0; use the name or address of the machine",
        ),
        (
            "inter.broker.listener.name=INSIDE",
            "--set: inter.broker.listener.name: INSIDE is not among the listeners that this broker advertises",
        ),
        (
            "control.plane.listener.name=INSIDE",
            "--set: control.plane.listener.name: INSIDE is not among the listeners that this broker advertises",
        ),
        (
            "control.plane.listener.name=plaintext",
            "--set: control.plane.listener.name: PLAINTEXT is the listener between brokers: name another one",
        ),
        ("metrics.listener=9404", "--set: metrics.listener: expected host:port, found '9404'"),
        ("metrics.listener=a:99999", "--set: metrics.listener: expected host:port, found 'a:99999'"),
        (
            "queued.max.request.bytes=5",
            "--set: queued.max.request.bytes: must be at least socket.request.max.bytes,"
            " or the largest request could never be read",
        ),
        (
            "broker.heartbeat.interval.ms=9000",
            "--set: broker.heartbeat.interval.ms: must be less than broker.session.timeout.ms,"
            " or the broker would lose its session",
        ),
    ],
)
def test_a_contradiction_is_a_mistake(override: str, mistake: str) -> None:
    assert mistakes(override) == [mistake]


def test_listeners_become_endpoints() -> None:
    settings = load_broker_settings(
        None,
        [
            "listeners=INSIDE://0.0.0.0:9092,PLAINTEXT://[::1]:9093",
            "listener.security.protocol.map=INSIDE:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "advertised.listeners=INSIDE://broker.example:19092",
        ],
    )
    assert settings.endpoints == (
        Endpoint("INSIDE", "0.0.0.0", 9092, "PLAINTEXT"),
        Endpoint("PLAINTEXT", "::1", 9093, "PLAINTEXT"),
    )
    assert settings.advertised_endpoints == (Endpoint("INSIDE", "broker.example", 19092, "PLAINTEXT"),)
    assert str(settings.endpoints[1]) == "PLAINTEXT://[::1]:9093"


def test_the_listener_of_a_kraft_controller_is_left_out() -> None:
    settings = load_broker_settings(
        None, ["controller.listener.names=CONTROLLER", "listeners=PLAINTEXT://:9092,CONTROLLER://:9093"]
    )
    assert settings.listeners == ("PLAINTEXT://:9092",)


def test_the_coordination_store_stands_in_the_first_log_directory_unless_named() -> None:
    assert BrokerSettings(log_dirs=("/a", "/b")).coordination_store_path == "/a/coordination.sqlite"
    assert BrokerSettings(coordination_store="/c.sqlite").coordination_store_path == "/c.sqlite"


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("max.connections=0", "nobody could connect"),
        ("max.connections.per.ip=0", "only if max.connections.per.ip.overrides is set"),
        ("num.replica.fetchers=100000", "must be at most 1000"),
        ("connections.max.idle.ms=0", "every connection would be closed"),
        ("offset.metadata.max.bytes=-1", "no offset could be committed"),
        ("group.initial.rebalance.delay.ms=-1", "must be at least 0"),
        ("group.min.session.timeout.ms=0", "must be at least 1"),
        ("leader.imbalance.per.broker.percentage=-1", "must be at least 0"),
        ("replica.fetch.wait.max.ms=-1", "must be at least 0"),
        ("replica.fetch.wait.max.ms=30001", "should always be at least replica.fetch.wait.max.ms"),
        ("replica.lag.time.max.ms=499", "should be at most replica.lag.time.max.ms"),
        ("replica.fetch.min.bytes=-1", "must be at least 0"),
        ("log.flush.scheduler.interval.ms=0", "the broker would do nothing else"),
        ("log.flush.interval.ms=-1", "must be at least 0"),
        ("log.cleaner.dedupe.buffer.size=0", "must be more than 1048576"),
        ("log.roll.ms=0", "must be at least 1"),
        ("log.retention.ms=0", "must be unlimited"),
        ("controlled.shutdown.max.retries=-1", "must be at least 0"),
        ("controlled.shutdown.retry.backoff.ms=-1", "must be at least 0"),
        ("zookeeper.session.timeout.ms=0", "must be at least 1"),
        ("zookeeper.connection.timeout.ms=0", "must be at least 1"),
    ],
)
def test_a_broker_that_would_shut_everybody_out_does_not_start(given: str, reason: str) -> None:
    assert any(reason in mistake for mistake in mistakes(given))


def test_every_number_is_bounded_from_below_or_means_something_below_zero() -> None:
    """A setting that is new and has no bounds in Kafka gets them here, or a reason why it needs none."""
    free = {
        "connections.max.idle.ms",  # negative: no limit
        "connections.max.reauth.ms",  # the same
        "group.max.session.timeout.ms",  # at least group.min.session.timeout.ms
        "log.cleaner.dedupe.buffer.size",  # more than 1 MiB
        "log.cleaner.io.buffer.load.factor",  # has no effect
        "log.cleaner.io.max.bytes.per.second",  # more than 0
        "log.retention.bytes",  # negative: no limit
        "log.retention.hours",  # the same
        "log.retention.minutes",
        "log.retention.ms",
        "log.roll.jitter.ms",  # checked with its synonym
        "log.roll.ms",
        "queued.max.request.bytes",  # negative: no limit; at least socket.request.max.bytes
        "socket.receive.buffer.bytes",  # not above 0: left to the operating system
        "socket.send.buffer.bytes",
    }
    at_start = {attribute.replace("_", ".") for attribute, *_ in _BOUNDS_AT_START}
    numbers = {ConfigType.SHORT, ConfigType.INT, ConfigType.LONG, ConfigType.DOUBLE}
    declared = settings_of(BrokerSettings).values()
    unbounded = {each.name for each in declared if each.type in numbers and each.at_least is None}
    assert unbounded - at_start == free


def test_only_the_replica_selectors_of_kafka_are_accepted() -> None:
    package = "org.apache.kafka.common.replica"
    for name in ("LeaderSelector", "RackAwareReplicaSelector"):
        settings = load_broker_settings(None, [f"replica.selector.class={package}.{name}"])
        assert settings.replica_selector_class == f"{package}.{name}"
    with pytest.raises(
        SettingsError, match=r"replica\.selector\.class=com\.example\.Nearest: string must be one of: org\.apache"
    ):
        load_broker_settings(None, ["replica.selector.class=com.example.Nearest"])
