"""Settings of listeners, a part of the broker settings."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Self

from tidelog.config.jaas import JaasEntry
from tidelog.config.listeners import (
    EVERY_INTERFACE,
    LOOPBACK,
    Endpoint,
    first_plaintext,
    parse_listeners,
    parse_protocol_map,
)
from tidelog.config.sasl import MODULES, SASL_PROTOCOLS, jaas_of, with_sasl_overrides
from tidelog.config.setting import setting
from tidelog.config.ssl import with_overrides
from tidelog.config.zookeeper_login import ZooKeeperLoginSettings

SERVER_SECTION = "KafkaServer"
"""Of a JAAS file."""


@dataclass(frozen=True, kw_only=True, slots=True, init=False, eq=False, repr=False)
class ListenerSettings(ZooKeeperLoginSettings):
    control_plane_listener_name: str | None = setting(
        default=None,
        doc="The listener for requests of the controller; default: that between brokers (Kafka 3.9).",
    )
    inter_broker_listener_name: str | None = setting(
        default=None, doc="The listener for connections between brokers; default: the first unencrypted one."
    )
    listener_security_protocol_map: str = setting(
        default="SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        doc="The security protocol of each listener name: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.",
    )
    advertised_listeners: tuple[str, ...] | None = setting(
        default=None, doc="The addresses that clients connect to, if they differ from `listeners`."
    )
    listeners: tuple[str, ...] = setting(
        default=("PLAINTEXT://:9092",),
        doc="The addresses to listen on. Without a host: the loopback interface, so that nobody opens a broker to the"
        " network by accident (in Kafka: every interface). The host 0.0.0.0 means every interface.",
    )
    listener_overrides: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Settings of single listeners, by Kafka's name (`listener.name.<listener>.ssl...`, `...sasl...`)."""
    jaas_sections: Mapping[str, tuple[JaasEntry, ...]] = field(default_factory=dict, compare=False)
    """Login modules of the JAAS file, by section."""

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        return tuple(found._replace(host=found.host or LOOPBACK) for found in self._parsed(self.listeners))

    @property
    def inter_broker_listener(self) -> str | None:
        """The listener of this broker that other brokers connect to."""
        return self.listener_of_peers or first_plaintext(self.advertised_endpoints)

    @property
    def listener_of_peers(self) -> str | None:
        """The listener of other brokers to connect to; None: the first plaintext listener of each."""
        protocol = self.security_inter_broker_protocol
        return (self.inter_broker_listener_name or "").upper() or (None if protocol == "PLAINTEXT" else protocol)

    @property
    def control_plane_listener(self) -> str | None:
        """The listener of all brokers that the controller connects to, if it is not that between brokers."""
        return (self.control_plane_listener_name or "").upper() or None

    def for_listener(self, name: str) -> Self:
        """With the TLS and SASL settings of this listener. Raises BadValue."""
        found = with_overrides(self, name, self.listener_overrides)
        return with_sasl_overrides(found, name, None, self.listener_overrides)

    def for_mechanism(self, listener: str, mechanism: str) -> Self:
        """With the settings of one SASL mechanism of a listener. Raises BadValue."""
        return with_sasl_overrides(self, listener, mechanism, self.listener_overrides)

    def jaas(self, listener: str, mechanism: str) -> JaasEntry | None:
        """The login module of one SASL mechanism of a listener. Raises BadValue."""
        sections = self.jaas_sections
        of_file = sections.get(f"{listener.lower()}.{SERVER_SECTION}", sections.get(SERVER_SECTION, ()))
        found = next((each for each in of_file if each.module_name == MODULES.get(mechanism)), None)
        return jaas_of(listener, mechanism, self.listener_overrides) or found

    @property
    def sasl_endpoints(self) -> tuple[Endpoint, ...]:
        return tuple(found for found in self.endpoints if found.security_protocol in SASL_PROTOCOLS)

    @property
    def listeners_without_host(self) -> tuple[str, ...]:
        """Names of the listeners on the loopback interface for which no host was given."""
        return tuple(found.listener_name for found in self._parsed(self.listeners) if not found.host)

    @property
    def advertised_endpoints(self) -> tuple[Endpoint, ...]:
        """An empty host is replaced by the machine's name."""
        if self.advertised_listeners is not None:
            return self._parsed(self.advertised_listeners)
        return tuple(found._replace(host="") if found.host in EVERY_INTERFACE else found for found in self.endpoints)

    def _parsed(self, listeners: tuple[str, ...]) -> tuple[Endpoint, ...]:
        return _parse(listeners, self.listener_security_protocol_map)


@lru_cache(maxsize=64)
def _parse(listeners: tuple[str, ...], protocol_map: str) -> tuple[Endpoint, ...]:
    return parse_listeners(listeners, parse_protocol_map(protocol_map))
