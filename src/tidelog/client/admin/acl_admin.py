"""Admin client for ACLs: add, list and remove rules, and say which one decides."""

from collections.abc import Iterable, Sequence

from tidelog.authorization.acls import (
    AclBinding,
    AclEntry,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from tidelog.client.admin.admin import DEFAULT_TIMEOUT_S
from tidelog.client.network.retries import retried
from tidelog.client.routing.cluster import Cluster
from tidelog.errors import raise_error
from tidelog.protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from tidelog.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from tidelog.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse


class AclAdmin:
    """Retriable errors are retried until `timeout_s`; others are raised."""

    def __init__(self, cluster: Cluster, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        self._cluster = cluster
        self._timeout_s = timeout_s

    async def create(self, bindings: Sequence[AclBinding]) -> None:
        request = CreateAclsRequest(creations=list(map(_creation, bindings)))

        async def attempt() -> None:
            for result in (await self._cluster.ask_any(request, CreateAclsResponse)).results:
                raise_error(result.error_code, message=result.error_message)

        await retried(self._cluster.attempts("adding rules", self._timeout_s), attempt)

    async def describe(self, selected: AclFilter) -> list[AclBinding]:
        request = DescribeAclsRequest(*selected)

        async def attempt() -> list[AclBinding]:
            response = await self._cluster.ask_any(request, DescribeAclsResponse)
            raise_error(response.error_code, message=response.error_message)
            return sorted(
                AclBinding(
                    ResourcePattern(
                        ResourceType(resource.resource_type), resource.resource_name, PatternType(resource.pattern_type)
                    ),
                    AclEntry(each.principal, each.host, Operation(each.operation), Permission(each.permission_type)),
                )
                for resource in response.resources
                for each in resource.acls
            )

        return await retried(self._cluster.attempts("listing rules", self._timeout_s), attempt)

    async def delete(self, filters: Iterable[AclFilter]) -> list[AclBinding]:
        """The rules that were there and are gone."""
        request = DeleteAclsRequest(filters=[DeleteAclsFilter(*each) for each in filters])

        async def attempt() -> list[AclBinding]:
            deleted = []
            for result in (await self._cluster.ask_any(request, DeleteAclsResponse)).filter_results:
                raise_error(result.error_code, message=result.error_message)
                for each in result.matching_acls:
                    raise_error(each.error_code, message=each.error_message)
                    pattern = ResourcePattern(
                        ResourceType(each.resource_type), each.resource_name, PatternType(each.pattern_type)
                    )
                    entry = AclEntry(
                        each.principal, each.host, Operation(each.operation), Permission(each.permission_type)
                    )
                    deleted.append(AclBinding(pattern, entry))
            return deleted

        return await retried(self._cluster.attempts("removing rules", self._timeout_s), attempt)


def exactly(binding: AclBinding) -> AclFilter:
    """A filter that selects this rule only."""
    pattern, entry = binding
    return AclFilter(*pattern, entry.principal, entry.host, entry.operation, entry.permission)


def _creation(binding: AclBinding) -> AclCreation:
    pattern, entry = binding
    return AclCreation(*pattern, entry.principal, entry.host, entry.operation, entry.permission)
