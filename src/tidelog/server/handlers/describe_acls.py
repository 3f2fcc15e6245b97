"""DescribeAcls: answered as Kafka does without an authorizer."""

from tidelog.errors import SecurityDisabled
from tidelog.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from tidelog.server.dispatch import Call
from tidelog.server.response_fields import error_fields


async def handle_describe_acls(_: DescribeAclsRequest, __: Call) -> DescribeAclsResponse:
    return DescribeAclsResponse(**error_fields(SecurityDisabled()))
