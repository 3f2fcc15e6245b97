"""Znodes of client quotas in Apache Kafka 3.9 in ZooKeeper mode: `/config/users`, `/config/clients`, `/config/ips`."""

from collections.abc import Mapping
from urllib.parse import unquote

from tidelog.cluster.node_names import sanitized
from tidelog.numerals import decimal_number
from tidelog.quotas.entities import DEFAULT, QuotaEntity

USERS, CLIENTS, IPS = "users", "clients", "ips"
CONFIG = "/config"
QUOTA_ROOTS = (f"{CONFIG}/{USERS}", f"{CONFIG}/{CLIENTS}", f"{CONFIG}/{IPS}")


def entity_path(entity: QuotaEntity) -> str:
    """`users/alice/clients/app`, as in notifications. Names are escaped as Kafka's Sanitizer does."""
    if entity.ip is not None:
        return f"{IPS}/{entity.ip}"  # not escaped in Kafka: an address has nothing to escape
    if entity.user is None:
        return f"{CLIENTS}/{_escaped(entity.client_id or DEFAULT)}"
    if entity.client_id is None:
        return f"{USERS}/{_escaped(entity.user)}"
    return f"{USERS}/{_escaped(entity.user)}/{CLIENTS}/{_escaped(entity.client_id)}"


def entity_at(path: str) -> QuotaEntity | None:
    """The entity of a path; None if it is not about quotas.

    A user may have the name of the default entity, escaped; it can have credentials, and no quotas.
    """
    names = path.split("/")
    if any(name != DEFAULT and _plain(name) == DEFAULT for name in names):
        return None
    match names:
        case ["users", user]:
            return QuotaEntity(_plain(user))
        case ["users", user, "clients", client_id]:
            return QuotaEntity(_plain(user), _plain(client_id))
        case ["clients", client_id]:
            return QuotaEntity(None, _plain(client_id))
        case ["ips", ip]:
            return QuotaEntity(ip=_plain(ip))
        case _:
            return None


def _escaped(name: str) -> str:
    return name if name == DEFAULT else sanitized(name)


def _plain(name: str) -> str:
    return name if name == DEFAULT else unquote(name)


def quotas_of(configs: Mapping[str, str], keys: tuple[str, ...]) -> dict[str, float]:
    """The quotas among the configs of an entity; users also have credentials there."""
    found = {}
    for key in keys:
        value = decimal_number(configs.get(key, ""))
        if value is not None and value > 0:
            found[key] = value
    return found
