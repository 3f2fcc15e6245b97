"""DescribeAcls (API key 29): lists the ACLs that match a filter; SECURITY_DISABLED without an authorizer."""

from tidelog.errors import SecurityDisabled
from tidelog.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from tidelog.server.acl_filters import acl_filter
from tidelog.server.dispatch import RequestContext
from tidelog.server.response_fields import error_fields


async def handle_describe_acls(request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:
    selected = acl_filter(request)
    authorizer = context.services.authorizer
    if authorizer is None:
        return DescribeAclsResponse(**error_fields(SecurityDisabled()))
    resources: dict[object, DescribeAclsResource] = {}
    for pattern, entry in authorizer.bindings(selected):
        resource = resources.setdefault(pattern, DescribeAclsResource(pattern.type, pattern.name, pattern.pattern_type))
        resource.acls.append(AclDescription(entry.principal, entry.host, entry.operation, entry.permission))
    return DescribeAclsResponse(error_message=None, resources=list(resources.values()))
