"""Settings of TLS to ZooKeeper, a part of the broker settings (zookeeper.ssl in Kafka 3.9)."""

from dataclasses import dataclass

from tidelog.config.sasl import SaslSettings
from tidelog.config.setting import ConfigType, setting
from tidelog.config.ssl import TLS_VERSIONS, SslSettings

PASSWORD = ConfigType.PASSWORD


@dataclass(frozen=True, kw_only=True, slots=True, init=False, eq=False, repr=False)
class ZooKeeperTlsSettings(SaslSettings):
    zookeeper_ssl_cipher_suites: tuple[str, ...] = setting(
        default=(), doc="Cipher suites of connections to ZooKeeper, as ssl.cipher.suites."
    )
    zookeeper_ssl_client_enable: bool = setting(default=False, doc="Whether connections to ZooKeeper use TLS.")
    zookeeper_ssl_enabled_protocols: tuple[str, ...] = setting(
        default=TLS_VERSIONS, one_of=TLS_VERSIONS, doc="Versions of TLS to ZooKeeper."
    )
    zookeeper_ssl_endpoint_identification_algorithm: str = setting(
        default="HTTPS",
        one_of=("HTTPS", "https", ""),
        doc="`HTTPS`: the certificate of a ZooKeeper server must be for the host in zookeeper.connect. Empty: any.",
    )
    zookeeper_ssl_keystore_location: str | None = setting(
        default=None, doc="File with the broker's key and certificate for ZooKeeper, in PEM or PKCS#12."
    )
    zookeeper_ssl_keystore_password: str | None = setting(
        default=None, kind=PASSWORD, doc="Password of a PKCS#12 key store, or of the key in a PEM file."
    )
    zookeeper_ssl_keystore_type: str | None = setting(
        default=None, doc="`PEM` or `PKCS12`. A file is recognised by its content."
    )
    zookeeper_ssl_truststore_location: str | None = setting(
        default=None, doc="File with the certificates that ZooKeeper's must be signed by; default: those of the system."
    )
    zookeeper_ssl_truststore_password: str | None = setting(
        default=None, kind=PASSWORD, doc="Password of a PKCS#12 trust store."
    )
    zookeeper_ssl_truststore_type: str | None = setting(
        default=None, doc="`PEM` or `PKCS12`. A file is recognised by its content."
    )

    @property
    def zookeeper_tls(self) -> SslSettings | None:
        """TLS of connections to ZooKeeper; None without it."""
        if not self.zookeeper_ssl_client_enable:
            return None
        return SslSettings(
            ssl_cipher_suites=self.zookeeper_ssl_cipher_suites,
            ssl_enabled_protocols=self.zookeeper_ssl_enabled_protocols,
            ssl_endpoint_identification_algorithm=self.zookeeper_ssl_endpoint_identification_algorithm.lower(),
            ssl_key_password=self.zookeeper_ssl_keystore_password,
            ssl_keystore_location=self.zookeeper_ssl_keystore_location,
            ssl_keystore_password=self.zookeeper_ssl_keystore_password,
            ssl_truststore_location=self.zookeeper_ssl_truststore_location,
            ssl_truststore_password=self.zookeeper_ssl_truststore_password,
        )
