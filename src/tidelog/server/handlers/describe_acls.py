"""DescribeAcls (API key 29): lists the ACLs that match a filter; SECURITY_DISABLED without an authorizer."""

from tidelog.authorization.acls import AclEntry
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
    resources = []
    turns = context.services.turns
    for pattern, entries in list(authorizer.patterns.items()):
        await turns.yield_turn()
        if selected.matches_pattern(pattern):
            described = await turns.each(
                entries, lambda entry: _described(entry) if selected.matches_entry(entry) else None
            )
            acls = [each for each in described if each is not None]
            if acls:
                resources.append(DescribeAclsResource(pattern.type, pattern.name, pattern.pattern_type, acls))
    return DescribeAclsResponse(error_message=None, resources=resources)


def _described(entry: AclEntry) -> AclDescription:
    return AclDescription(entry.principal, entry.host, entry.operation, entry.permission)
