"""CreateAcls: refused as Kafka does without an authorizer."""

from tidelog.errors import SecurityDisabled
from tidelog.protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from tidelog.server.dispatch import Call
from tidelog.server.response_fields import error_fields


async def handle_create_acls(request: CreateAclsRequest, _: Call) -> CreateAclsResponse:
    refused = AclCreationResult(**error_fields(SecurityDisabled()))
    return CreateAclsResponse(results=[refused] * len(request.creations))
