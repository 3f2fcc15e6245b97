"""Users, permissions and quotas as the page shows them, where the cluster has them."""

from collections.abc import Awaitable

from tidelog.authorization.acls import AclFilter
from tidelog.client.admin.acl_admin import AclAdmin
from tidelog.client.admin.quota_admin import QuotaAdmin
from tidelog.client.admin.user_admin import UserAdmin
from tidelog.client.network.retries import reason_of
from tidelog.client.routing.cluster import Cluster
from tidelog.console.observer import CLIENT_ERRORS

TIMEOUT_S = 5.0


async def describe_access(cluster: Cluster) -> dict[str, object]:
    """Each part is a list of rows, or the reason why the cluster does not show it."""
    return {
        "users": await _rows(_users(cluster)),
        "acls": await _rows(_acls(cluster)),
        "quotas": await _rows(_quotas(cluster)),
    }


async def _rows(found: Awaitable[list[dict[str, object]]]) -> dict[str, object]:
    try:
        return {"rows": await found}
    except CLIENT_ERRORS as error:
        return {"rows": [], "reason": reason_of(error)}


async def _users(cluster: Cluster) -> list[dict[str, object]]:
    users = await UserAdmin(cluster).list()
    return [{"user": user, "mechanisms": ", ".join(sorted(mechanisms))} for user, mechanisms in sorted(users.items())]


async def _acls(cluster: Cluster) -> list[dict[str, object]]:
    return [
        {
            "principal": entry.principal,
            "host": entry.host,
            "permission": entry.permission.name.lower(),
            "operation": entry.operation.name.lower().replace("_", " "),
            "resource": pattern.type.name.lower().replace("_", " "),
            "name": pattern.name,
            "pattern": pattern.pattern_type.name.lower(),
        }
        for pattern, entry in await AclAdmin(cluster, timeout_s=TIMEOUT_S).describe(AclFilter())
    ]


async def _quotas(cluster: Cluster) -> list[dict[str, object]]:
    found = await QuotaAdmin(cluster, timeout_s=TIMEOUT_S).describe()
    return [{"entity": str(entity), "quotas": quotas} for entity, quotas in found.items()]
