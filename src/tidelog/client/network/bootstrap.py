"""Bootstrap servers: parsing of `host:port,host:port`."""

import re
from typing import NamedTuple

from tidelog.config.listeners import host_and_port

_ADDRESS = re.compile(r"(?:\[(?P<address>[0-9a-fA-F:.%]+)\]|(?P<host>[^\s:\[\],]+)):(?P<port>[0-9]{1,5})")


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return host_and_port(self.host, self.port)


class BadBootstrap(ValueError):
    """The message names the wrong part and the expected form."""


def parse_bootstrap(text: str) -> list[Address]:
    parts = [part.strip() for part in text.split(",")]
    addresses = [_parse_address(part) for part in parts if part]
    if not addresses:
        raise BadBootstrap("expected HOST:PORT or HOST:PORT,HOST:PORT,..., found nothing")
    return list(dict.fromkeys(addresses))


def _parse_address(text: str) -> Address:
    match = _ADDRESS.fullmatch(text)
    if match is None or not 0 < int(match["port"]) <= 65535:
        raise BadBootstrap(f"expected HOST:PORT (or [IPV6]:PORT), found {text!r}")
    return Address(match["address"] or match["host"], int(match["port"]))
