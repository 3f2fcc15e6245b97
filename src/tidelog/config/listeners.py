"""Listener settings: `listeners` and `advertised.listeners` as endpoints."""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tidelog.config.setting import BadValue

_HOST_AND_PORT = r"(?:\[(?P<address>[0-9A-Fa-f:%.]+)\]|(?P<host>[^:\[\]/]*)):(?P<port>[0-9]{1,5})"
_ADDRESS = re.compile(_HOST_AND_PORT)
_LISTENER = re.compile(r"(?P<name>[A-Za-z0-9_.-]+)://" + _HOST_AND_PORT)
SUPPORTED_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
TLS_PROTOCOLS = ("SSL", "SASL_SSL")
PROTOCOL_NUMBERS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
"""Ids of security protocols (SecurityProtocol.id) in messages between brokers."""

LOOPBACK = "127.0.0.1"
EVERY_INTERFACE = ("0.0.0.0", "::")


class Endpoint(NamedTuple):
    """Address of a listener. Without a host: loopback in `listeners`, the machine's name in `advertised.listeners`."""

    listener_name: str
    host: str
    port: int
    security_protocol: str

    def __str__(self) -> str:
        return f"{self.listener_name}://{host_and_port(self.host, self.port)}"


def host_and_port(host: str, port: int) -> str:
    """`host:port`, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of `host:port`, or `[address]:port` for IPv6. Raises BadValue."""
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match["port"]) > 65535:
        raise BadValue(f"expected host:port, found {text!r}")
    return match["address"] or match["host"], int(match["port"])


def is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


def first_plaintext(endpoints: Iterable[Endpoint]) -> str | None:
    return next((each.listener_name for each in endpoints if each.security_protocol == "PLAINTEXT"), None)


def parse_protocol_map(text: str) -> dict[str, str]:
    """Security protocols by listener name, from `NAME:PROTOCOL,...`. Raises BadValue."""
    protocols = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        name, colon, protocol = pair.partition(":")
        if not colon or not name.strip() or not protocol.strip():
            raise BadValue(f"expected NAME:PROTOCOL, found {pair!r}")
        protocols[name.strip().upper()] = protocol.strip().upper()
    return protocols


def parse_listeners(listeners: Iterable[str], protocols: Mapping[str, str]) -> tuple[Endpoint, ...]:
    """The listeners of this broker. Raises BadValue."""
    endpoints = tuple(parse_listener(text, protocols) for text in listeners)
    for name, _, _, protocol in endpoints:
        if protocol not in SUPPORTED_PROTOCOLS:
            raise BadValue(f"listener {name} has protocol {protocol}; supported: {', '.join(SUPPORTED_PROTOCOLS)}")
    names = [endpoint.listener_name for endpoint in endpoints]
    if len(set(names)) < len(names):
        raise BadValue("each listener must have a different name")
    ports = [(endpoint.host, endpoint.port) for endpoint in endpoints if endpoint.port]
    if len(set(ports)) < len(ports):
        raise BadValue("each listener must have a different port")
    return endpoints


def parse_listener(text: str, protocols: Mapping[str, str]) -> Endpoint:
    match = _LISTENER.fullmatch(text)
    if match is None or int(match["port"]) > 65535:
        raise BadValue(f"expected NAME://host:port, found {text!r}")
    name = match["name"].upper()
    protocol = protocols.get(name)
    if protocol is None:
        raise BadValue(f"listener.security.protocol.map has no protocol for listener {name}")
    return Endpoint(name, match["address"] or match["host"], int(match["port"]), protocol)
