"""Settings of the login to ZooKeeper and of the rights on its nodes, a part of the broker settings.

Kafka takes the login from its Java machine: a JAAS file named by a system property, which `KAFKA_OPTS` passes on.
"""

import logging
import os
import shlex
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from tidelog.config.jaas import DIGEST_MODULE, JaasEntry, parse_jaas, parse_jaas_file
from tidelog.config.setting import BadValue, ConfigType, setting
from tidelog.config.zookeeper_tls import ZooKeeperTlsSettings

logger = logging.getLogger(__name__)

KAFKA_OPTS = "KAFKA_OPTS"
JAAS_FILE = "java.security.auth.login.config"
SECTION = "zookeeper.sasl.clientconfig"
SYSTEM_PROPERTIES = (JAAS_FILE, SECTION)

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True, init=False, eq=False, repr=False)
class ZooKeeperLoginSettings(ZooKeeperTlsSettings):
    java_security_auth_login_config: str | None = setting(
        default=None,
        doc="JAAS file, as Java's system property of this name, which is also taken from `KAFKA_OPTS`. Its section"
        " `Client` is the login to ZooKeeper. `<listener>.KafkaServer` and `KafkaServer` have the login modules of"
        " mechanisms for which no `listener.name.<listener>.<mechanism>.sasl.jaas.config` is set.",
    )
    zookeeper_sasl_clientconfig: str = setting(
        default="Client", doc="Section of the JAAS file with the login to ZooKeeper, as Java's system property."
    )
    zookeeper_sasl_jaas_config: str | None = setting(
        default=None,
        kind=ConfigType.PASSWORD,
        doc="Login to ZooKeeper without a JAAS file: `org.apache.zookeeper.server.auth.DigestLoginModule required"
        ' username="..." password="...";`. Not one of Kafka\'s.',
    )
    zookeeper_set_acl: bool = setting(
        default=False,
        doc="Whether nodes in ZooKeeper can be changed only by the user of the login, as Kafka sets their ACLs.",
    )

    @property
    def zookeeper_user(self) -> tuple[str, str] | None:
        """User name and password of the login to ZooKeeper; None without one. Raises BadValue."""
        entry = self._zookeeper_jaas()
        if entry is None:
            return None
        if entry.module_name != DIGEST_MODULE:
            raise BadValue(
                f"{entry.module_name} is not supported for ZooKeeper; use"
                f' org.apache.zookeeper.server.auth.{DIGEST_MODULE} required username="..." password="...";'
            )
        user, password = entry.options.get("username"), entry.options.get("password")
        if not user or not password:
            raise BadValue(f'{DIGEST_MODULE} needs username="..." password="..."')
        return user, password

    def _zookeeper_jaas(self) -> JaasEntry | None:
        if self.zookeeper_sasl_jaas_config:
            return parse_jaas(self.zookeeper_sasl_jaas_config)
        path = self.java_security_auth_login_config
        if not path:
            return None
        return read_jaas_file(path, lambda text: parse_jaas_file(text, self.zookeeper_sasl_clientconfig))


def read_jaas_file(path: str, parse: Callable[[str], T]) -> T:
    """Raises BadValue."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not a text file in UTF-8"
        raise BadValue(f"cannot read JAAS file {path}: {reason}") from error
    try:
        return parse(text)
    except BadValue as error:
        raise BadValue(f"JAAS file {path}: {error}") from error


def check_zookeeper_login(settings: ZooKeeperLoginSettings) -> None:
    """Raises BadValue."""
    has_certificate = settings.zookeeper_ssl_client_enable and settings.zookeeper_ssl_keystore_location
    if settings.zookeeper_user is None and settings.zookeeper_set_acl and not has_certificate:
        raise BadValue(
            "zookeeper.set.acl is true, but nobody would own the nodes: it needs a login (section"
            f" {settings.zookeeper_sasl_clientconfig} of the JAAS file in {JAAS_FILE}, or zookeeper.sasl.jaas.config)"
            " or a certificate (zookeeper.ssl.keystore.location)"
        )
    if settings.zookeeper_user is not None and not settings.zookeeper_sasl_jaas_config:
        warn_if_readable(settings.java_security_auth_login_config or "")


def warn_if_readable(path: str) -> None:
    with suppress(OSError):
        if os.stat(path).st_mode & (stat.S_IRGRP | stat.S_IROTH):
            logger.warning("password can be read by others; protect it with chmod 600 file=%s", path)


def system_properties(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Name and value of those system properties in `KAFKA_OPTS` that mean something here."""
    try:
        options = shlex.split(environment.get(KAFKA_OPTS, ""))
    except ValueError:  # for Java to complain about
        return
    for option in options:
        name, equals, value = option.removeprefix("-D").partition("=")
        if option.startswith("-D") and equals and name in SYSTEM_PROPERTIES:
            yield name, value
