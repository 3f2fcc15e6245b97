"""TLS settings: overrides of listeners, the listener between brokers, what is refused at the start, and secrets."""

import pytest

from tidelog.config.broker import BrokerSettings
from tidelog.config.dynamic_changes import check_dynamic_change
from tidelog.config.loading import SettingsError, load_broker_settings
from tidelog.config.principal_mapping import NoMatchingRule, PrincipalMapper
from tidelog.config.resolution import (
    DynamicBrokerConfigs,
    describe_broker,
    effective_broker_settings,
    validate_dynamic_broker_configs,
)
from tidelog.config.setting import BadValue
from tidelog.errors import InvalidRequest

LISTENERS = "listeners=INSIDE://127.0.0.1:9092,OUTSIDE://127.0.0.1:9093"
SECURED = (
    LISTENERS,
    "listener.security.protocol.map=INSIDE:PLAINTEXT,OUTSIDE:SSL",
    "ssl.keystore.location=/common.pem",
    "listener.name.outside.ssl.keystore.location=/outside.pem",
    "listener.name.outside.ssl.client.auth=required",
)


def mistakes(*given: str) -> list[str]:
    with pytest.raises(SettingsError) as rejected:
        load_broker_settings(None, given)
    return rejected.value.mistakes


def test_a_listener_overrides_common_settings() -> None:
    settings = load_broker_settings(None, SECURED)
    outside, inside = settings.for_listener("OUTSIDE"), settings.for_listener("INSIDE")
    assert (outside.ssl_keystore_location, outside.ssl_client_auth) == ("/outside.pem", "required")
    assert (inside.ssl_keystore_location, inside.ssl_client_auth) == ("/common.pem", "none")
    assert settings.inter_broker_listener == "INSIDE"


@pytest.mark.parametrize(
    ("given", "listener"),
    [
        ((), "PLAINTEXT"),
        ((*SECURED, "inter.broker.listener.name=outside"), "OUTSIDE"),
        (("listeners=SSL://:1", "ssl.keystore.location=x", "security.inter.broker.protocol=SSL"), "SSL"),
    ],
)
def test_the_listener_between_brokers(given: tuple[str, ...], listener: str) -> None:
    assert load_broker_settings(None, given).inter_broker_listener == listener


@pytest.mark.parametrize(
    ("given", "mistake"),
    [
        (("listeners=SSL://:1", "ssl.keystore.location=x"), "inter.broker.listener.name: no listener is unencrypted"),
        (("listeners=SSL://:1", "security.inter.broker.protocol=SSL"), "listener SSL needs a certificate"),
        (("security.inter.broker.protocol=SSL",), "SSL is not among the listeners that this broker advertises"),
        (("security.inter.broker.protocol=SASL_SSL",), "SASL_SSL is not among the listeners"),
        (("listener.name.other.ssl.client.auth=none",), "is for listener OTHER, which is not among the listeners"),
        (("listener.name.plaintext.ssl.client.auth=maybe",), "must be one of: required, requested, none"),
        ((*SECURED, "ssl.principal.mapping.rules=nonsense"), "expected DEFAULT or RULE"),
        ((*SECURED, "ssl.keystore.type=BCFKS"), "key store of type BCFKS"),
    ],
)
def test_what_cannot_work_is_refused_at_the_start(given: tuple[str, ...], mistake: str) -> None:
    assert any(mistake in each for each in mistakes(*given)), mistakes(*given)


def test_secrets_are_not_described() -> None:
    static = load_broker_settings(None, (*SECURED, "ssl.keystore.password=hunter2", "ssl.key.password=hunter2"))
    assert "hunter2" not in repr(static)
    assert "hunter2" not in repr(describe_broker(static, DynamicBrokerConfigs()))


def test_certificates_change_at_run_time_for_one_listener_of_one_broker() -> None:
    static = load_broker_settings(None, SECURED)
    changed = {"listener.name.outside.ssl.keystore.location": "/new.pem"}
    validate_dynamic_broker_configs(changed, for_one_broker=True)
    check_dynamic_change(static, changed, for_one_broker=True)
    settings = effective_broker_settings(static, DynamicBrokerConfigs(per_broker=changed))
    assert settings.for_listener("OUTSIDE").ssl_keystore_location == "/new.pem"
    assert settings.for_listener("INSIDE").ssl_keystore_location == "/common.pem"


@pytest.mark.parametrize(
    ("name", "for_one_broker", "reason"),
    [
        ("ssl.keystore.location", True, "only per-listener using the listener prefix"),
        ("listener.name.outside.ssl.keystore.location", False, "broker id must be specified"),
        ("listener.name.outside.ssl.keystore.password", True, "Passwords and keys cannot be stored"),
        ("listener.name.outside.ssl.client.auth", True, "Cannot update these configs dynamically"),
    ],
)
def test_other_changes_at_run_time_are_refused(name: str, for_one_broker: bool, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        validate_dynamic_broker_configs({name: "x"}, for_one_broker=for_one_broker)


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        ("DEFAULT", "CN=Alice,OU=Users,O=Tide"),
        ("", "CN=Alice,OU=Users,O=Tide"),
        ("RULE:^CN=(.*?),OU=Users.*$/$1/", "Alice"),
        ("RULE:^CN=(.*?),OU=(.*?),O=(.*?)$/$1@$2/L", "alice@users"),
        ("RULE:^CN=Bob$/bob/, RULE:CN=(\\w+),.*/$1/U, DEFAULT", "ALICE"),
        ("RULE:^CN=Bob$/bob/,DEFAULT", "CN=Alice,OU=Users,O=Tide"),
    ],
)
def test_principal_mapping_rules(rules: str, name: str) -> None:
    assert PrincipalMapper(rules).name_of("CN=Alice,OU=Users,O=Tide") == name


def test_whom_no_rule_names_is_not_let_in() -> None:
    with pytest.raises(NoMatchingRule):
        PrincipalMapper("RULE:^CN=Bob$/bob/").name_of("CN=Alice")


@pytest.mark.parametrize("rules", ["default", "RULE:(/x/", "RULE:a/b", "RULE:a/b/X", "DEFAULT DEFAULT"])
def test_a_rule_that_cannot_be_read_is_refused(rules: str) -> None:
    with pytest.raises(BadValue):
        PrincipalMapper(rules)


def test_settings_without_tls_are_as_before() -> None:
    assert BrokerSettings().for_listener("PLAINTEXT") == BrokerSettings()
