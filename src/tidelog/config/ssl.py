"""TLS settings of listeners and clients, with Kafka's names (SslConfigs)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from tidelog.config.setting import BadValue, ConfigType, UpdateMode, setting, settings_of
from tidelog.config.thread_pools import ThreadPoolSettings

S = TypeVar("S", bound="SslSettings")

STORE_TYPES = ("JKS", "PKCS12", "PEM")
TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")
PASSWORD = ConfigType.PASSWORD
PER_BROKER = UpdateMode.PER_BROKER
CONNECTION_LIMITS = ("max.connection.creation.rate", "max.connections")
"""Not of TLS, but also set for single listeners."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False, repr=False)
class SslSettings(ThreadPoolSettings):
    """Part of the broker settings. `listener.name.<listener>.ssl...` overrides a value for one listener."""

    security_inter_broker_protocol: str = setting(
        default="PLAINTEXT",
        one_of=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        doc="The security protocol between brokers, if inter.broker.listener.name is not set: brokers then connect to"
        " the listener of this name.",
    )
    ssl_cipher_suites: tuple[str, ...] = setting(
        default=(),
        update=PER_BROKER,
        doc="Cipher suites of TLS 1.2, by their IANA names; default: those of OpenSSL. Without a suite of TLS 1.3 in"
        " the list, TLS 1.3 is not used; with one, all of its suites are.",
    )
    ssl_client_auth: str = setting(
        default="none",
        one_of=("required", "requested", "none"),
        doc="Whether clients must or may show a certificate, which names their principal.",
    )
    ssl_enabled_protocols: tuple[str, ...] = setting(
        default=TLS_VERSIONS, one_of=TLS_VERSIONS, update=PER_BROKER, doc="Versions of TLS that are accepted."
    )
    ssl_endpoint_identification_algorithm: str = setting(
        default="https",
        one_of=("https", "HTTPS", ""),
        update=PER_BROKER,
        doc="`https`: a broker that connects to another checks that the certificate is for the host it connects to."
        " Empty: it does not.",
    )
    ssl_key_password: str | None = setting(
        default=None, kind=PASSWORD, update=PER_BROKER, doc="Password of the private key."
    )
    ssl_keystore_certificate_chain: str | None = setting(
        default=None, kind=PASSWORD, update=PER_BROKER, doc="Certificate chain in PEM, instead of a file."
    )
    ssl_keystore_key: str | None = setting(
        default=None, kind=PASSWORD, update=PER_BROKER, doc="Private key in PEM (PKCS#8), instead of a file."
    )
    ssl_keystore_location: str | None = setting(
        default=None,
        update=PER_BROKER,
        doc="File with the private key and the certificate chain, in PEM or PKCS#12. When the file changes, new"
        " connections use the new certificate.",
    )
    ssl_keystore_password: str | None = setting(
        default=None, kind=PASSWORD, update=PER_BROKER, doc="Password of a PKCS#12 key store."
    )
    ssl_keystore_type: str = setting(
        default="JKS",
        update=PER_BROKER,
        doc="`PEM` or `PKCS12`. A file is recognised by its content; JKS must be converted with keytool.",
    )
    ssl_principal_mapping_rules: str = setting(
        default="DEFAULT",
        doc="Rules that make a principal's name of the distinguished name in a client's certificate.",
    )
    ssl_truststore_certificates: str | None = setting(
        default=None, kind=PASSWORD, update=PER_BROKER, doc="Trusted certificates in PEM, instead of a file."
    )
    ssl_truststore_location: str | None = setting(
        default=None,
        update=PER_BROKER,
        doc="File with trusted certificates, in PEM or PKCS#12; default: those of the system.",
    )
    ssl_truststore_password: str | None = setting(
        default=None, kind=PASSWORD, update=PER_BROKER, doc="Password of a PKCS#12 trust store."
    )
    ssl_truststore_type: str = setting(
        default="JKS", update=PER_BROKER, doc="`PEM` or `PKCS12`, as for ssl.keystore.type."
    )

    @property
    def has_key(self) -> bool:
        return bool(self.ssl_keystore_location or self.ssl_keystore_key)


def ssl_setting_names() -> frozenset[str]:
    return frozenset(name for name in settings_of(SslSettings) if name.startswith("ssl."))


def split_listener_name(name: str) -> tuple[str, str] | None:
    """Listener and setting in `listener.name.<listener>.ssl...`, or its limits of connections; None for others."""
    if not name.startswith("listener.name."):
        return None
    for limit in CONNECTION_LIMITS:
        if name.endswith(f".{limit}"):
            return name.removeprefix("listener.name.").removesuffix(f".{limit}").upper(), limit
    listener, dot, rest = name.removeprefix("listener.name.").partition(".ssl.")
    setting_name = f"ssl.{rest}"
    if not dot or not listener or setting_name not in ssl_setting_names():
        return None
    return listener.upper(), setting_name


def with_overrides(settings: S, listener: str, overrides: Mapping[str, str]) -> S:
    """The settings of one listener. Raises BadValue."""
    declared, values = settings_of(SslSettings), dict[str, Any]()
    for name, text in overrides.items():
        found = split_listener_name(name)
        if found is not None and found[0] == listener.upper():
            values[declared[found[1]].attribute] = declared[found[1]].parse(text)
    return replace(settings, **values) if values else settings


def check_key(settings: SslSettings) -> None:
    """What an SSL listener needs. Raises BadValue."""
    if not settings.has_key:
        raise BadValue("needs a certificate: set ssl.keystore.location, or ssl.keystore.key in PEM")
    if bool(settings.ssl_keystore_key) != bool(settings.ssl_keystore_certificate_chain):
        raise BadValue("needs both ssl.keystore.key and ssl.keystore.certificate.chain")
    if settings.ssl_keystore_location and settings.ssl_keystore_key:
        raise BadValue("has both ssl.keystore.location and ssl.keystore.key; set one of them")
    for found in (settings.ssl_keystore_type, settings.ssl_truststore_type):
        if found.upper() not in STORE_TYPES:
            raise BadValue(f"has a key store of type {found}; supported: PEM, PKCS12")
