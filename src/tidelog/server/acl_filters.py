"""Filters of ACLs as DescribeAcls and DeleteAcls carry them."""

from tidelog.authorization.acls import AclFilter, Operation, PatternType, Permission, ResourceType
from tidelog.protocol.errors import MalformedMessage
from tidelog.protocol.messages.delete_acls import DeleteAclsFilter
from tidelog.protocol.messages.describe_acls import DescribeAclsRequest


def acl_filter(request: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    """Raises MalformedMessage: like Kafka, codes that do not exist make the whole request invalid."""
    selected = AclFilter(
        ResourceType(request.resource_type_filter),
        request.resource_name_filter,
        PatternType(request.pattern_type_filter),
        request.principal_filter,
        request.host_filter,
        Operation(request.operation),
        Permission(request.permission_type),
    )
    if selected.is_unknown:
        raise MalformedMessage("the filter contains unknown elements")
    return selected
