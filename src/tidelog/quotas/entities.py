"""Quota entities: users, client ids and addresses that have quotas, and which quota a client is subject to."""

# Core: no clock, no I/O, no await.

import ipaddress
from collections.abc import Iterator, Mapping
from typing import NamedTuple

DEFAULT = "<default>"
"""Name of the entity that stands for all that have no quota of their own. As a name of a user it is not allowed."""

PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"

CLIENT_KEYS = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)
INTEGER_KEYS = {PRODUCER_BYTE_RATE: 2**63 - 1, CONSUMER_BYTE_RATE: 2**63 - 1, CONNECTION_CREATION_RATE: 2**31 - 1}
"""Keys whose values have no fraction, with the largest one."""

USER, CLIENT_ID, IP = "user", "client-id", "ip"


class QuotaEntity(NamedTuple):
    """A user, a client id, both, or an address; `DEFAULT` is every one without a quota of its own."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None

    @property
    def parts(self) -> dict[str, str | None]:
        """By entity type as in requests, where None is the default entity."""
        named = {USER: self.user, CLIENT_ID: self.client_id, IP: self.ip}
        return {kind: None if name == DEFAULT else name for kind, name in named.items() if name is not None}

    def __str__(self) -> str:
        return ", ".join(f"{kind} {DEFAULT if name is None else name}" for kind, name in self.parts.items())


class QuotaMistake(ValueError):
    """A quota that cannot be set; the message says why."""


def entity_of(parts: Mapping[str, str | None]) -> QuotaEntity:
    """From entity types and names as in requests. Raises QuotaMistake."""
    for kind, name in parts.items():
        if kind not in (USER, CLIENT_ID, IP):
            raise QuotaMistake(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise QuotaMistake(f"Empty {kind} not supported")
        if name == DEFAULT:
            raise QuotaMistake(f"{kind} cannot have the name {DEFAULT}")
    if not parts:
        raise QuotaMistake("Invalid empty client quota entity")
    entity = QuotaEntity(*(_stored_name(parts, kind) for kind in (USER, CLIENT_ID, IP)))
    if entity.ip is not None:
        if len(parts) > 1:
            raise QuotaMistake("Invalid quota entity combination, IP entity should not be combined with others")
        _check_address(entity.ip)
    return entity


def _stored_name(parts: Mapping[str, str | None], kind: str) -> str | None:
    if kind not in parts:
        return None
    name = parts[kind]
    return DEFAULT if name is None else name


def _check_address(ip: str) -> None:
    if ip in (DEFAULT, "localhost"):
        return
    try:
        ipaddress.ip_address(ip)
    except ValueError:
        raise QuotaMistake(f"{ip} is not a valid IP address") from None


def check_quota(entity: QuotaEntity, key: str, value: float) -> None:
    """Raises QuotaMistake."""
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
    return str(int(value)) if value == int(value) else repr(value)


class AppliedQuota(NamedTuple):
    """The quota of a client, and who shares it."""

    bound: float
    user: str
    """Empty if the quota is not by user."""
    client_id: str


class QuotaTable:
    """All quotas. Which one a client is subject to is cached until they change."""

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
        self._quotas[entity] = dict(quotas)
        if not quotas:
            del self._quotas[entity]
        self._keys = frozenset(key for found in self._quotas.values() for key in found)
        self._applied = {}

    def applied(self, key: str, user: str, client_id: str) -> AppliedQuota | None:
        """The most specific quota of a client; None if it has none."""
        if len(client_id) > MAX_NAME_LENGTH:
            return self._find(key, user, client_id)
        asked = (key, user, client_id)
        if asked not in self._applied:
            if len(self._applied) >= MAX_CACHED:
                self._applied = {}
            self._applied[asked] = self._find(*asked)
        return self._applied[asked]

    def _find(self, key: str, user: str, client_id: str) -> AppliedQuota | None:
        for entity in _by_precedence(user, client_id):
            bound = self._quotas.get(entity, {}).get(key)
            if bound is not None:
                measured_id = client_id[:MAX_NAME_LENGTH] if entity.client_id is not None else ""
                return AppliedQuota(bound, user if entity.user is not None else "", measured_id)
        return None

    def connection_rate(self, ip: str) -> float | None:
        for name in (ip, DEFAULT):
            bound = self._quotas.get(QuotaEntity(ip=name), {}).get(CONNECTION_CREATION_RATE)
            if bound is not None:
                return bound
        return None


MAX_CACHED = 10_000
"""Clients choose their client ids. Above this the cache starts again."""
MAX_NAME_LENGTH = 255
"""Longer client ids, which may have 32 KB, are not remembered: those that begin alike are measured together."""


def _by_precedence(user: str, client_id: str) -> Iterator[QuotaEntity]:
    """Kafka's eight levels, the most specific one first."""
    for name in (user, DEFAULT):
        yield QuotaEntity(name, client_id)
        yield QuotaEntity(name, DEFAULT)
        yield QuotaEntity(name)
    yield QuotaEntity(None, client_id)
    yield QuotaEntity(None, DEFAULT)
