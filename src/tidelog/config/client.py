"""Security settings of clients, with Kafka's names (client.properties), and those of librdkafka."""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from tidelog.config.config_providers import PLACEHOLDER, UnresolvedSecret, has_placeholder, resolve
from tidelog.config.jaas import JaasEntry, parse_jaas
from tidelog.config.listeners import SUPPORTED_PROTOCOLS, TLS_PROTOCOLS
from tidelog.config.nearest import SETTING_CUTOFF, did_you_mean
from tidelog.config.properties import parse_properties
from tidelog.config.sasl import JAAS_CONFIG, MECHANISMS, MODULES, OAUTHBEARER, SASL_PROTOCOLS
from tidelog.config.security import guards
from tidelog.config.setting import BadValue, settings_of
from tidelog.config.ssl import SslSettings, ssl_setting_names

_SETTING_NAME = re.compile(r"acks|debug|retries|[a-z0-9]+(\.[a-z0-9_-]+)+")
CLIENT_CONFIG_VARIABLE = "TIDELOG_CLIENT_CONFIG"
PROTOCOL, MECHANISM = "security.protocol", "sasl.mechanism"
USERNAME, PASSWORD = "sasl.username", "sasl.password"
TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"
CLIENT_ID = "sasl.oauthbearer.client.credentials.client.id"
CLIENT_SECRET = "sasl.oauthbearer.client.credentials.client.secret"
SCOPE = "sasl.oauthbearer.scope"
_SASL_NAMES = (MECHANISM, JAAS_CONFIG, USERNAME, PASSWORD, TOKEN_URL, CLIENT_ID, CLIENT_SECRET, SCOPE)
_ALIASES = {"sasl.mechanisms": MECHANISM, "ssl.ca.location": "ssl.truststore.location"}
_PEM_FILES = {"ssl.certificate.location": "ssl.keystore.certificate.chain", "ssl.key.location": "ssl.keystore.key"}
"""Files of librdkafka, which become settings with their content."""
WITHOUT_EFFECT = frozenset(
    {
        "sasl.client.callback.handler.class",
        "sasl.login.callback.handler.class",
        "sasl.login.class",
        "security.providers",
        "ssl.keymanager.algorithm",
        "ssl.protocol",
        "ssl.trustmanager.algorithm",
    }
)
"""Accepted, for they protect nothing here; also what a broker accepts without effect (`config/security.py`)."""
SECRETS = (JAAS_CONFIG, PASSWORD, CLIENT_SECRET)
_PUBLIC_OPTIONS = ("username", "clientId", "scope", "unsecuredLoginStringClaim_sub")
"""Options of login modules that are no secrets."""


class BadClientSettings(ValueError):
    """One sentence for the user, without a secret in it."""


class ResolvedSecurity(NamedTuple):
    """Settings with their secrets. Made where a connection is opened, and never sent or stored."""

    protocol: str
    ssl: SslSettings
    mechanism: str = ""
    options: Mapping[str, str] = {}
    token_url: str | None = None

    def __repr__(self) -> str:
        return f"ResolvedSecurity({self.protocol}, {self.mechanism})"

    @property
    def has_tls(self) -> bool:
        return self.protocol in TLS_PROTOCOLS

    @property
    def has_login(self) -> bool:
        return self.protocol in SASL_PROTOCOLS


class ClientSecurity(NamedTuple):
    """Security settings as they were given: placeholders of secrets are not resolved."""

    settings: tuple[tuple[str, str], ...] = ()

    def __repr__(self) -> str:
        return f"ClientSecurity({', '.join(name for name, _ in self.settings)})"

    def literal_secrets(self) -> list[str]:
        """Names of settings with a secret in them that is not a placeholder."""
        return [name for name, value in self.settings if _has_literal_secret(name, value)]

    def resolve(self) -> ResolvedSecurity:
        """Raises BadClientSettings."""
        try:
            given = {name: value if name == JAAS_CONFIG else resolve(value) for name, value in self.settings}
            ssl = _ssl_settings(given)
            protocol = _protocol(given)
            if protocol not in SASL_PROTOCOLS:
                return ResolvedSecurity(protocol, ssl)
            mechanism = given.get(MECHANISM, "GSSAPI").upper()
            options = _login_options(mechanism, given)
            return ResolvedSecurity(protocol, ssl, mechanism, options, given.get(TOKEN_URL))
        except (BadValue, UnresolvedSecret) as error:
            raise BadClientSettings(str(error)) from None


NO_SECURITY = ClientSecurity()


def client_security(properties: Mapping[str, str]) -> ClientSecurity:
    """The security settings among those of a client; others are left out. Raises BadClientSettings."""
    known = [*_SASL_NAMES, PROTOCOL, *ssl_setting_names(), *_ALIASES, *_PEM_FILES]
    found = []
    for name, value in properties.items():
        if not name.startswith(("ssl.", "sasl.", "security.")) or name in WITHOUT_EFFECT:
            continue
        if name not in known:
            if value and not guards(name, value):
                continue
            raise BadClientSettings(f"{name} is not supported{did_you_mean(name, known, cutoff=SETTING_CUTOFF)}")
        found.append((_ALIASES.get(name, name), value))
    security = ClientSecurity(tuple(sorted(found)))
    _protocol(dict(security.settings))
    return security


def load_client_properties(path: str) -> dict[str, str]:
    """Settings of a properties file, those of other clients included. Raises BadClientSettings."""
    try:
        with open(path, encoding="utf-8") as file:
            found = {each.key: each.value for each in parse_properties(file.read())}
    except OSError as error:
        raise BadClientSettings(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadClientSettings(f"{path} is not a text file in UTF-8") from error
    if found and not any(map(_SETTING_NAME.fullmatch, found)):
        raise BadClientSettings(f"{path} is not a client.properties file: no line has the form of a setting")
    return found


def load_client_security(path: str) -> ClientSecurity:
    """From a properties file. Raises BadClientSettings."""
    properties = load_client_properties(path)
    try:
        return client_security(properties)
    except BadClientSettings as error:
        raise BadClientSettings(f"{path}: {error}") from None


def default_client_security() -> ClientSecurity:
    """From the file that the environment names, else none. Raises BadClientSettings."""
    path = os.environ.get(CLIENT_CONFIG_VARIABLE)
    return load_client_security(path) if path else NO_SECURITY


def _protocol(given: Mapping[str, str]) -> str:
    protocol = given.get(PROTOCOL, "PLAINTEXT").strip().upper()
    if protocol not in SUPPORTED_PROTOCOLS:
        raise BadClientSettings(f"{PROTOCOL} must be one of {', '.join(SUPPORTED_PROTOCOLS)}")
    return protocol


def _ssl_settings(given: Mapping[str, str]) -> SslSettings:
    declared, values = settings_of(SslSettings), dict[str, Any]()
    for name, text in given.items():
        if name in _PEM_FILES:
            values[declared[_PEM_FILES[name]].attribute] = _content(text)
        elif name in declared and name != PROTOCOL:
            values[declared[name].attribute] = declared[name].parse(text)
    return replace(SslSettings(), **values)


def _content(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        raise BadValue(f"cannot read {path}: {error.strerror}") from error


def _login_options(mechanism: str, given: Mapping[str, str]) -> dict[str, str]:
    if mechanism not in MODULES:
        raise BadValue(f"{MECHANISM} is {mechanism}; supported: {', '.join(MECHANISMS)}")
    options = _jaas_options(mechanism, given)
    for name, option in ((USERNAME, "username"), (PASSWORD, "password"), (CLIENT_ID, "clientId")):
        if name in given:
            options[option] = given[name]
    for name, option in ((CLIENT_SECRET, "clientSecret"), (SCOPE, "scope")):
        if name in given:
            options[option] = given[name]
    is_complete = "username" in options and "password" in options
    if mechanism == OAUTHBEARER:
        is_complete = TOKEN_URL in given or "unsecuredLoginStringClaim_sub" in options
    if not is_complete:
        raise BadValue(
            f"{mechanism} needs {TOKEN_URL if mechanism == OAUTHBEARER else f'{JAAS_CONFIG} with a username'}"
        )
    return options


def _jaas_options(mechanism: str, given: Mapping[str, str]) -> dict[str, str]:
    """Placeholders are resolved after parsing: a password may contain any sign."""
    if JAAS_CONFIG not in given:
        return {}
    text = given[JAAS_CONFIG]
    entry = _parsed(resolve(text) if PLACEHOLDER.fullmatch(text.strip()) else text)
    if entry.module_name != MODULES[mechanism]:
        raise BadValue(f"{JAAS_CONFIG} needs {MODULES[mechanism]} for {mechanism}, not {entry.module_name}")
    return {name: resolve(value) for name, value in entry.options.items()}


def _parsed(text: str) -> JaasEntry:
    try:
        return parse_jaas(text)
    except BadValue as error:
        raise BadValue(f"{JAAS_CONFIG}: {error}") from None


def _has_literal_secret(name: str, value: str) -> bool:
    declared = settings_of(SslSettings).get(name)
    is_certificate = name in ("ssl.keystore.certificate.chain", "ssl.truststore.certificates")
    if name not in SECRETS and (declared is None or not declared.is_sensitive or is_certificate):
        return False
    if name != JAAS_CONFIG or PLACEHOLDER.fullmatch(value.strip()):
        return not has_placeholder(value)
    try:
        options: Iterable[tuple[str, str]] = parse_jaas(value).options.items()
    except BadValue:
        return True
    return any(option not in _PUBLIC_OPTIONS and not has_placeholder(text) for option, text in options)
