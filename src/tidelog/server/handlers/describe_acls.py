"""DescribeAcls (API key 29): refused with SECURITY_DISABLED, as in Kafka without an authorizer."""

from tidelog.errors import SecurityDisabled
from tidelog.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from tidelog.server.dispatch import RequestContext
from tidelog.server.response_fields import error_fields


async def handle_describe_acls(_: DescribeAclsRequest, __: RequestContext) -> DescribeAclsResponse:
    return DescribeAclsResponse(**error_fields(SecurityDisabled()))
