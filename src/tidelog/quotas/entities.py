"""Quota entities (users, client ids, addresses) and the lookup of the quota that applies to a client."""

# Core: no clock, no I/O, no await.

import ipaddress
from collections.abc import Iterator, Mapping
from typing import NamedTuple

DEFAULT = "<default>"
"""Name of the default entity, whose quota applies to all without one of their own. Nobody may have this name."""

PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"

CLIENT_KEYS = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)
INTEGER_KEYS = {PRODUCER_BYTE_RATE: 2**63 - 1, CONSUMER_BYTE_RATE: 2**63 - 1, CONNECTION_CREATION_RATE: 2**31 - 1}
"""Keys whose values are integers, with the largest value."""

USER, CLIENT_ID, IP = "user", "client-id", "ip"

MAX_CACHED = 10_000
"""The cache is cleared at this size: clients choose their client ids, so it could grow without limit."""
MAX_NAME_LENGTH = 255
"""Longer client ids (up to 32 KB) are not cached, and clients whose ids begin alike share one measure."""


class QuotaEntity(NamedTuple):
    """A user, a client id, both, or an address; `DEFAULT` stands for every one without a quota of its own."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None

    @property
    def parts(self) -> dict[str, str | None]:
        """Names by entity type, as in requests, where None is the default entity."""
        named = {USER: self.user, CLIENT_ID: self.client_id, IP: self.ip}
        return {
            entity_type: None if name == DEFAULT else name for entity_type, name in named.items() if name is not None
        }

    def __str__(self) -> str:
        return ", ".join(
            f"{entity_type} {DEFAULT if name is None else name}" for entity_type, name in self.parts.items()
        )


class QuotaMistake(ValueError):
    """A quota that cannot be set; the message says why."""


def entity_of(parts: Mapping[str, str | None]) -> QuotaEntity:
    """Entity with these names by entity type, as in requests. Raises QuotaMistake."""
    for entity_type, name in parts.items():
        if entity_type not in (USER, CLIENT_ID, IP):
            raise QuotaMistake(f"Unhandled client quota entity type: {entity_type}")
        if name == "":
            raise QuotaMistake(f"Empty {entity_type} not supported")
        if name == DEFAULT:
            raise QuotaMistake(f"{entity_type} cannot have the name {DEFAULT}")
    if not parts:
        raise QuotaMistake("Invalid empty client quota entity")
    entity = QuotaEntity(*(_stored_name(parts, entity_type) for entity_type in (USER, CLIENT_ID, IP)))
    if entity.ip is not None:
        if len(parts) > 1:
            raise QuotaMistake("Invalid quota entity combination, IP entity should not be combined with others")
        _check_address(entity.ip)
    return entity


def _stored_name(parts: Mapping[str, str | None], entity_type: str) -> str | None:
    if entity_type not in parts:
        return None
    name = parts[entity_type]
    return DEFAULT if name is None else name


def _check_address(ip: str) -> None:
    if ip in (DEFAULT, "localhost"):
        return
    try:
        ipaddress.ip_address(ip)
    except ValueError:
        raise QuotaMistake(f"{ip} is not a valid IP address") from None


def check_quota(entity: QuotaEntity, key: str, value: float) -> None:
    """Raises QuotaMistake if the entity cannot have this quota."""
    if key not in ((CONNECTION_CREATION_RATE,) if entity.ip is not None else CLIENT_KEYS):
        raise QuotaMistake(f"Invalid configuration key {key}")
    if not value > 0:
        raise QuotaMistake(f"Quota {key} must be greater than 0")
    largest = INTEGER_KEYS.get(key)
    if largest is not None and value > largest:
        raise QuotaMistake(f"Proposed value for {key} is too large")
    if largest is not None and abs(value % 1.0) > 1e-6:
        raise QuotaMistake(f"{key} cannot be a fractional value.")


def quota_text(value: float) -> str:
    """Without a fraction where there is none: `1024`, not `1024.0`."""
    return str(int(value)) if value == int(value) else repr(value)


class AppliedQuota(NamedTuple):
    """Quota that applies to a client. All clients with the same `user` and `client_id` here share it."""

    bound: float
    user: str
    """Empty if the quota is not by user."""
    client_id: str
    """Empty if the quota is not by client id."""


class QuotaTable:
    """All quotas. The one that applies to a client is cached until any quota changes."""

    def __init__(self) -> None:
        self._quotas: dict[QuotaEntity, Mapping[str, float]] = {}
        self._keys: frozenset[str] = frozenset()
        self._applied: dict[tuple[str, str, str], AppliedQuota | None] = {}

    def __contains__(self, key: str) -> bool:
        """Whether anybody has a quota of this key."""
        return key in self._keys

    def __bool__(self) -> bool:
        return bool(self._keys)

    @property
    def quotas(self) -> Mapping[QuotaEntity, Mapping[str, float]]:
        return self._quotas

    def replace(self, entity: QuotaEntity, quotas: Mapping[str, float]) -> None:
        if quotas:
            self._quotas[entity] = dict(quotas)
        else:
            self._quotas.pop(entity, None)
        self._keys = frozenset(key for found in self._quotas.values() for key in found)
        self._applied = {}

    def applied(self, key: str, user: str, client_id: str) -> AppliedQuota | None:
        """The most specific quota of a client; None if it has none."""
        if len(client_id) > MAX_NAME_LENGTH:
            return self._find(key, user, client_id)
        cache_key = (key, user, client_id)
        if cache_key not in self._applied:
            if len(self._applied) >= MAX_CACHED:
                self._applied = {}
            self._applied[cache_key] = self._find(*cache_key)
        return self._applied[cache_key]

    def _find(self, key: str, user: str, client_id: str) -> AppliedQuota | None:
        for entity in _by_precedence(user, client_id):
            bound = self._quotas.get(entity, {}).get(key)
            if bound is not None:
                shared_id = client_id[:MAX_NAME_LENGTH] if entity.client_id is not None else ""
                return AppliedQuota(bound, user if entity.user is not None else "", shared_id)
        return None

    def connection_rate(self, ip: str) -> float | None:
        for name in (ip, DEFAULT):
            bound = self._quotas.get(QuotaEntity(ip=name), {}).get(CONNECTION_CREATION_RATE)
            if bound is not None:
                return bound
        return None


def _by_precedence(user: str, client_id: str) -> Iterator[QuotaEntity]:
    """Kafka's eight levels, the most specific one first."""
    for name in (user, DEFAULT):
        yield QuotaEntity(name, client_id)
        yield QuotaEntity(name, DEFAULT)
        yield QuotaEntity(name)
    yield QuotaEntity(None, client_id)
    yield QuotaEntity(None, DEFAULT)
