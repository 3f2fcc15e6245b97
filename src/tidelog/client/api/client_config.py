"""Kafka's client settings as the public client takes them: a mapping of names and texts."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias, TypeVar

from tidelog.client.network.bootstrap import parse_bootstrap
from tidelog.client.network.secured_network import secured_network
from tidelog.client.routing.cluster import Cluster
from tidelog.config.client import client_security
from tidelog.config.nearest import did_you_mean
from tidelog.numerals import whole_number
from tidelog.protocol.compression import Codec
from tidelog.runtime.network import Network
from tidelog.runtime.randomness import SystemRandomness

T = TypeVar("T")

Parse: TypeAlias = Callable[[str], Any]

MAX_FRAME_BYTES = 2**31 - 1
SECURITY_PREFIXES = ("security.", "ssl.", "sasl.")
CODECS = {"none": Codec.NONE, "gzip": Codec.GZIP, "snappy": Codec.SNAPPY, "lz4": Codec.LZ4, "zstd": Codec.ZSTD}
ACKS = {"0": 0, "1": 1, "-1": -1, "all": -1}


def choice(choices: Mapping[str, T]) -> Callable[[str], T]:
    def parse(text: str) -> T:
        found = choices.get(text.lower())
        if found is None:
            raise ValueError(f"one of {', '.join(choices)}")
        return found

    return parse


def number(at_least: int = 0) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = whole_number(text.strip())
        if value is None or value < at_least:
            raise ValueError(f"a whole number of at least {at_least}")
        return value

    return parse


BOOLEAN = choice({"true": True, "false": False})

COMMON: Mapping[str, Parse] = {
    "bootstrap.servers": str,
    "client.id": str,
    "client.rack": str,
    "request.timeout.ms": number(1),
}


class ClientConfig(NamedTuple):
    """Parsed settings, by their names in Kafka."""

    values: Mapping[str, Any]
    security: Mapping[str, str]

    def get(self, name: str, given: Any, default: T) -> T:
        """The argument of the constructor if it is given, else the setting, else the default."""
        value: T = self.values.get(name, default) if given is None else given
        return value


def parse_config(config: Mapping[str, str] | None, known: Mapping[str, Parse]) -> ClientConfig:
    """Raises ValueError with all mistakes at once."""
    values: dict[str, Any] = {}
    mistakes = []
    names = {**COMMON, **known}
    for name, text in (config or {}).items():
        if name.startswith(SECURITY_PREFIXES):
            continue
        parse = names.get(name)
        if parse is None:
            mistakes.append(f"{name}: unknown setting{did_you_mean(name, names)}")
            continue
        try:
            values[name] = parse(str(text))
        except ValueError as error:
            mistakes.append(f"{name}: expected {error}, found {str(text)!r}")
    if mistakes:
        raise ValueError("; ".join(mistakes))
    security = {name: text for name, text in (config or {}).items() if name.startswith(SECURITY_PREFIXES)}
    client_security(security)  # reports a wrong name now, not at the first connection
    return ClientConfig(values, security)


def open_cluster(bootstrap_servers: str, client_id: str | None, config: ClientConfig) -> Cluster:
    """Nothing is connected yet. Raises ValueError for a malformed address or settings that do not fit together."""
    return Cluster(
        open_network(config.security),
        parse_bootstrap(bootstrap_servers),
        SystemRandomness(),
        client_id=config.get("client.id", client_id, "tidelog"),
        client_rack=config.get("client.rack", None, ""),
        request_timeout_s=config.get("request.timeout.ms", None, 30_000) / 1000,
    )


def open_network(security: Mapping[str, str]) -> Network:
    """Connections with these settings (`security.protocol`, `ssl.*`, `sasl.*`). Raises ValueError."""
    return secured_network(client_security(security), MAX_FRAME_BYTES)
